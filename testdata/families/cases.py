"""The models of this folder. make.py saves them; check.py loads files of shaver into them."""

import copy
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from packages import *  # noqa: E402,F403


class Case:
    """One file.

    kind is shaver's kind ("fm", "deepfm", "wide-deep", "dcnv2 parallel", "dcnv2 stacked"), or "" if the model is not
    one of them. In that case why says what differs. build returns the model, call gives its output for ids and dense
    values, save returns what torch.save stores.
    """

    def __init__(self, name, family, kind, build, call, *, file=None, fields=FIELDS, dense=(), save=None, form="state dict", legacy=False, why=""):
        self.name, self.family, self.kind, self.build, self.call = name, family, kind, build, call
        self.file = file or name + ".pth"
        self.fields, self.dense, self.form, self.legacy, self.why = list(fields), list(dense), form, legacy, why
        self.save = save or (lambda model: model.state_dict())

    def rows(self):
        return rows(sum(map(ord, self.name)), [size for _, size in self.fields], len(self.dense))

    def seed(self):
        return sum(ord(c) * (i + 1) for i, c in enumerate(self.name))

    def model(self):
        with quiet():
            torch.manual_seed(0)
            return randomise(self.build(), self.seed())

    def logits(self, model):
        """Logits in float64 of a copy of the model, and the largest difference to those in float32."""
        ids, dense = self.rows()
        ids, dense = torch.from_numpy(ids), torch.from_numpy(dense)
        with torch.no_grad(), logits_instead():
            single = self.call(model, ids, dense).double().flatten()
            with float64():
                double = self.call(copy.deepcopy(model).double(), ids, dense.double()).flatten()
        assert single.shape == double.shape == (ROWS,)
        return double.numpy(), float((single - double).abs().max())


def strict(model, state):
    """Loads a state dict with strict=True. A prefix that all its keys have comes from a wrapper and is removed."""
    for prefix in ("module.", "_orig_mod.", "net.", "model."):
        if state and all(k.startswith(prefix) for k in state) and not all(k.startswith(prefix) for k in model.state_dict()):
            state = {k.removeprefix(prefix): v for k, v in state.items()}
    model.load_state_dict(state, strict=True)
    return model.eval()


def by_name(fields, dense=()):
    """Calls a model with a dict of columns."""

    def call(model, ids, values):
        x = {name: ids[:, i] for i, (name, _) in enumerate(fields)}
        x |= {name: values[:, i] for i, name in enumerate(dense)}
        y = model(x)
        return y["y_pred"] if isinstance(y, dict) else y

    return call


def one_matrix(model, ids, values):
    """Calls a model with ids and values in one matrix of floating-point numbers."""
    return model(torch.cat([ids.to(torch.get_default_dtype()), values], dim=1))


def ids_only(model, ids, values):
    return model(ids)


def recbole_save(kind, options):
    """What RecBole's trainer saves: its Config object, the optimizer's state after one step, and the state dict."""

    def save(model):
        path = pathlib.Path(tempfile.mkdtemp()) / "saved.pth"
        with quiet():
            _, trainer, _ = recbole(kind, tempfile.mkdtemp(), **options)
            state = copy.deepcopy(model.state_dict())
            trainer.model.load_state_dict(state)
            for p in trainer.model.parameters():
                p.grad = torch.full_like(p, 0.01)
            trainer.optimizer.step()
            trainer.model.load_state_dict(state)
            trainer._save_checkpoint(0, verbose=False, saved_model_file=str(path))
        return path

    return save


RECBOLE_FIELDS = [("user_id", 7), ("item_id", 11), ("city", 4), ("device", 3)]


def recbole_case(name, kind, model_kind, why="", form="RecBole trainer file", **options):
    def build():
        model, _, fields = recbole(kind, tempfile.mkdtemp(), **options)
        assert fields == RECBOLE_FIELDS
        return model

    return Case(name, "recbole", model_kind, build, by_name(RECBOLE_FIELDS), fields=RECBOLE_FIELDS, form=form, save=None if form == "state dict" else recbole_save(kind, options), why=why)


def fuxictr_case(name, kind, model_kind, numeric=(), padding=None, why="", **options):
    def build():
        return fuxictr(kind, fuxictr_feature_map(numeric=numeric, padding=padding), **options)

    return Case(name, "fuxictr", model_kind, build, by_name(FIELDS, numeric), file=name + ".model", dense=numeric, why=why)


def deepctr_case(name, kind, model_kind, dense=(), why="", **options):
    def build():
        return deepctr(kind, deepctr_columns(dense=dense), dnn_hidden_units=options.get("units", (8, 6)), **{k: v for k, v in options.items() if k not in ("units", "whole")})

    whole = options.get("whole")
    return Case(name, "deepctr-torch", model_kind, build, one_matrix, file=name + (".pth" if whole else ".h5"), dense=dense, why=why,
                form="whole module" if whole else "state dict", save=(lambda m: m) if whole else None)


def torchfm_build(kind):
    def build():
        from torchfm.model.dfm import DeepFactorizationMachineModel
        from torchfm.model.fm import FactorizationMachineModel
        from torchfm.model.wd import WideAndDeepModel

        if kind == "fm":
            return FactorizationMachineModel(SIZES, DIM)
        return (DeepFactorizationMachineModel if kind == "dfm" else WideAndDeepModel)(SIZES, DIM, mlp_dims=(8, 6), dropout=0.2)

    return build


def torchfm_case(name, kind, model_kind, form="whole module", save=lambda m: m, **options):
    return Case(name, "pytorch-fm", model_kind, torchfm_build(kind), ids_only, form=form, save=save, **options)


def rechub_case(name, kind, model_kind, why="", **options):
    def build():
        return rechub(kind, **options)[0]

    return Case(name, "torch-rechub", model_kind, build, by_name(FIELDS), why=why)


def lightning(model):
    """What Trainer.save_checkpoint of Lightning stores for a module that holds model under "model"."""
    import lightning_fabric  # noqa: F401
    import pytorch_lightning as pl

    class Click(pl.LightningModule):
        def __init__(self, field_dims, embed_dim, lr):
            super().__init__()
            self.save_hyperparameters()
            self.model = model

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)

        def training_step(self, batch, _):
            x, y = batch
            return nn.functional.binary_cross_entropy(self.model(x), y)

    folder = pathlib.Path(tempfile.mkdtemp())
    state = copy.deepcopy(model.state_dict())
    with quiet():
        torch.manual_seed(1)
        ids, _ = rows(3)
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(ids), torch.ones(ROWS)), batch_size=ROWS)
        trainer = pl.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", default_root_dir=folder)
        click = Click(SIZES, DIM, 1e-3)
        trainer.fit(click, data)
        model.load_state_dict(state)
        model.eval()
        trainer.save_checkpoint(folder / "x.ckpt")
    return folder / "x.ckpt"


def prefixed(prefix, model):
    return {prefix + k: v for k, v in model.state_dict().items()}


def wrapped(model):
    """A training loop's file: DataParallel's prefix, the optimizer, and an argparse namespace."""
    import argparse

    optimizer = torch.optim.Adam(model.parameters())
    return {"epoch": 3, "args": argparse.Namespace(lr=1e-3, name="click"), "model_state_dict": prefixed("module.", model), "optimizer_state_dict": optimizer.state_dict(), "best_auc": 0.78}


def ambiguous(model):
    return {"model": model.state_dict(), "ema_model": {k: v * 0.5 if v.is_floating_point() else v for k, v in model.state_dict().items()}}


CASES = [
    fuxictr_case("fuxictr-fm", "FM", "fm"),
    fuxictr_case("fuxictr-deepfm", "DeepFM", "deepfm", padding=0, batch_norm=True, net_dropout=0.1),
    fuxictr_case("fuxictr-deepfm-plain", "DeepFM", "deepfm"),
    fuxictr_case("fuxictr-widedeep", "WideDeep", "wide-deep", net_dropout=0.1),
    fuxictr_case("fuxictr-dcnv2-parallel", "DCNv2", "dcnv2 parallel", batch_norm=True),
    fuxictr_case("fuxictr-dcnv2-stacked", "DCNv2", "dcnv2 stacked", model_structure="stacked"),
    fuxictr_case("fuxictr-deepfm-numeric", "DeepFM", "", numeric=DENSE, why="two numeric features, each a Linear(1, d)"),
    fuxictr_case("fuxictr-deepfm-tanh", "DeepFM", "", hidden_activations="Tanh", why="Tanh instead of ReLU, which the file does not say"),
    fuxictr_case("fuxictr-dcnv2-stacked-parallel", "DCNv2", "", model_structure="stacked_parallel", why="both MLPs"),
    fuxictr_case("fuxictr-dcnv2-mixture", "DCNv2", "", use_low_rank_mixture=True, why="gates are a softmax over the experts"),
    fuxictr_case("fuxictr-dcn", "DCN", "", why="the first version's cross layers"),
    deepctr_case("deepctr-torch-fm", "DeepFM", "fm", units=()),
    deepctr_case("deepctr-torch-deepfm", "DeepFM", "deepfm", dnn_use_bn=True, dnn_dropout=0.1),
    deepctr_case("deepctr-torch-deepfm-module", "DeepFM", "deepfm", whole=True),
    deepctr_case("deepctr-torch-wdl", "WDL", "wide-deep"),
    deepctr_case("deepctr-torch-deepfm-dense", "DeepFM", "", dense=DENSE, why="two dense inputs"),
    deepctr_case("deepctr-torch-deepfm-nofm", "DeepFM", "wide-deep", use_fm=False),
    deepctr_case("deepctr-torch-dcnmix", "DCNMix", "", why="a linear model and a cross network, whose gates are a softmax", low_rank=3, num_experts=2),
    deepctr_case("deepctr-torch-dcn-matrix", "DCN", "dcnv2 parallel", cross_parameterization="matrix"),
    deepctr_case("deepctr-torch-dcn", "DCN", "", why="the first version's cross layers"),
    torchfm_case("pytorch-fm-fm", "fm", "fm"),
    torchfm_case("pytorch-fm-deepfm", "dfm", "deepfm"),
    torchfm_case("pytorch-fm-deepfm-legacy", "dfm", "deepfm", legacy=True),
    torchfm_case("pytorch-fm-wd", "wd", "wide-deep"),
    torchfm_case("pytorch-fm-deepfm-state", "dfm", "deepfm", form="state dict", save=None),
    torchfm_case("pytorch-fm-fm-state", "fm", "fm", form="state dict", save=None),
    torchfm_case("pytorch-fm-wd-state", "wd", "wide-deep", form="state dict", save=None),
    torchfm_case("wrapped-module", "dfm", "deepfm", form="dict with model_state_dict, DataParallel", save=wrapped),
    torchfm_case("wrapped-compiled", "fm", "fm", form="dict with state, torch.compile", save=lambda m: {"state": prefixed("_orig_mod.", m), "step": 7}),
    torchfm_case("wrapped-net", "wd", "wide-deep", form="dict with state_dict, prefix net", save=lambda m: {"state_dict": prefixed("net.", m), "optimizer": None}),
    torchfm_case("wrapped-ambiguous", "fm", "fm", form="dict with model and ema_model", save=ambiguous),
    torchfm_case("lightning", "dfm", "deepfm", form="Lightning checkpoint", save=lightning, file="lightning.ckpt"),
    rechub_case("torch-rechub-dcnv2-parallel", "DCNv2", "", why="the cross layers add the bias outside the product", n_cross_layers=2, model_structure="parallel", use_low_rank_mixture=False),
    rechub_case("torch-rechub-dcnv2-stacked", "DCNv2", "", why="the cross layers add the bias outside the product", n_cross_layers=2, model_structure="stacked", use_low_rank_mixture=False),
    rechub_case("torch-rechub-deepfm", "DeepFM", "deepfm"),
    rechub_case("torch-rechub-widedeep", "WideDeep", "wide-deep"),
    recbole_case("recbole-fm", "FM", "fm"),
    recbole_case("recbole-deepfm", "DeepFM", "deepfm"),
    recbole_case("recbole-widedeep", "WideDeep", "wide-deep"),
    recbole_case("recbole-dcnv2-parallel", "DCNV2", "dcnv2 parallel", mixed=False, structure="parallel", cross_layer_num=2, reg_weight=1.0),
    recbole_case("recbole-fm-state", "FM", "fm", form="state dict"),
    recbole_case("recbole-widedeep-state", "WideDeep", "wide-deep", form="state dict"),
    recbole_case("recbole-dcnv2-state", "DCNV2", "dcnv2 stacked", form="state dict", mixed=False, structure="stacked", cross_layer_num=2, reg_weight=1.0),
    recbole_case("recbole-dcnv2-stacked", "DCNV2", "dcnv2 stacked", mixed=False, structure="stacked", cross_layer_num=2, reg_weight=1.0),
]
