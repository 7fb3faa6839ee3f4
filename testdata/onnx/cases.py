"""The models of this folder and how each is exported."""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from packages import *  # noqa: E402,F403


class Column:
    """A field or a dense input: column of the input named input."""

    def __init__(self, name, input, column, rows=0):
        self.name, self.input, self.column, self.rows = name, input, column, rows


class Net:
    """A model with the inputs of its exported graph.

    module takes the inputs as positional arguments. inputs lists (name, dtype, columns), where columns 0 means shape
    [batch]. fixed has the values of inputs that are neither a field nor a dense input, by name.
    """

    keras = False

    def __init__(self, module, inputs, fields, dense=(), fixed=None, package="", output="output"):
        self.module, self.inputs, self.fields, self.dense, self.package, self.output = module, inputs, fields, list(dense), package, output
        self.fixed = fixed or {}

    def rows(self, seed):
        """The inputs by name, each [rows, columns]."""
        ids, values = rows(seed, [f.rows for f in self.fields], len(self.dense))
        out = {name: np.zeros((ROWS, max(columns, 1)), np.float32 if dtype is torch.float32 else np.int64) for name, dtype, columns in self.inputs}
        for i, f in enumerate(self.fields):
            out[f.input][:, f.column] = ids[:, i]
        for i, f in enumerate(self.dense):
            out[f.input][:, f.column] = values[:, i]
        for name, value in self.fixed.items():
            out[name][:] = value
        return out


class ByName(nn.Module):
    """Calls a model that takes a dict, with one positional argument for each name."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *columns):
        y = self.model(dict(zip(self.names, columns)))
        return y["y_pred"] if isinstance(y, dict) else y


class First(nn.Module):
    """The first of several outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *x):
        return self.model(*x)[:, 0]


def columns_of(fields, dense=()):
    """One input of shape [batch] for each field and each dense input."""
    inputs = [(name, torch.int64, 0) for name, _ in fields] + [(name, torch.float32, 0) for name in dense]
    return inputs, [Column(name, name, 0, size) for name, size in fields], [Column(name, name, 0) for name in dense]


def of_fuxictr(kind, numeric=(), **options):
    def build():
        model = fuxictr(kind, fuxictr_feature_map(numeric=numeric), **options)
        inputs, fields, dense = columns_of(FIELDS, numeric)
        return Net(ByName(model, [i[0] for i in inputs]), inputs, fields, dense, package="fuxictr")

    return build


def of_deepctr(kind, dense=(), fields=FIELDS, **options):
    def build():
        model = deepctr(kind, deepctr_columns(fields, dense), **options)
        if kind == "MMOE":
            model = First(model)
        all = [Column(name, "x", i, size) for i, (name, size) in enumerate(fields)]
        return Net(model, [("x", torch.float32, len(fields) + len(dense))], all, [Column(name, "x", len(fields) + i) for i, name in enumerate(dense)], package="deepctr-torch")

    return build


def of_rechub(kind, dense=(), **options):
    def build():
        model, _ = rechub(kind, dense=dense, **options)
        inputs, fields, numbers = columns_of(FIELDS, dense)
        module = ByName(model, [i[0] for i in inputs])
        return Net(First(module) if kind == "MMOE" else module, inputs, fields, numbers, package="torch-rechub")

    return build


def of_recbole(kind, **options):
    def build():
        model, _, fields = recbole(kind, tempfile.mkdtemp(), **options)
        inputs, all, _ = columns_of(fields)
        return Net(ByName(model, [i[0] for i in inputs]), inputs, all, package="recbole")

    return build


def of_recbole_ncf():
    model, _, _ = recbole("NeuMF", tempfile.mkdtemp(), mf_embedding_size=8, mlp_embedding_size=4, mf_train=True, mlp_train=True, use_pretrain=False)
    inputs, fields, _ = columns_of([("user", model.n_users), ("item", model.n_items)])
    return Net(model, inputs, fields, package="recbole")


def of_torchfm(build):
    def made():
        import types

        import torchfm.model.afi as afi
        import torchfm.model.dfm as dfm
        import torchfm.model.fm as fm
        import torchfm.model.xdfm as xdfm

        modules = types.SimpleNamespace(afi=afi, dfm=dfm, fm=fm, xdfm=xdfm)
        fields = [Column(name, "x", i, size) for i, (name, size) in enumerate(FIELDS)]
        return Net(build(modules), [("x", torch.int64, len(FIELDS))], fields, package="torchfm")

    return made


class DLRM(nn.Module):
    """Bags of one id, a bottom MLP for the dense inputs, dot products of all pairs, and a top MLP.

    offsets: the bags' offsets are an input, as in Meta's reference code. Without it, each column of ids is a batch of
    bags with one id.
    """

    def __init__(self, offsets=False):
        super().__init__()
        self.offsets = offsets
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(size, DIM, mode="sum") for size in SIZES)
        self.bot_l = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, DIM), nn.ReLU())
        m = len(SIZES) + 1
        self.top_l = nn.Sequential(nn.Linear(DIM + m * (m - 1) // 2, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())

    def forward(self, dense, *rest):
        x = self.bot_l(dense)
        if self.offsets:
            bags = [e(rest[1 + k], rest[0][k]) for k, e in enumerate(self.emb_l)]
        else:
            bags = [e(rest[0][:, k : k + 1]) for k, e in enumerate(self.emb_l)]
        t = torch.cat([x] + bags, dim=1).view(x.shape[0], -1, DIM)
        z = torch.bmm(t, t.transpose(1, 2))
        m = len(SIZES) + 1
        rows = torch.tensor([i for i in range(m) for j in range(i)])
        columns = torch.tensor([j for i in range(m) for j in range(i)])
        return self.top_l(torch.cat([x, z[:, rows, columns]], dim=1))


def of_dlrm():
    fields = [Column(name, "ids", i, size) for i, (name, size) in enumerate(FIELDS)]
    dense = [Column(name, "dense", i) for i, name in enumerate(DENSE)]
    return Net(DLRM(), [("dense", torch.float32, 2), ("ids", torch.int64, len(FIELDS))], fields, dense)


class OffsetsFirst(DLRM):
    def __init__(self):
        super().__init__(offsets=True)


def of_dlrm_offsets():
    """The inputs of Meta's reference code, for a batch of one row: offsets [tables, 1], and ids [1] for each table."""
    names = [f"indices_{k}" for k in range(len(SIZES))]
    inputs = [("dense_x", torch.float32, 2), ("offsets", torch.int64, -len(SIZES))] + [(n, torch.int64, 0) for n in names]
    fields = [Column(name, names[i], 0, size) for i, (name, size) in enumerate(FIELDS)]
    dense = [Column(name, "dense_x", i) for i, name in enumerate(DENSE)]
    return Net(OffsetsFirst(), inputs, fields, dense, fixed={"offsets": 0})


class NCF(nn.Module):
    """Neural collaborative filtering with tables of 8 and of 4 columns for the same two fields."""

    def __init__(self):
        super().__init__()
        self.mf_user, self.mf_item = nn.Embedding(7, 8), nn.Embedding(11, 8)
        self.mlp_user, self.mlp_item = nn.Embedding(7, 4), nn.Embedding(11, 4)
        self.mlp = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 6), nn.ReLU())
        self.out = nn.Linear(14, 1)

    def forward(self, ids):
        user, item = ids[:, 0], ids[:, 1]
        mf = self.mf_user(user) * self.mf_item(item)
        mlp = self.mlp(torch.cat([self.mlp_user(user), self.mlp_item(item)], dim=1))
        return self.out(torch.cat([mf, mlp], dim=1)).squeeze(-1)


def of_ncf():
    return Net(NCF(), [("ids", torch.int64, 2)], [Column("user", "ids", 0, 7), Column("item", "ids", 1, 11)])


class TwoClasses(nn.Module):
    """A home-made model: per-field dims, GELU, LayerNorm, a clamp, and probabilities of two classes by softmax."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, dim) for size, dim in zip(SIZES, (6, 8, 3, 2, 2)))
        self.norm = nn.LayerNorm(21 + 2)
        self.body = nn.Sequential(nn.Linear(23, 10), nn.GELU(), nn.BatchNorm1d(10), nn.Linear(10, 6), nn.SiLU(), nn.Linear(6, 2))

    def forward(self, ids, dense):
        x = torch.cat([e(ids[:, i]) for i, e in enumerate(self.embeddings)] + [torch.log1p(dense.clamp(min=0))], dim=1)
        return torch.softmax(self.body(self.norm(x)), dim=1)


def of_two_classes():
    fields = [Column(name, "ids", i, size) for i, (name, size) in enumerate(FIELDS)]
    return Net(TwoClasses(), [("ids", torch.int64, 5), ("dense", torch.float32, 2)], fields, [Column(n, "dense", i) for i, n in enumerate(DENSE)])


class KerasNet(Net):
    """A Keras model on PyTorch. Its module gives the logit, and model the probability."""

    keras = True

    def __init__(self):
        import keras
        from keras import layers

        columns = [keras.Input((1,), dtype="int32", name=name) for name in NAMES]
        numbers = keras.Input((len(DENSE),), dtype="float32", name="numbers")
        first = [layers.Flatten()(layers.Embedding(size, 1)(c)) for c, size in zip(columns, SIZES)]
        embeddings = [layers.Flatten()(layers.Embedding(size, dim)(c)) for c, size, dim in zip(columns, SIZES, (4, 6, 3, 2, 2))]
        x = layers.Concatenate()(embeddings + [numbers])
        x = layers.Dropout(0.1)(layers.ReLU()(layers.BatchNormalization()(layers.Dense(8)(x))))
        x = layers.Dense(6, activation="gelu")(x)
        logit = layers.Add()([layers.Dense(1)(x)] + first)
        self.model = keras.Model(columns + [numbers], layers.Activation("sigmoid")(logit))
        super().__init__(keras.Model(columns + [numbers], logit), [(name, torch.int32, 1) for name in NAMES] + [("numbers", torch.float32, len(DENSE))],
                         [Column(name, name, 0, size) for name, size in FIELDS], [Column(name, "numbers", i) for i, name in enumerate(DENSE)], package="keras")
        r = np.random.default_rng(11)
        for w in self.model.weights:
            value = r.normal(size=w.shape) * (0.5 if len(w.shape) > 1 else 0.2)
            if "variance" in w.path or "gamma" in w.path:
                value = r.uniform(0.6, 1.6, size=w.shape)
            w.assign(value.astype(np.float32))

    def export(self, path, batch):
        import keras

        self.model([np.zeros((1, max(c, 1)), np.float32 if t is torch.float32 else np.int32) for _, t, c in self.inputs])
        static = [[keras.InputSpec(shape=(batch, *t.shape[1:]), dtype=t.dtype, name=t.name) for t in self.model.inputs]]
        self.model.export(str(path), format="onnx", verbose=False, input_signature=static if batch else None)


class Rows(nn.Module):
    """Does what a TorchRec EmbeddingBagCollection does if every bag has one id. Takes ids [rows, features]."""

    def __init__(self, collection):
        super().__init__()
        self.collection = collection
        self.features = [(f, c.name) for c in collection.embedding_bag_configs() for f in c.feature_names]

    def embedding_bag_configs(self):
        return self.collection.embedding_bag_configs()

    def forward(self, ids):
        from torchrec import KeyedTensor

        values = [nn.functional.embedding(ids[:, i], self.collection.embedding_bags[table].weight) for i, (_, table) in enumerate(self.features)]
        return KeyedTensor([f for f, _ in self.features], [v.shape[1] for v in values], torch.cat(values, dim=1))


def of_torchrec():
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.models.dlrm import DLRM as TorchRecDLRM

    tables = [EmbeddingBagConfig(name="t_" + name, embedding_dim=DIM, num_embeddings=size, feature_names=[name]) for name, size in FIELDS]
    model = TorchRecDLRM(EmbeddingBagCollection(tables=tables), 2, [6, DIM], [8, 1])
    model.sparse_arch.embedding_bag_collection = Rows(model.sparse_arch.embedding_bag_collection)
    fields = [Column(name, "ids", i, size) for i, (name, size) in enumerate(FIELDS)]
    return Net(model, [("dense", torch.float32, 2), ("ids", torch.int64, len(FIELDS))], fields, [Column(n, "dense", i) for i, n in enumerate(DENSE)], package="torchrec")


# name: (build, opset of the legacy exporter). Each is exported by both exporters, unless the name is in ONLY.
MODELS = {
    "fuxictr-fm": (of_fuxictr("FM"), 17),
    "fuxictr-deepfm": (of_fuxictr("DeepFM", batch_norm=True, net_dropout=0.1), 17),
    "fuxictr-deepfm-numeric": (of_fuxictr("DeepFM", numeric=DENSE), 17),
    "fuxictr-widedeep": (of_fuxictr("WideDeep"), 13),
    "fuxictr-dcn": (of_fuxictr("DCN"), 17),
    "fuxictr-dcnv2-parallel": (of_fuxictr("DCNv2", batch_norm=True), 20),
    "fuxictr-dcnv2-stacked": (of_fuxictr("DCNv2", model_structure="stacked"), 17),
    "fuxictr-dcnv2-mixture": (of_fuxictr("DCNv2", use_low_rank_mixture=True), 17),
    "fuxictr-xdeepfm": (of_fuxictr("xDeepFM"), 17),
    "fuxictr-autoint": (of_fuxictr("AutoInt"), 17),
    "fuxictr-fibinet": (of_fuxictr("FiBiNET"), 17),
    "fuxictr-pnn": (of_fuxictr("PNN"), 17),
    "fuxictr-afm": (of_fuxictr("AFM"), 17),
    "fuxictr-nfm": (of_fuxictr("NFM"), 17),
    "fuxictr-masknet": (of_fuxictr("MaskNet"), 14),
    "fuxictr-finalmlp": (of_fuxictr("FinalMLP"), 17),
    "deepctr-torch-deepfm": (of_deepctr("DeepFM", dense=DENSE, dnn_hidden_units=(8, 6), dnn_use_bn=True), 11),
    "deepctr-torch-fm": (of_deepctr("DeepFM", dnn_hidden_units=()), 9),
    "deepctr-torch-wdl": (of_deepctr("WDL", dense=DENSE, dnn_hidden_units=(8, 6)), 12),
    "deepctr-torch-dcn": (of_deepctr("DCN", dense=DENSE, dnn_hidden_units=(8, 6), cross_parameterization="vector"), 17),
    "deepctr-torch-dcn-matrix": (of_deepctr("DCN", dnn_hidden_units=(8, 6), cross_parameterization="matrix"), 17),
    "deepctr-torch-dcnmix": (of_deepctr("DCNMix", dense=DENSE, dnn_hidden_units=(8, 6), low_rank=3, num_experts=2), 17),
    "deepctr-torch-xdeepfm": (of_deepctr("xDeepFM", dense=DENSE, dnn_hidden_units=(8, 6), cin_layer_size=(6, 4)), 17),
    "deepctr-torch-autoint": (of_deepctr("AutoInt", dense=DENSE, dnn_hidden_units=(8, 6), att_layer_num=2, att_head_num=2), 17),
    "deepctr-torch-fibinet": (of_deepctr("FiBiNET", dense=DENSE, dnn_hidden_units=(8, 6), bilinear_type="interaction"), 17),
    "deepctr-torch-pnn": (of_deepctr("PNN", dense=DENSE, dnn_hidden_units=(8, 6), use_outter=True), 17),
    "deepctr-torch-afm": (of_deepctr("AFM"), 17),
    "deepctr-torch-nfm": (of_deepctr("NFM", dense=DENSE, dnn_hidden_units=(8, 6)), 17),
    "deepctr-torch-ifm": (of_deepctr("IFM", dnn_hidden_units=(8, 6)), 17),
    "deepctr-torch-mmoe": (of_deepctr("MMOE", dense=DENSE, num_experts=3, expert_dnn_hidden_units=(8, 6), gate_dnn_hidden_units=(4,), tower_dnn_hidden_units=(4,), task_types=("binary", "binary"), task_names=("click", "buy")), 17),
    "torch-rechub-deepfm": (of_rechub("DeepFM", dense=DENSE), 14),
    "torch-rechub-widedeep": (of_rechub("WideDeep", dense=DENSE), 14),
    "torch-rechub-dcn": (of_rechub("DCN", n_cross_layers=2), 14),
    "torch-rechub-dcnv2": (of_rechub("DCNv2", n_cross_layers=2, use_low_rank_mixture=False), 14),
    "torch-rechub-autoint": (of_rechub("AutoInt", dense=DENSE, num_layers=2, num_heads=2), 14),
    "torch-rechub-fibinet": (of_rechub("FiBiNet"), 14),
    "torch-rechub-mmoe": (of_rechub("MMOE", dense=DENSE, task_types=["classification"] * 2, n_expert=3, expert_params={"dims": [8]}, tower_params_list=[{"dims": [4]}] * 2), 14),
    "recbole-fm": (of_recbole("FM"), 17),
    "recbole-deepfm": (of_recbole("DeepFM"), 17),
    "recbole-dcnv2": (of_recbole("DCNV2", mixed=False, structure="parallel", cross_layer_num=2, reg_weight=1.0), 17),
    "recbole-xdeepfm": (of_recbole("xDeepFM", cin_layer_size=[6, 4], direct=False, reg_weight=1.0), 17),
    "recbole-autoint": (of_recbole("AutoInt", attention_size=6, n_layers=2, num_heads=2, dropout_probs=[0.1, 0.1, 0.1], has_residual=True), 17),
    "recbole-pnn": (of_recbole("PNN", use_inner=True, use_outer=True, reg_weight=0.0), 17),
    "recbole-afm": (of_recbole("AFM", attention_size=5, reg_weight=0.0), 17),
    "recbole-nfm": (of_recbole("NFM"), 17),
    "recbole-ncf": (of_recbole_ncf, 17),
    "pytorch-fm-fm": (of_torchfm(lambda m: m.fm.FactorizationMachineModel(SIZES, DIM)), 17),
    "pytorch-fm-deepfm": (of_torchfm(lambda m: m.dfm.DeepFactorizationMachineModel(SIZES, DIM, (8, 6), 0.2)), 17),
    "pytorch-fm-autoint": (of_torchfm(lambda m: m.afi.AutomaticFeatureInteractionModel(SIZES, DIM, 6, 2, 2, (8, 6), (0.1, 0.1))), 17),
    "pytorch-fm-xdeepfm": (of_torchfm(lambda m: m.xdfm.ExtremeDeepFactorizationMachineModel(SIZES, DIM, (8, 6), 0.2, (6, 4))), 17),
    "dlrm": (of_dlrm, 17),
    "dlrm-offsets": (of_dlrm_offsets, 17),
    "torchrec-dlrm": (of_torchrec, 17),
    "ncf": (of_ncf, 17),
    "two-classes": (of_two_classes, 17),
    "keras": (KerasNet, 18),
}
