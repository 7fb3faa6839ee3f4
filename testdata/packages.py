"""Tiny models of real packages, for testdata/onnx/make.py and testdata/families/make.py.

Everything here is deterministic: weights come from randomise, rows from rows.
"""

import contextlib
import io
import logging
import os
import pathlib
import sys
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("KERAS_BACKEND", "torch")
warnings.filterwarnings("ignore")

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

FIELDS = [("user", 7), ("item", 11), ("category", 5), ("city", 4), ("device", 3)]
DENSE = ["age", "price"]
NAMES = [name for name, _ in FIELDS]
SIZES = [size for _, size in FIELDS]
DIM = 4
ROWS = 32


def rows(seed, sizes=SIZES, dense=0, count=ROWS):
    """Ids [count, fields] and dense values [count, dense]; the first two rows have the smallest and the largest ids."""
    r = np.random.default_rng(seed)
    ids = np.stack([r.integers(0, size, count) for size in sizes], axis=1).astype(np.int64)
    ids[0], ids[1] = 0, np.array(sizes) - 1
    values = r.normal(size=(count, dense)).astype(np.float32).round(3)
    return ids, values


def randomise(model, seed):
    """Gives every parameter and every running statistic a value that matters, and sets eval mode."""
    g = torch.Generator().manual_seed(seed)

    def normal(t, std, mean=0.0):
        t.copy_(torch.randn(t.shape, generator=g) * std + mean)

    def uniform(t, low, high):
        t.copy_(torch.rand(t.shape, generator=g) * (high - low) + low)

    done = set()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
                normal(module.weight, 0.5)
                if getattr(module, "padding_idx", None) is not None:
                    module.weight[module.padding_idx].zero_()
                done.add(id(module.weight))
            elif isinstance(module, (nn.BatchNorm1d, nn.LayerNorm)):
                if module.weight is not None:
                    uniform(module.weight, 0.6, 1.4)
                    normal(module.bias, 0.2)
                    done |= {id(module.weight), id(module.bias)}
                if isinstance(module, nn.BatchNorm1d):
                    normal(module.running_mean, 0.3)
                    uniform(module.running_var, 0.5, 2.0)
                    module.num_batches_tracked.fill_(100)
        for name, p in model.named_parameters():
            if id(p) in done or not p.is_floating_point():
                continue
            fan_in = p.shape[-1] if p.dim() > 1 else 25
            normal(p, max(0.2, 1.0 / fan_in**0.5))
    return model.eval()


@contextlib.contextmanager
def logits_instead():
    """While it is active, sigmoids of PyTorch return their input, so a model returns its logit.

    It is for models whose only sigmoid is the last one.
    """
    function, method, module = torch.sigmoid, torch.Tensor.sigmoid, nn.Sigmoid.forward
    torch.sigmoid = torch.Tensor.sigmoid = lambda x: x
    nn.Sigmoid.forward = lambda self, x: x
    try:
        yield
    finally:
        torch.sigmoid, torch.Tensor.sigmoid, nn.Sigmoid.forward = function, method, module


@contextlib.contextmanager
def float64():
    """While it is active, new tensors have float64, and so has what a model converts by Tensor.float."""
    method = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.Tensor.float = method
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def quiet():
    """Discards what packages print and log."""
    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


# ---- FuxiCTR. Its wheel has the layers and the base class; the models are in the model zoo of its source
# repository. The classes below compose the layers of the wheel under the attribute names of the zoo, so that
# the state dicts have the same keys.

FUXI = dict(optimizer="adam", loss="binary_crossentropy", metrics=["AUC"], verbose=0, model_root="checkpoints", embedding_dim=DIM, learning_rate=1e-3)


def fuxictr_feature_map(fields=FIELDS, numeric=(), padding=None):
    from fuxictr.features import FeatureMap

    m = FeatureMap("tiny", ".")
    for name, size in fields:
        m.features[name] = {"source": "", "type": "categorical", "vocab_size": size}
        if padding is not None:
            m.features[name]["padding_idx"] = padding
    for name in numeric:
        m.features[name] = {"source": "", "type": "numeric"}
    m.labels = ["click"]
    m.num_fields = m.get_num_fields()
    m.default_emb_dim = DIM
    m.set_column_index()
    return m


def fuxictr(kind, feature_map, **options):
    """Returns a model. kind is one of the classes in fuxictr_classes."""
    with quiet():
        return fuxictr_classes()[kind](feature_map, **{**FUXI, **options})


def fuxictr_classes():
    from fuxictr.pytorch import layers
    from fuxictr.pytorch.models import BaseModel

    class Base(BaseModel):
        def __init__(self, feature_map, **options):
            super().__init__(feature_map, model_id=type(self).__name__, gpu=-1, **options)
            self.embedding_layer = layers.FeatureEmbedding(feature_map, options["embedding_dim"])
            self.width = feature_map.sum_emb_out_dim()
            self.build(feature_map, options)
            self.compile(options["optimizer"], options["loss"], options["learning_rate"])

        def forward(self, inputs):
            x = self.get_inputs(inputs)
            return {"y_pred": self.output_activation(self.logit(x, self.embedding_layer(x)))}

    def mlp(width, options, output=1, key="hidden_units"):
        return layers.MLP_Block(
            input_dim=width,
            output_dim=output,
            hidden_units=options.get(key, [8, 6]),
            hidden_activations=options.get("hidden_activations", "ReLU"),
            output_activation=None,
            dropout_rates=options.get("net_dropout", 0),
            batch_norm=options.get("batch_norm", False),
        )

    class FM(Base):
        def build(self, feature_map, options):
            self.fm = layers.FactorizationMachine(feature_map)

        def logit(self, x, e):
            return self.fm(x, e)

    class DeepFM(Base):
        def build(self, feature_map, options):
            self.fm = layers.FactorizationMachine(feature_map)
            self.mlp = mlp(self.width, options)

        def logit(self, x, e):
            return self.fm(x, e) + self.mlp(e.flatten(start_dim=1))

    class WideDeep(Base):
        def build(self, feature_map, options):
            self.lr_layer = layers.LogisticRegression(feature_map, use_bias=False)
            self.dnn = mlp(self.width, options)

        def logit(self, x, e):
            return self.lr_layer(x) + self.dnn(e.flatten(start_dim=1))

    class DCN(Base):
        def build(self, feature_map, options):
            self.dnn = mlp(self.width, options, output=None)
            self.crossnet = layers.CrossNet(self.width, 2)
            self.fc = nn.Linear(self.width + options.get("hidden_units", [8, 6])[-1], 1)

        def logit(self, x, e):
            flat = e.flatten(start_dim=1)
            return self.fc(torch.cat([self.crossnet(flat), self.dnn(flat)], dim=-1))

    class DCNv2(Base):
        def build(self, feature_map, options):
            units, structure = options.get("hidden_units", [8, 6]), options.get("model_structure", "parallel")
            if options.get("use_low_rank_mixture"):
                self.crossnet = layers.CrossNetMix(self.width, 2, low_rank=3, num_experts=2)
            else:
                self.crossnet = layers.CrossNetV2(self.width, 2)
            final = self.width
            if structure in ("stacked", "stacked_parallel"):
                self.stacked_dnn = mlp(self.width, options, output=None)
                final = units[-1]
            if structure in ("parallel", "stacked_parallel"):
                self.parallel_dnn = mlp(self.width, options, output=None)
                final = units[-1] + (self.width if structure == "parallel" else units[-1])
            self.model_structure = structure
            self.fc = nn.Linear(final, 1)

        def logit(self, x, e):
            flat = e.flatten(start_dim=1)
            cross = self.crossnet(flat)
            if self.model_structure == "stacked":
                cross = self.stacked_dnn(cross)
            elif self.model_structure == "parallel":
                cross = torch.cat([cross, self.parallel_dnn(flat)], dim=-1)
            elif self.model_structure == "stacked_parallel":
                cross = torch.cat([self.stacked_dnn(cross), self.parallel_dnn(flat)], dim=-1)
            return self.fc(cross)

    class xDeepFM(Base):
        def build(self, feature_map, options):
            self.dnn = mlp(self.width, options)
            self.lr_layer = layers.LogisticRegression(feature_map, use_bias=False)
            self.cin = layers.CompressedInteractionNet(feature_map.num_fields, [6, 4], output_dim=1)

        def logit(self, x, e):
            return self.lr_layer(x) + self.cin(e) + self.dnn(e.flatten(start_dim=1))

    class AutoInt(Base):
        def build(self, feature_map, options):
            self.lr_layer = layers.LogisticRegression(feature_map, use_bias=False)
            self.dnn = mlp(self.width, options)
            self.self_attention = nn.Sequential(Interacting(DIM, 6), Interacting(6, 6))
            self.fc = nn.Linear(feature_map.num_fields * 6, 1)

        def logit(self, x, e):
            attention = self.fc(self.self_attention(e).flatten(start_dim=1))
            return attention + self.dnn(e.flatten(start_dim=1)) + self.lr_layer(x)

    class Interacting(nn.Module):
        """Attention of the fields to one another, in two heads."""

        def __init__(self, width, output):
            super().__init__()
            self.W_q, self.W_k, self.W_v, self.W_res = [nn.Linear(width, output, bias=False) for _ in range(4)]
            self.dot_attention = layers.ScaledDotProductAttention()
            self.layer_norm = nn.LayerNorm(output)

        def forward(self, x):
            def heads(t):
                return t.view(t.size(0), t.size(1), 2, -1).transpose(1, 2)

            out, _ = self.dot_attention(heads(self.W_q(x)), heads(self.W_k(x)), heads(self.W_v(x)), scale=3**0.5)
            out = out.transpose(1, 2).reshape(x.size(0), x.size(1), -1) + self.W_res(x)
            return self.layer_norm(out).relu()

    class FiBiNET(Base):
        def build(self, feature_map, options):
            m = feature_map.num_fields
            self.lr_layer = layers.LogisticRegression(feature_map, use_bias=False)
            self.senet_layer = layers.SqueezeExcitation(m, 3)
            self.bilinear_interaction1 = layers.BilinearInteraction(m, DIM, options.get("bilinear_type", "field_interaction"))
            self.bilinear_interaction2 = layers.BilinearInteraction(m, DIM, options.get("bilinear_type", "field_interaction"))
            self.dnn = mlp(m * (m - 1) * DIM, options)

        def logit(self, x, e):
            p, q = self.bilinear_interaction1(e), self.bilinear_interaction2(self.senet_layer(e))
            return self.lr_layer(x) + self.dnn(torch.cat([p, q], dim=1).flatten(start_dim=1))

    class PNN(Base):
        def build(self, feature_map, options):
            m = feature_map.num_fields
            self.inner_product_layer = layers.InnerProductInteraction(m, output="inner_product")
            self.dnn = mlp(m * (m - 1) // 2 + self.width, options)

        def logit(self, x, e):
            return self.dnn(torch.cat([e.flatten(start_dim=1), self.inner_product_layer(e)], dim=1))

    class AFM(Base):
        def build(self, feature_map, options):
            self.product_layer = layers.InnerProductInteraction(feature_map.num_fields, output="elementwise_product")
            self.lr_layer = layers.LogisticRegression(feature_map, use_bias=True)
            self.attention = nn.Sequential(nn.Linear(DIM, 5), nn.ReLU(), nn.Linear(5, 1, bias=False), nn.Softmax(dim=1))
            self.weight_p = nn.Linear(DIM, 1, bias=False)

        def logit(self, x, e):
            products = self.product_layer(e)
            return self.lr_layer(x) + self.weight_p((self.attention(products) * products).sum(dim=1))

    class NFM(Base):
        def build(self, feature_map, options):
            self.lr_layer = layers.LogisticRegression(feature_map, use_bias=False)
            self.bi_pooling_layer = layers.InnerProductInteraction(feature_map.num_fields, output="bi_interaction")
            self.dnn = mlp(DIM, options)

        def logit(self, x, e):
            return self.lr_layer(x) + self.dnn(self.bi_pooling_layer(e))

    class MaskBlock(nn.Module):
        def __init__(self, width, hidden, output):
            super().__init__()
            self.mask_layer = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
            self.hidden_layer = nn.Sequential(nn.Linear(hidden, output, bias=False), nn.LayerNorm(output), nn.ReLU())

        def forward(self, emb, hidden):
            return self.hidden_layer(self.mask_layer(emb) * hidden)

    class MaskNet(Base):
        def build(self, feature_map, options):
            self.emb_norm = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(feature_map.num_fields))
            self.mask_blocks = nn.ModuleList([MaskBlock(self.width, self.width, 8), MaskBlock(self.width, 8, 6)])
            self.fc = nn.Linear(6, 1)

        def logit(self, x, e):
            parts = e.chunk(len(self.emb_norm), dim=1)
            hidden = torch.cat([n(p) for n, p in zip(self.emb_norm, parts)], dim=1).flatten(start_dim=1)
            for block in self.mask_blocks:
                hidden = block(e.flatten(start_dim=1), hidden)
            return self.fc(hidden)

    class FinalMLP(Base):
        def build(self, feature_map, options):
            self.mlp1, self.mlp2 = mlp(self.width, options, output=None), mlp(self.width, options, output=None)
            # The first gate reads a constant, the second the embedding of a context field from a table of its own.
            self.fs1_ctx_bias = nn.Parameter(torch.zeros(1, DIM))
            self.fs2_ctx_emb = layers.FeatureEmbedding(feature_map, DIM, required_feature_columns=["item"])
            self.fs1_gate, self.fs2_gate = [
                layers.MLP_Block(input_dim=DIM, output_dim=self.width, hidden_units=[5], output_activation="Sigmoid") for _ in range(2)]
            self.heads, last = 2, options.get("hidden_units", [8, 6])[-1]
            self.w_x, self.w_y = nn.Linear(last, 1), nn.Linear(last, 1)
            self.w_xy = nn.Parameter(torch.zeros(self.heads * (last // self.heads) ** 2, 1))

        def logit(self, x, e):
            flat = e.flatten(start_dim=1)
            a = self.mlp1(flat * self.fs1_gate(self.fs1_ctx_bias.repeat(flat.size(0), 1)) * 2)
            b = self.mlp2(flat * self.fs2_gate(self.fs2_ctx_emb(x).flatten(start_dim=1)) * 2)
            width = a.shape[1] // self.heads
            left = a.view(-1, self.heads, 1, width)
            product = torch.matmul(torch.matmul(left, self.w_xy.view(self.heads, width, width)), b.view(-1, self.heads, width, 1))
            return self.w_x(a) + self.w_y(b) + product.sum(dim=(1, 2))

    return {c.__name__: c for c in (FM, DeepFM, WideDeep, DCN, DCNv2, xDeepFM, AutoInt, FiBiNET, PNN, AFM, NFM, MaskNet, FinalMLP)}


# ---- DeepCTR-Torch.


def deepctr_columns(fields=FIELDS, dense=(), dim=DIM):
    from deepctr_torch.inputs import DenseFeat, SparseFeat

    return [SparseFeat(name, size, dim) for name, size in fields] + [DenseFeat(name) for name in dense]


def deepctr(kind, columns, **options):
    """Returns a model of deepctr_torch.models. Models with tasks and PNN have no linear part."""
    with quiet():
        import requests

        requests.get = lambda *a, **k: exec("raise OSError('offline')")  # the package asks for its newest version
        import deepctr_torch.models as models
        import deepctr_torch.models.xdeepfm as xdeepfm

        build = getattr(models, kind, None) or getattr(xdeepfm, kind)
        if kind in ("PNN", "MMOE"):
            return build(columns, **options)
        if kind == "DIN":
            return build(columns, ["item", "category"], **options)
        return build(columns, columns, **options)


# ---- torch-rechub.


def rechub(kind, fields=FIELDS, dense=(), dim=DIM, **options):
    """Returns a model and its features."""
    with quiet():
        import torch_rechub.models.multi_task as multi_task
        import torch_rechub.models.ranking as ranking
        from torch_rechub.basic.features import DenseFeature, SparseFeature

        sparse = [SparseFeature(name, vocab_size=size, embed_dim=dim) for name, size in fields]
        numbers = [DenseFeature(name) for name in dense]
        build = getattr(ranking, kind, None) or getattr(multi_task, kind)
        params = dict(dims=[8, 6], activation="relu", dropout=0.1)
        if kind == "DeepFM":
            return build(sparse + numbers, sparse, mlp_params=params, **options), sparse + numbers
        if kind == "WideDeep":
            return build(sparse, sparse + numbers, mlp_params=params, **options), sparse + numbers
        if kind == "AutoInt":
            return build(sparse, numbers, mlp_params=params, **options), sparse + numbers
        if kind == "MMOE":
            return build(sparse + numbers, **options), sparse + numbers
        return build(sparse + numbers, mlp_params=params, **options), sparse + numbers


# ---- RecBole.


def recbole(kind, folder, **options):
    """Returns a model, its trainer, and the names and sizes of its token fields, from atomic files in folder."""
    with quiet():
        # RecBole 1.2.1 uses names that NumPy 2 no longer has.
        np.float_, np.complex_, np.unicode_ = np.float64, np.complex128, np.str_

        from recbole.config import Config
        from recbole.data import create_dataset
        from recbole.utils import get_model, get_trainer, init_seed

        r = np.random.default_rng(5)
        data = pathlib.Path(folder) / "dataset" / "tiny"
        data.mkdir(parents=True, exist_ok=True)
        with open(data / "tiny.inter", "w") as f:
            f.write("user_id:token\titem_id:token\tcity:token\tdevice:token\tlabel:float\n")
            for i in range(60):
                user, item = i % 6, r.integers(0, 10) if i > 10 else i % 10
                f.write(f"u{user}\ti{item}\tc{i % 3 if i < 3 else r.integers(0, 3)}\td{i % 2}\t{r.integers(0, 2)}.0\n")
        before, argv = os.getcwd(), sys.argv
        os.chdir(folder)
        sys.argv = sys.argv[:1]
        try:
            config = Config(model=kind, dataset="tiny", config_dict={
                "data_path": "dataset", "checkpoint_dir": "saved", "use_gpu": False, "gpu_id": "", "embedding_size": DIM,
                "mlp_hidden_size": [8, 6], "dropout_prob": 0.1, "epochs": 1, "seed": 7, "reproducibility": True, "show_progress": False,
                "load_col": {"inter": ["user_id", "item_id", "city", "device", "label"]}, "eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}, "mode": "labeled", "order": "RO", "group_by": "none"},
                "metrics": ["AUC"], "valid_metric": "AUC", "train_neg_sample_args": None, **options})
            init_seed(7, True)
            dataset = create_dataset(config)
            model = get_model(kind)(config, dataset)
            trainer = get_trainer(config["MODEL_TYPE"], kind)(config, model)
        finally:
            os.chdir(before)
            sys.argv = argv
        fields = zip(model.token_field_names, [int(n) for n in model.token_field_dims]) if hasattr(model, "token_field_names") else ()
        return model, trainer, list(fields)


def versions(*packages):
    """The versions of packages, as one line."""
    import importlib.metadata

    return ", ".join(f"{p} {importlib.metadata.version(p)}" for p in packages)
