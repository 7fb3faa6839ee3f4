"""The models of this folder and how each is exported."""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from packages import *  # noqa: E402,F403


class Column:
    """A field or a dense input: column of the input named input.

    length: the number of columns of a field that is a list, or 0. Positions without a value have id 0.
    least: the least number of values of a list.
    counts: the name of a list, if this dense input is the number of its values.
    """

    def __init__(self, name, input, column, rows=0, length=0, least=0, counts=""):
        self.name, self.input, self.column, self.rows, self.length, self.least, self.counts = name, input, column, rows, length, least, counts

    def columns(self):
        return slice(self.column, self.column + max(1, self.length))

    def ids(self, values):
        """The ids [rows, positions] for the inputs by name."""
        return values[self.input][:, self.columns()]


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
        r = np.random.default_rng(seed + 1)
        lists, lengths = {}, {}
        for f in self.fields:
            if f.length:  # the first two lists have the fewest and the most values
                lists[f.name] = r.integers(1, f.rows, (ROWS, f.length))
                lengths[f.name] = r.integers(1, f.length + 1, ROWS)
                lengths[f.name][:2] = f.least, f.length
                lists[f.name][np.arange(f.length) >= lengths[f.name][:, None]] = 0
        out = {name: np.zeros((ROWS, max(columns, 1)), np.float32 if dtype is torch.float32 else np.int64) for name, dtype, columns in self.inputs}
        for i, f in enumerate(self.fields):
            out[f.input][:, f.columns()] = lists[f.name] if f.length else ids[:, i : i + 1]
        for i, f in enumerate(self.dense):
            out[f.input][:, f.column] = lengths[f.counts] if f.counts else values[:, i]
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


# Histories of the fields item and category, and the tags of an item, as lists of L ids.
L = 4
HISTORY = [("hist_item", "item", 11), ("hist_category", "category", 5)]
TAGS = [("tags", 6), ("words", 8), ("stores", 5)]


def columns_with_lists(lists, fields=FIELDS, dense=()):
    """columns_of, and an input [batch, L] for each list."""
    inputs, all, numbers = columns_of(fields, dense)
    inputs[len(fields) : len(fields)] = [(name, torch.int64, L) for name, _ in lists]
    return inputs, all + [Column(name, name, 0, size, L) for name, size in lists], numbers


def of_deepctr_din(**options):
    """DIN: the histories read the tables of the target, and their number of values is a column of the matrix."""

    def build():
        from deepctr_torch.inputs import SparseFeat, VarLenSparseFeat

        history = [VarLenSparseFeat(SparseFeat(name, size, DIM, embedding_name=target), maxlen=L, length_name="length") for name, target, size in HISTORY]
        model = deepctr("DIN", deepctr_columns(FIELDS, DENSE) + history, **options)
        at = {name: a for name, (a, _) in model.feature_index.items()}
        fields = [Column(name, "x", at[name], size) for name, size in FIELDS]
        fields += [Column(name, "x", at[name], size, L) for name, _, size in HISTORY]
        dense = [Column(name, "x", at[name]) for name in DENSE] + [Column("length", "x", at["length"], counts="hist_item")]
        dense.sort(key=lambda c: c.column)
        fields.sort(key=lambda c: c.column)
        return Net(model, [("x", torch.float32, max(b for _, b in model.feature_index.values()))], fields, dense, package="deepctr-torch")

    return build


def of_deepctr_bags():
    """DeepFM with lists: their mean or sum, also of the first-order weights. One has its number of values as a column."""
    from deepctr_torch.inputs import SparseFeat, VarLenSparseFeat

    lists = [VarLenSparseFeat(SparseFeat(name, size, DIM), maxlen=L, combiner=combiner, length_name="length" if name == "stores" else None)
             for (name, size), combiner in zip(TAGS, ("mean", "sum", "mean"))]
    model = deepctr("DeepFM", deepctr_columns(FIELDS, DENSE) + lists, dnn_hidden_units=(8, 6))
    at = {name: a for name, (a, _) in model.feature_index.items()}
    fields = [Column(name, "x", at[name], size) for name, size in FIELDS] + [Column(name, "x", at[name], size, L) for name, size in TAGS]
    dense = [Column(name, "x", at[name]) for name in DENSE] + [Column("length", "x", at["length"], counts="stores")]
    dense.sort(key=lambda c: c.column)
    fields.sort(key=lambda c: c.column)
    return Net(model, [("x", torch.float32, max(b for _, b in model.feature_index.values()))], fields, dense, package="deepctr-torch")


def rechub_features(pooling):
    from torch_rechub.basic.features import SequenceFeature, SparseFeature

    sparse = {name: SparseFeature(name, vocab_size=size, embed_dim=DIM) for name, size in FIELDS}
    return sparse, [SequenceFeature(name, vocab_size=size, embed_dim=DIM, pooling=pooling, shared_with=target, padding_idx=0) for name, target, size in HISTORY]


def of_rechub_din():
    with quiet():
        from torch_rechub.models.ranking import DIN

        sparse, history = rechub_features("concat")
        target = [sparse["item"], sparse["category"]]
        model = DIN([sparse["user"], sparse["city"]], history, target, {"dims": [8, 6]}, {"dims": [6]})
    inputs, fields, _ = columns_with_lists([(name, size) for name, _, size in HISTORY], FIELDS[:4])
    return Net(ByName(model, [i[0] for i in inputs]), inputs, fields, package="torch-rechub")


class Scored(nn.Module):
    """A model of two towers as a click model: the logit is the product of the towers."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        user = self.model.user_tower(x)
        item = nn.functional.normalize(self.model.embedding(x, self.model.item_features), p=2, dim=2)
        return (user * item).sum(dim=2) / self.model.temperature


def of_rechub_youtube():
    """YoutubeDNN: the mean of the history of items, and the cosine to the item, which reads the same table."""
    with quiet():
        from torch_rechub.models.matching import YoutubeDNN

        sparse, history = rechub_features("mean")
        model = YoutubeDNN([sparse["user"], sparse["city"], history[0]], [sparse["item"]], [], {"dims": [8, DIM]}, temperature=0.5)
    inputs, fields, _ = columns_with_lists([HISTORY[0][::2]], [FIELDS[i] for i in (0, 1, 3)])
    fields[-1].least = 1  # the dynamo exporter omits the 1e-16 that the package adds to the number of values
    return Net(ByName(Scored(model), [i[0] for i in inputs]), inputs, fields, package="torch-rechub")


def fuxictr_with_lists(encoder=None):
    m = fuxictr_feature_map(padding=0)
    for name, target, size in HISTORY:
        m.features[name] = {"source": "", "type": "sequence", "vocab_size": size, "padding_idx": 0, "max_len": L, "share_embedding": target}
        if encoder:
            m.features[name]["feature_encoder"] = encoder
    m.num_fields = m.get_num_fields()
    m.set_column_index()
    return m


def of_fuxictr_din():
    """DIN as the model zoo composes it, with a softmax over the history."""

    def build():
        from fuxictr.pytorch import layers

        class DIN(fuxictr_classes()["FM"]):
            def build(self, feature_map, options):
                self.attention = nn.ModuleList(layers.DIN_Attention(DIM, [6], use_softmax=True) for _ in HISTORY)
                self.dnn = layers.MLP_Block(input_dim=DIM * feature_map.num_fields, output_dim=1, hidden_units=[8, 6])

            def forward(self, inputs):
                x = self.get_inputs(inputs)
                e = self.embedding_layer.embedding_layer(x)
                for (name, target, _), attention in zip(HISTORY, self.attention):
                    e[name] = attention(e[target], e[name], x[name].long() != 0)
                return {"y_pred": self.output_activation(self.dnn(torch.cat(list(e.values()), dim=-1)))}

        with quiet():
            model = DIN(fuxictr_with_lists(), **FUXI)
        inputs, fields, _ = columns_with_lists([(name, size) for name, _, size in HISTORY])
        return Net(ByName(model, [i[0] for i in inputs]), inputs, fields, package="fuxictr")

    return build


def of_fuxictr_sum():
    """DeepFM whose histories are summed, also in the first order."""
    model = fuxictr("DeepFM", fuxictr_with_lists("layers.MaskedSumPooling()"))
    inputs, fields, _ = columns_with_lists([(name, size) for name, _, size in HISTORY])
    return Net(ByName(model, [i[0] for i in inputs]), inputs, fields, package="fuxictr")


class Bags(nn.Module):
    """EmbeddingBags of lists, with sums and means, and an embedding whose rows are masked by hand."""

    def __init__(self):
        super().__init__()
        self.sum, self.mean = nn.EmbeddingBag(6, DIM, mode="sum"), nn.EmbeddingBag(8, DIM, mode="mean")
        self.rows = nn.Embedding(5, DIM)
        self.mlp = nn.Sequential(nn.Linear(3 * DIM, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, ids):
        best = self.rows(ids[:, 2 * L :]).masked_fill((ids[:, 2 * L :] == 0).unsqueeze(2), -1e9).amax(dim=1).clamp(min=-9)
        return self.mlp(torch.cat([self.sum(ids[:, :L]), self.mean(ids[:, L : 2 * L]), best], dim=1)).squeeze(-1)


def of_bags():
    return Net(Bags(), [("ids", torch.int64, 3 * L)], [Column(name, "ids", i * L, size, L) for i, (name, size) in enumerate(TAGS)])


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
    "deepctr-torch-din": (of_deepctr_din(dnn_hidden_units=(8, 6), att_hidden_size=(6, 4), att_weight_normalization=True), 17),
    "deepctr-torch-bags": (of_deepctr_bags, 17),
    "torch-rechub-din": (of_rechub_din, 17),
    "torch-rechub-youtube": (of_rechub_youtube, 17),
    "fuxictr-din": (of_fuxictr_din(), 17),
    "fuxictr-sum": (of_fuxictr_sum, 17),
    "embedding-bags": (of_bags, 17),
    "keras": (KerasNet, 18),
}

import masked  # noqa: E402,F401  adds its models to MODELS
from frameworks import MODELS as FRAMEWORKS  # noqa: E402
from lookups import MODELS as LOOKUPS  # noqa: E402
from sequences import MODELS as SEQUENCES  # noqa: E402

MODELS |= LOOKUPS | SEQUENCES | FRAMEWORKS
