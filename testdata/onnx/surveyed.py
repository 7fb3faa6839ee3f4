"""The models that survey.py exports: all models of the packages, and structures of papers in structures.py."""

from cases import *  # noqa: F403
from cases import HISTORY, L, ByName, Column, Net, Scored, columns_of, columns_with_lists, rechub_features

MODELS = {}


def model(package, name):
    def add(build):
        MODELS[f"{package}/{name}"] = build
        return build

    return add


# ---- torch-rechub: ranking and tasks.

HISTORIES = [(name, size) for name, _, size in HISTORY]
CTR = {"dims": [8, 6], "dropout": 0.1}


class Full(Net):
    """A net whose lists have no pads if their least is L. Net gives only the first list so many."""

    def rows(self, seed):
        out = super().rows(seed)
        r = np.random.default_rng(seed + 2)
        for f in self.fields:
            if f.length and f.least == f.length:
                out[f.input][:, f.columns()] = r.integers(1, f.rows, (ROWS, f.length))
        for f, (base, size) in zip(self.fields, getattr(self, "ranges", ())):  # ids of all fields in one range
            out[f.input][:, f.column] = base + out[f.input][:, f.column] % size
        return out


def dict_net(module, inputs, fields, dense=(), package="torch-rechub"):
    return Full(ByName(module, [i[0] for i in inputs]), inputs, fields, dense, package=package)


class Pick(nn.Module):
    """One task of several, or the first of a tuple."""

    def __init__(self, model, index=0):
        super().__init__()
        self.model, self.index = model, index

    def forward(self, x):
        y = self.model(x)
        if isinstance(y, tuple):
            return y[self.index]
        return y if y.dim() == 1 else y[:, self.index]


def rechub_plain(name, build, dense=DENSE, pick=None):
    @model("torch-rechub", name)
    def made():
        from torch_rechub.basic.features import DenseFeature, SparseFeature

        sparse = [SparseFeature(n, vocab_size=size, embed_dim=DIM) for n, size in FIELDS]
        numbers = [DenseFeature(n) for n in dense]
        module = build(sparse, numbers)
        inputs, fields, numbers = columns_of(FIELDS, dense)
        return dict_net(module if pick is None else Pick(module, pick), inputs, fields, numbers)


def ranking():
    import torch_rechub.models.ranking as m

    return m


def tasks():
    import torch_rechub.models.multi_task as m

    return m


rechub_plain("WideDeep", lambda s, d: ranking().WideDeep(s + d, s, CTR))
rechub_plain("DeepFM", lambda s, d: ranking().DeepFM(s + d, s, CTR))
rechub_plain("DCN", lambda s, d: ranking().DCN(s + d, 2, CTR))
rechub_plain("DCNv2", lambda s, d: ranking().DCNv2(s + d, 2, CTR))
rechub_plain("DCNv2 full rank", lambda s, d: ranking().DCNv2(s + d, 2, CTR, use_low_rank_mixture=False))
rechub_plain("DCNv2 stacked", lambda s, d: ranking().DCNv2(s + d, 2, CTR, model_structure="stacked"))
for bridge in ("hadamard_product", "pointwise_addition", "concatenation", "attention_pooling"):
    rechub_plain(f"EDCN {bridge}", lambda s, d, b=bridge: ranking().EDCN(s, 2, CTR, bridge_type=b), ())
rechub_plain("AFM", lambda s, d: ranking().AFM(s, DIM, 6), ())
for kind in ("field_all", "field_each", "field_interaction"):
    rechub_plain(f"FiBiNet {kind}", lambda s, d, k=kind: ranking().FiBiNet(s, CTR, bilinear_type=k), ())
rechub_plain("AutoInt", lambda s, d: ranking().AutoInt(s, d, num_layers=2, mlp_params=CTR))


def rechub_ffm(name, **options):
    @model("torch-rechub", name)
    def made():
        from torch_rechub.basic.features import DenseFeature, SparseFeature

        sparse = [SparseFeature(n, vocab_size=size, embed_dim=DIM) for n, size in FIELDS]
        cross = [SparseFeature(n, vocab_size=size * len(FIELDS), embed_dim=DIM) for n, size in FIELDS]
        module = getattr(ranking(), name)(sparse, cross, DIM, mlp_params=CTR, **options)
        inputs, fields, _ = columns_of(FIELDS)
        return dict_net(module, inputs, fields)


rechub_ffm("DeepFFM")
rechub_ffm("FatDeepFFM", reduction_ratio=2)


rechub_plain("SharedBottom", lambda s, d: tasks().SharedBottom(s + d, ["classification"] * 2, {"dims": [8]}, [{"dims": [6]}] * 2), pick=0)
rechub_plain("MMOE", lambda s, d: tasks().MMOE(s + d, ["classification"] * 2, 3, {"dims": [8]}, [{"dims": [6]}] * 2), pick=0)
rechub_plain("PLE", lambda s, d: tasks().PLE(s + d, ["classification"] * 2, 2, 2, 1, {"dims": [8]}, [{"dims": [6]}] * 2), pick=0)
rechub_plain("AITM", lambda s, d: tasks().AITM(s + d, 2, {"dims": [8]}, [{"dims": [6]}] * 2), pick=1)
rechub_plain("ESMM", lambda s, d: tasks().ESMM(s[:1], s[1:], {"dims": [8, 6]}, {"dims": [8, 6]}), (), pick=2)


def rechub_history(name, build, fields=FIELDS[:4], lists=HISTORIES, pooling="concat", least=0):
    @model("torch-rechub", name)
    def made():
        sparse, history = rechub_features(pooling)
        module = build(sparse, history)
        inputs, all, _ = columns_with_lists(lists, fields)
        for f in all:
            f.least = least if f.length else 0
        return dict_net(module, inputs, all)


def target(s):
    return [s["item"], s["category"]]


rechub_history("DIN", lambda s, h: ranking().DIN([s["user"], s["city"]], h, target(s), {"dims": [8, 6]}, {"dims": [6]}))
rechub_history("BST", lambda s, h: ranking().BST([s["user"], s["city"]], h, target(s), {"dims": [8, 6]}, nhead=2, max_seq_len=6))


class First2(nn.Module):
    """The first output of a model whose auxiliary loss needs lists of negative examples, which serving does not have."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        model.auxiliary = lambda *a, **k: 0.0

    def forward(self, x):
        x = x | {"neg_item": x["hist_item"], "neg_category": x["hist_category"]}
        return self.model(x)[0]


def dien(s, h):
    from torch_rechub.basic.features import SequenceFeature

    negative = [SequenceFeature(n, vocab_size=size, embed_dim=DIM, pooling="concat", shared_with=t) for n, t, size in (("neg_item", "item", 11), ("neg_category", "category", 5))]
    return First2(ranking().DIEN([s["user"], s["city"]], h, negative, target(s), {"dims": [8, 6]}))


rechub_history("DIEN", dien)


# ---- torch-rechub: matching, as the product of the towers of a user and one item.


def matching():
    import torch_rechub.models.matching as m

    return m


rechub_plain("DSSM", lambda s, d: matching().DSSM([s[0], s[3]] + d, [s[1], s[2], s[4]], {"dims": [8, 6]}, {"dims": [8, 6]}, temperature=0.5))


def senet(s, d):
    import torch_rechub.models.matching.dssm_senet as m

    return m.DSSM([s[0], s[3]], [s[1], s[2], s[4]], {"dims": [8, 6]}, {"dims": [8, 6]}, temperature=0.5)


rechub_plain("DSSM SENet", senet, ())
rechub_plain("FaceBookDSSM", lambda s, d: matching().FaceBookDSSM([s[0], s[3]], [s[1], s[2]], [s[1], s[2]], {"dims": [8, 6]}, {"dims": [8, 6]}), (), pick=0)


class Towers(nn.Module):
    """The product of the vectors that a model gives for serving: that of the user (the best of several) and that of the item."""

    def __init__(self, model, best=False):
        super().__init__()
        self.model, self.best = model, best

    def forward(self, x):
        self.model.mode = "user"
        user = self.model(x)
        self.model.mode = "item"
        item = self.model(x)
        self.model.mode = None
        if self.best:  # [batch, interests, DIM]
            return (user * item.reshape(item.shape[0], 1, -1)).sum(dim=2).max(dim=1).values
        return (user.reshape(item.shape[0], -1) * item.reshape(item.shape[0], -1)).sum(dim=1)


ONE = [(HISTORY[0][0], HISTORY[0][2])]
UIC = [FIELDS[i] for i in (0, 1, 3)]
rechub_history("YoutubeDNN", lambda s, h: Scored(matching().YoutubeDNN([s["user"], s["city"], h[0]], [s["item"]], [], {"dims": [8, DIM]}, temperature=0.5)), UIC, ONE, "mean", 1)
rechub_history("YoutubeSBC", lambda s, h: Towers(matching().YoutubeSBC([s["user"], s["city"], h[0]], [s["item"]], [s["item"]], {"dims": [8, DIM]}, {"dims": [8, DIM]}, 4)), UIC, ONE, "mean", 1)
rechub_history("GRU4Rec", lambda s, h: Towers(matching().GRU4Rec([s["user"], s["city"]], h[:1], [s["item"]], [s["item"]], {"dims": [8, DIM]})), UIC, ONE)
rechub_history("MIND", lambda s, h: Towers(matching().MIND([s["user"], s["city"]], h[:1], [s["item"]], [s["item"]], L, interest_num=2), best=True), UIC, ONE, "concat", 1)
rechub_history("ComirecSA", lambda s, h: Towers(matching().ComirecSA([s["user"], s["city"]], h[:1], [s["item"]], [s["item"]], interest_num=2), best=True), UIC, ONE, "concat", 1)
rechub_history("ComirecDR", lambda s, h: Towers(matching().ComirecDR([s["user"], s["city"]], h[:1], [s["item"]], [s["item"]], L, interest_num=2), best=True), UIC, ONE, "concat", 1)
rechub_history("NARM", lambda s, h: Towers(matching().NARM(h[0], 6, 0.1, 0.1, item_feature=s["item"])), FIELDS[1:2], ONE, "concat", L)
rechub_history("STAMP", lambda s, h: Towers(matching().STAMP(h[0], 0.1, 0.1, item_feature=s["item"])), FIELDS[1:2], ONE, "concat", 1)
rechub_history("SINE", lambda s, h: Towers(matching().SINE(["hist_item"], ["item"], ["item"], 11, DIM, 6, 3, 2, L)), FIELDS[1:2], ONE, "concat", 1)


def sasrec(s, h):
    from torch_rechub.basic.features import SequenceFeature

    seq = SequenceFeature("seq", vocab_size=11, embed_dim=DIM, pooling="concat", padding_idx=0)
    net = matching().SASRec([seq], max_len=L, num_heads=2, item_feature=s["item"])
    net.item_emb.embedding = net.item_emb.embed_dict  # the name that its tower of items uses
    return Towers(net)


rechub_history("SASRec", sasrec, FIELDS[1:2], [("seq", 11)], "concat", 1)


# ---- torch-rechub: generative models, whose output is the logit of every item; the candidate's is taken.


class LastOf(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        y = self.model(x["hist_item"])[:, -1]
        return y[:, 3]


def generative(name, build):
    @model("torch-rechub", name)
    def made():
        inputs, all, _ = columns_with_lists(ONE, ())
        return dict_net(LastOf(build()), inputs, all)


def hstu(**options):
    from torch_rechub.models.generative.hstu import HSTUModel

    return HSTUModel(11, d_model=8, n_heads=2, n_layers=1, dqk=4, dv=4, max_seq_len=L, num_time_buckets=6, **options)


def hllm():
    from torch_rechub.models.generative.hllm import HLLMModel

    return HLLMModel(torch.randn(11, 8), 11, d_model=8, n_heads=2, n_layers=1, max_seq_len=L, num_time_buckets=6)


generative("HSTU", hstu)
generative("HSTU untied", lambda: hstu(tie_embeddings=False))
generative("HLLM", hllm)


# ---- DeepCTR-Torch. Its only input is a matrix of float32.


def deepctr_plain(name, build, dense=DENSE, task=None):
    @model("deepctr-torch", name)
    def made():
        with quiet():
            import requests

            requests.get = lambda *a, **k: exec("raise OSError('offline')")
            import deepctr_torch.models as m

            columns = deepctr_columns(FIELDS, dense)
            module = build(m, columns)
        if task is not None:
            module = First(module)
        all = [Column(n, "x", i, size) for i, (n, size) in enumerate(FIELDS)]
        return Full(module, [("x", torch.float32, len(FIELDS) + len(dense))], all, [Column(n, "x", len(FIELDS) + i) for i, n in enumerate(dense)], package="deepctr-torch")


H = dict(dnn_hidden_units=(8, 6))
deepctr_plain("FM", lambda m, c: m.DeepFM(c, c, dnn_hidden_units=()))
for kind in ("DeepFM", "WDL", "NFM", "AutoInt", "IFM", "ONN", "xDeepFM", "DCN", "DCNMix"):
    deepctr_plain(kind, lambda m, c, k=kind: getattr(m, k)(c, c, **H))
deepctr_plain("CCPM", lambda m, c: m.CCPM(c, c, conv_kernel_width=(3, 2), conv_filters=(2, 2), **H), ())
deepctr_plain("DCN matrix", lambda m, c: m.DCN(c, c, cross_parameterization="matrix", **H))
deepctr_plain("DIFM", lambda m, c: m.DIFM(c, c, att_head_num=2, **H))
deepctr_plain("AFN", lambda m, c: m.AFN(c, c, ltl_hidden_size=6, afn_dnn_hidden_units=(8, 6)))
deepctr_plain("AFM", lambda m, c: m.AFM(c, c, attention_factor=5), ())
deepctr_plain("MLR", lambda m, c: m.MLR(c, region_num=2))
for kind in ("all", "each", "interaction"):
    deepctr_plain(f"FiBiNET {kind}", lambda m, c, k=kind: m.FiBiNET(c, c, bilinear_type=k, **H))
deepctr_plain("PNN inner", lambda m, c: m.PNN(c, **H))
deepctr_plain("PNN outer", lambda m, c: m.PNN(c, use_inner=False, use_outter=True, **H))
deepctr_plain("PNN outer num", lambda m, c: m.PNN(c, use_inner=False, use_outter=True, kernel_type="num", **H))
T = dict(tower_dnn_hidden_units=(6,))
deepctr_plain("SharedBottom", lambda m, c: m.SharedBottom(c, bottom_dnn_hidden_units=(8,), **T), task=0)
deepctr_plain("ESMM", lambda m, c: m.ESMM(c, **T), task=0)
deepctr_plain("MMOE", lambda m, c: m.MMOE(c, expert_dnn_hidden_units=(8,), gate_dnn_hidden_units=(4,), **T), task=0)
deepctr_plain("PLE", lambda m, c: m.PLE(c, expert_dnn_hidden_units=(8,), gate_dnn_hidden_units=(4,), **T), task=0)


def deepctr_history(name, **options):
    @model("deepctr-torch", name)
    def made():
        from deepctr_torch.inputs import SparseFeat, VarLenSparseFeat

        history = [VarLenSparseFeat(SparseFeat(n, size, DIM, embedding_name=t), maxlen=L, length_name="length") for n, t, size in HISTORY]
        with quiet():
            import requests

            requests.get = lambda *a, **k: exec("raise OSError('offline')")
            import deepctr_torch.models as m

            module = getattr(m, name.split()[0])(deepctr_columns(FIELDS, DENSE) + history, ["item", "category"], **options)
        at = {n: a for n, (a, _) in module.feature_index.items()}
        fields = [Column(n, "x", at[n], size) for n, size in FIELDS] + [Column(n, "x", at[n], size, L, least=1) for n, _, size in HISTORY]
        dense = [Column(n, "x", at[n]) for n in DENSE] + [Column("length", "x", at["length"], counts="hist_item")]
        return Full(module, [("x", torch.float32, max(b for _, b in module.feature_index.values()))], fields, dense, package="deepctr-torch")


deepctr_history("DIN", att_hidden_size=(6, 4), **H)
deepctr_history("DIN softmax", att_hidden_size=(6, 4), att_weight_normalization=True, **H)
for kind in ("GRU", "AIGRU", "AGRU", "AUGRU"):
    deepctr_history(f"DIEN {kind}", gru_type=kind, att_hidden_units=(6, 4), **H)


# ---- pytorch-widedeep. Its only input is a matrix of float32; ids start at 1, because 0 is the pad.


class WideDeepInput(nn.Module):
    def __init__(self, model, wide):
        super().__init__()
        self.model, self.wide = model, wide

    def forward(self, x, *wide):
        y = self.model({"deeptabular": x, **({"wide": wide[0]} if self.wide else {})})
        return y[0] if isinstance(y, tuple) else y  # TabNet also returns a loss


def widedeep(name, build, dense=DENSE, one_range=False):
    @model("pytorch-widedeep", name)
    def made():
        with quiet():
            import pytorch_widedeep.models as m

            index = {n: i for i, n in enumerate(NAMES + list(dense))}
            module = m.WideDeep(deeptabular=build(m, index))
        fields = [Column(n, "x", i, size) for i, (n, size) in enumerate(FIELDS)]
        net = Full(WideDeepInput(module, False), [("x", torch.float32, len(index))], fields, [Column(n, "x", len(FIELDS) + i) for i, n in enumerate(dense)], package="pytorch-widedeep")
        if one_range:  # the preprocessor of models with attention numbers the values of all columns together, from 1
            net.ranges = [(1 + sum(SIZES[:i]) - i, SIZES[i] - 1) for i in range(len(FIELDS))]
        return net


def cat3(size=DIM):
    return dict(cat_embed_input=[(n, s - 1, size) for n, s in FIELDS])


CAT2 = [(n, s - 1) for n, s in FIELDS]
CONT = dict(continuous_cols=DENSE)
MLP2 = dict(mlp_hidden_dims=[8, 6])


@model("pytorch-widedeep", "Wide")
def wide():
    with quiet():
        import pytorch_widedeep.models as m

        module = m.WideDeep(wide=m.Wide(sum(SIZES)))
    fields = [Column(n, "x", i, sum(SIZES) + 1) for i, n in enumerate(NAMES)]

    class Only(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner({"wide": x})

    net = Full(Only(module), [("x", torch.int64, len(FIELDS))], fields, package="pytorch-widedeep")
    net.ranges = [(1 + sum(SIZES[:i]), SIZES[i]) for i in range(len(FIELDS))]
    return net


widedeep("TabMlp", lambda m, i: m.TabMlp(i, **cat3(), **CONT, **MLP2))
widedeep("TabMlp piecewise", lambda m, i: m.TabMlp(i, **cat3(), **CONT, **MLP2, embed_continuous=True, embed_continuous_method="piecewise", cont_embed_dim=4,
                                                   quantization_setup={"age": [-1.0, 0.0, 1.0], "price": [-1.0, 0.0, 1.0]}))
widedeep("TabMlp periodic", lambda m, i: m.TabMlp(i, **cat3(), **CONT, **MLP2, embed_continuous=True, embed_continuous_method="periodic", cont_embed_dim=4, n_frequencies=4, sigma=0.5, share_last_layer=False))
widedeep("TabResnet", lambda m, i: m.TabResnet(i, **cat3(), **CONT, blocks_dims=[8, 6, 6], **MLP2))
widedeep("TabNet", lambda m, i: m.TabNet(i, **cat3(), **CONT, step_dim=4, attn_dim=4, ghost_bn=False))
widedeep("ContextAttentionMLP", lambda m, i: m.ContextAttentionMLP(i, cat_embed_input=CAT2, **CONT, input_dim=8, n_blocks=2), one_range=True)
widedeep("SelfAttentionMLP", lambda m, i: m.SelfAttentionMLP(i, cat_embed_input=CAT2, **CONT, input_dim=8, n_heads=2, n_blocks=2), one_range=True)
TR = dict(input_dim=8, n_heads=2, n_blocks=2, **MLP2)
widedeep("TabTransformer", lambda m, i: m.TabTransformer(i, cat_embed_input=CAT2, **CONT, **TR), one_range=True)
widedeep("SAINT", lambda m, i: m.SAINT(i, cat_embed_input=CAT2, **CONT, **TR), one_range=True)
widedeep("FTTransformer", lambda m, i: m.FTTransformer(i, cat_embed_input=CAT2, **CONT, **TR), one_range=True)
widedeep("TabFastFormer", lambda m, i: m.TabFastFormer(i, cat_embed_input=CAT2, **CONT, **TR), one_range=True)
widedeep("TabPerceiver", lambda m, i: m.TabPerceiver(i, cat_embed_input=CAT2, **CONT, input_dim=8, n_cross_attn_heads=2, n_latents=3, latent_dim=4, n_latent_heads=2, n_latent_blocks=1, n_perceiver_blocks=2, **MLP2), one_range=True)


def rec():
    import pytorch_widedeep.models.rec as m

    return m


widedeep("AutoInt", lambda m, i: rec().AutoInt(column_idx=i, input_dim=8, num_heads=2, num_layers=2, cat_embed_input=CAT2), (), one_range=True)
widedeep("AutoIntPlus", lambda m, i: rec().AutoIntPlus(column_idx=i, input_dim=8, num_heads=2, num_layers=2, cat_embed_input=CAT2, **MLP2), (), one_range=True)
widedeep("DeepFM", lambda m, i: rec().DeepFactorizationMachine(column_idx=i, num_factors=4, cat_embed_input=CAT2, **MLP2), (), one_range=True)
widedeep("DeepFFM", lambda m, i: rec().DeepFieldAwareFactorizationMachine(column_idx=i, num_factors=4, cat_embed_input=CAT2, **MLP2), (), one_range=True)
widedeep("xDeepFM", lambda m, i: rec().ExtremeDeepFactorizationMachine(column_idx=i, input_dim=4, cin_layer_dims=[6, 4], cat_embed_input=CAT2, **MLP2), (), one_range=True)
widedeep("DCN", lambda m, i: rec().DeepCrossNetwork(column_idx=i, n_cross_layers=2, **cat3(), **CONT, **MLP2))
for structure in ("stacked", "parallel"):
    widedeep(f"DCNv2 {structure}", lambda m, i, s=structure: rec().DeepCrossNetworkV2(column_idx=i, num_cross_layers=2, low_rank=3, num_experts=2, structure=s, **cat3(), **CONT, **MLP2))
    widedeep(f"GDCN {structure}", lambda m, i, s=structure: rec().GatedDeepCrossNetwork(column_idx=i, num_cross_layers=2, structure=s, **cat3(), **CONT, **MLP2))


@model("pytorch-widedeep", "DIN")
def widedeep_din():
    with quiet():
        import pytorch_widedeep.models as m

        history = [f"h{i}" for i in range(L)]
        names = ["user", "city"] + ["item"] + history
        index = {n: i for i, n in enumerate(names)}
        din = rec().DeepInterestNetwork(column_idx=index, user_behavior_confiq=(history, 10, DIM), target_item_col="item", cat_embed_input=[("user", 6, DIM), ("city", 3, DIM)], **MLP2)
        module = m.WideDeep(deeptabular=din)
    fields = [Column("user", "x", 0, 7), Column("city", "x", 1, 4), Column("item", "x", 2, 11), Column("history", "x", 3, 11, L)]
    return Full(WideDeepInput(module, False), [("x", torch.float32, len(names))], fields, package="pytorch-widedeep")


class Text(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner({"deeptext": x})


def text(name, build, pad):
    @model("pytorch-widedeep", name)
    def made():
        with quiet():
            import pytorch_widedeep.models as m

            module = m.WideDeep(deeptext=build(m))
        return Full(Text(module), [("x", torch.int64, L)], [Column("words", "x", 0, 11, L, least=L if pad else 0)], package="pytorch-widedeep")


for kind in ("lstm", "gru"):
    text(f"BasicRNN {kind}", lambda m, k=kind: m.BasicRNN(11, DIM, rnn_type=k, hidden_dim=6, n_layers=1, padding_idx=0), False)
    text(f"AttentiveRNN {kind}", lambda m, k=kind: m.AttentiveRNN(11, DIM, rnn_type=k, hidden_dim=6, n_layers=1, padding_idx=0), False)
    text(f"StackedAttentiveRNN {kind}", lambda m, k=kind: m.StackedAttentiveRNN(11, DIM, rnn_type=k, hidden_dim=6, n_blocks=2, padding_idx=0), False)
text("Transformer", lambda m: rec().Transformer(vocab_size=11, seq_length=L, input_dim=8, n_heads=2, n_blocks=1), False)


# ---- FuxiCTR: the structures that cases.py composes from its layers, and those of structures.py.

import cases  # noqa: E402

for case, (build, _) in cases.MODELS.items():
    if case.startswith("fuxictr-"):
        model("fuxictr", case.removeprefix("fuxictr-"))(build)

import structures  # noqa: E402

for name, build in structures.MODELS.items():
    model("fuxictr", name)(build)
