#!/usr/bin/python3
"""Makes the golden checkpoints of this folder, or checks goldens of this form.

    make.py                 write NAME.pth, NAME.rows.csv, NAME.json beside this script
    make.py --out DIR       write them to DIR
    make.py --verify DIR    recompute every number of the goldens in DIR and compare

Needs torch and numpy only (Debian: python3-torch, python3-numpy). The models are
PyTorch modules whose state dicts have the keys that checkpoints in the wild have.
The expected numbers do not come from PyTorch: a second forward pass in float64
numpy enumerates every coalition of every row. The two are compared.
README.md says what the files hold.
"""

import argparse
import csv
import json
import math
import os
import pathlib
import tempfile

import numpy as np
import torch
from torch import nn

TOLERANCE_TORCH = 1e-5  # float32 PyTorch against float64 numpy, logits of every coalition
TOLERANCE_SUM = 1e-12  # efficiency, in float64
TOLERANCE_VERIFY = 1e-9  # numbers recomputed by --verify
BATCH_NORM_EPSILON = 1e-5


# ---- The models, as PyTorch has them. head(e, ids) maps embeddings [N, m, d] to logits [N].


def mlp(width, hidden, dropout, batch_norm, output):
    layers = []
    for size in hidden:
        layers.append(nn.Linear(width, size))
        if batch_norm:
            layers.append(nn.BatchNorm1d(size))
        layers += [nn.ReLU(), nn.Dropout(dropout)]
        width = size
    if output:
        layers.append(nn.Linear(width, 1))
    return nn.Sequential(*layers)


class Table(nn.Module):
    """What all models share: the embedding table and the fields' offsets."""

    def __init__(self, field_dims, dim):
        super().__init__()
        self.embedding = nn.Embedding(sum(field_dims), dim)
        offsets = np.cumsum([0] + list(field_dims[:-1]), dtype=np.int64)[None]
        self.register_buffer("offsets", torch.from_numpy(offsets))  # numpy gives the first axis stride 0

    def forward(self, ids):
        return self.head(self.embedding(ids), ids)


class FM(Table):
    def __init__(self, field_dims, config):
        super().__init__(field_dims, config["num_factor"])
        self._bias = nn.Parameter(torch.zeros(1))
        self.fc = nn.Embedding(sum(field_dims), 1)

    def head(self, e, ids):
        pairs = 0.5 * (e.sum(1) ** 2 - (e**2).sum(1)).sum(1)
        return self._bias + self.fc(ids).sum((1, 2)) + pairs


class DeepFM(FM):
    def __init__(self, field_dims, config):
        super().__init__(field_dims, config)
        self.linear_layer = nn.Linear(1, 1)  # in every checkpoint, never used
        width = len(field_dims) * config["num_factor"]
        self._deep_branch = mlp(width, config["hidden_sizes"], config["p_dropout"], config["use_batchnorm"], True)

    def head(self, e, ids):
        return super().head(e, ids) + self._deep_branch(e.flatten(1)).squeeze(1)


class MixCross(nn.Module):
    def __init__(self, width, layers, experts, rank):
        super().__init__()
        self.U = nn.ParameterList([nn.Parameter(torch.zeros(experts, rank, width)) for _ in range(layers)])
        self.C = nn.ParameterList([nn.Parameter(torch.zeros(experts, rank, rank)) for _ in range(layers)])
        self.V = nn.ParameterList([nn.Parameter(torch.zeros(experts, width, rank)) for _ in range(layers)])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(1, width)) for _ in range(layers)])
        self.gates = nn.Parameter(torch.zeros(experts, width, 1))

    def forward(self, x0):
        x = x0
        for u, c, v, bias in zip(self.U, self.C, self.V, self.biases):
            low = torch.tanh(torch.tanh(x @ v) @ c)  # [experts, N, rank]
            experts = x0 * (low @ u + bias)  # [experts, N, width]
            x = x + (experts * (x @ self.gates)).sum(0)
        return x


class DCNMix(Table):
    def __init__(self, field_dims, config):
        super().__init__(field_dims, config["num_factor"])
        width = len(field_dims) * config["num_factor"]
        self.cross_head = MixCross(width, config["num_layers"], config["num_experts"], config["rank"])
        self._dnn = mlp(width, config["hidden_sizes"], config["p_dropout"], True, True)

    def head(self, e, ids):
        return self._dnn(self.cross_head(e.flatten(1))).squeeze(1)


class FullCross(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, x0):
        x = x0
        for layer in self.layers:
            x = x + x0 * layer(x)
        return x


class DCNv2(Table):
    def __init__(self, field_dims, config):
        super().__init__(field_dims, config["num_factor"])
        width = len(field_dims) * config["num_factor"]
        self.parallel = config["structure"] == "Parallel"
        self.cross_head = FullCross(width, config["num_layers"])
        self._dnn = mlp(width, config["hidden_sizes"], config["p_dropout"], True, False)
        self._last_fc = nn.Linear(config["hidden_sizes"][-1] + self.parallel * width, 1)

    def head(self, e, ids):
        x = e.flatten(1)
        crossed = self.cross_head(x)
        last = torch.cat([crossed, self._dnn(x)], 1) if self.parallel else self._dnn(crossed)
        return self._last_fc(last).squeeze(1)


class Embedding(nn.Module):
    """The wrapper of the reference's tables."""

    def __init__(self, size, dim):
        super().__init__()
        self._emb_module = nn.Embedding(size, dim)

    def forward(self, ids):
        return self._emb_module(ids)


class Tower(nn.Module):
    def __init__(self, field_dims, dim):
        super().__init__()
        self.user_emb_table = Embedding(field_dims[0], dim)
        self.item_emb_table = Embedding(field_dims[1], dim)

    def look_up(self, user, item):
        return torch.stack([self.user_emb_table(user), self.item_emb_table(item)], 1)


class NeuMF(nn.Module):
    """Two towers with tables of their own. Columns of e: first those of the MLP, then those of GMF."""

    def __init__(self, field_dims, config):
        super().__init__()
        self.users, half = field_dims[0], config["emb_size"] // 2
        self._gmf, self._mlp = Tower(field_dims, half), Tower(field_dims, half)
        self._gmf.gmf_fc = nn.Linear(half, 1)
        self._mlp.mlp = mlp(2 * half, config["hidden_sizes"], config["p_dropout"], False, False)
        self._mlp.mlp_fc = nn.Linear(config["hidden_sizes"][-1], 1)

    def head(self, e, ids):
        deep, wide = e.chunk(2, 2)
        deep = self._mlp.mlp_fc(self._mlp.mlp(deep.flatten(1)))
        return (deep + self._gmf.gmf_fc(wide.prod(1))).squeeze(1)

    def forward(self, ids):
        user, item = ids[:, 0], ids[:, 1] - self.users
        return self.head(torch.cat([self._mlp.look_up(user, item), self._gmf.look_up(user, item)], 2), ids)


MODULES = {"fm": FM, "deepfm": DeepFM, "dcn-mix": DCNMix, "dcnv2": DCNv2, "neumf": NeuMF}


# ---- The same models in float64, without torch. w maps state-dict keys to arrays.


def affine(x, weight, bias=0.0):
    """x W' + b. Not a matrix product: each row's bits must not depend on the batch,
    so that a player without effect gets exactly 0."""
    return (x[:, None, :] * weight).sum(-1) + bias


def run_mlp(w, prefix, x, output):
    linear = sorted(int(key.split(".")[-2]) for key in w if key.startswith(prefix + ".") and w[key].ndim == 2)
    for i in linear[:-1] if output else linear:
        x = affine(x, w[f"{prefix}.{i}.weight"], w[f"{prefix}.{i}.bias"])
        if f"{prefix}.{i + 1}.running_var" in w:
            gamma, beta, mean, var = (w[f"{prefix}.{i + 1}.{k}"] for k in ("weight", "bias", "running_mean", "running_var"))
            x = gamma * (x - mean) / np.sqrt(var + BATCH_NORM_EPSILON) + beta
        x = np.maximum(x, 0.0)
    if output:
        x = affine(x, w[f"{prefix}.{linear[-1]}.weight"], w[f"{prefix}.{linear[-1]}.bias"])
    return x


def mix_cross(w, x0):
    x, layer = x0, 0
    while f"cross_head.U.{layer}" in w:
        u, c, v, bias = (w[f"cross_head.{name}.{layer}"] for name in ("U", "C", "V", "biases"))
        step = np.zeros_like(x)
        for k, gate in enumerate(w["cross_head.gates"]):
            low = np.tanh(affine(np.tanh(affine(x, v[k].T)), c[k].T))
            step += affine(x, gate.T) * (x0 * (affine(low, u[k].T) + bias))
        x, layer = x + step, layer + 1
    return x


def full_cross(w, x0):
    x, layer = x0, 0
    while f"cross_head.layers.{layer}.weight" in w:
        x = x + x0 * affine(x, w[f"cross_head.layers.{layer}.weight"], w[f"cross_head.layers.{layer}.bias"])
        layer += 1
    return x


def logits(kind, w, e, ids):
    """Logits [N] of embeddings e [N, m, d] for the features ids [m] of one row."""
    x = e.reshape(len(e), -1)
    if kind == "dcn-mix":
        return run_mlp(w, "_dnn", mix_cross(w, x), True)[:, 0]
    if kind == "dcnv2-stacked":
        hidden = run_mlp(w, "_dnn", full_cross(w, x), False)
        return affine(hidden, w["_last_fc.weight"], w["_last_fc.bias"])[:, 0]
    if kind == "dcnv2-parallel":
        both = np.concatenate([full_cross(w, x), run_mlp(w, "_dnn", x, False)], 1)  # cross first
        return affine(both, w["_last_fc.weight"], w["_last_fc.bias"])[:, 0]
    if kind == "neumf":
        half = e.shape[2] // 2
        hidden = run_mlp(w, "_mlp.mlp", e[:, :, :half].reshape(len(e), -1), False)
        z = affine(hidden, w["_mlp.mlp_fc.weight"], w["_mlp.mlp_fc.bias"])[:, 0]
        return z + affine(e[:, 0, half:] * e[:, 1, half:], w["_gmf.gmf_fc.weight"], w["_gmf.gmf_fc.bias"])[:, 0]
    z = w["_bias"][0] + w["fc.weight"][ids, 0].sum() + 0.5 * (e.sum(1) ** 2 - (e**2).sum(1)).sum(1)
    if kind == "deepfm":
        z = z + run_mlp(w, "_deep_branch", x, True)[:, 0]
    return z


# ---- The expected numbers.


def losses(z, label):
    return np.logaddexp(0.0, z) - label * z


def coalitions(e, baseline):
    """Embeddings [2^D, m, d] of one row e [m, d]: bit p of the index says that player p is dropped."""
    players = e.size
    dropped = (np.arange(2**players)[:, None] >> np.arange(players)) & 1
    return np.where(dropped.reshape(-1, *e.shape) == 1, baseline, e)


def shapley(v):
    """Shapley values [D] of the game v [2^D], by its definition."""
    players = int(math.log2(len(v)))
    index = np.arange(len(v))
    size = ((index[:, None] >> np.arange(players)) & 1).sum(1)
    weight = np.array([1 / (players * math.comb(players - 1, k)) for k in range(players)])
    phi = np.empty(players)
    for p in range(players):
        without = index[(index >> p) & 1 == 0]
        phi[p] = math.fsum(weight[size[without]] * (v[without | 1 << p] - v[without]))
    return phi


def table_of(w):
    """The embedding table [n, d]. A NeuMF has four, which become one."""
    if "embedding.weight" in w:
        return w["embedding.weight"]
    towers = [[w[f"_{tower}.{field}_emb_table._emb_module.weight"] for field in ("user", "item")] for tower in ("mlp", "gmf")]
    return np.concatenate([np.concatenate(tables) for tables in towers], 1)


def expect(kind, w, field_dims, labels, ids):
    """What NAME.json says about a model's numbers on the rows."""
    table = table_of(w)
    n, dim = table.shape
    field = np.repeat(np.arange(len(field_dims)), field_dims)
    frequencies = np.bincount(ids.ravel(), minlength=n)
    codebook = np.stack([frequencies[field == j] @ table[field == j] / len(ids) for j in range(len(field_dims))])
    z = np.array([logits(kind, w, table[None, row], row)[0] for row in ids])
    loss = losses(z, labels)
    out = {
        "field_dims": list(field_dims),
        "dim": dim,
        "rows": len(ids),
        "logits": z.tolist(),
        "losses": loss.tolist(),
        "frequencies": frequencies.tolist(),
        "codebook": codebook.tolist(),
        "exact": {},
        "loss_full": math.fsum(loss) / len(ids),
        "loss_empty": {},
    }
    distinct, inverse = np.unique(ids, axis=0, return_inverse=True)
    for name, baseline in (("zero", np.zeros_like(codebook)), ("codebook", codebook)):
        z_all = [logits(kind, w, coalitions(table[row], baseline), row) for row in distinct]
        phi, empty = np.zeros((n, dim)), []
        for row, label, which in zip(ids, labels, inverse.ravel()):
            v = losses(z_all[which], label)
            phi[row] += shapley(v).reshape(-1, dim)
            empty.append(v[-1])
        out["exact"][name] = (phi / len(ids)).tolist()
        out["loss_empty"][name] = math.fsum(empty) / len(ids)
    return out


def float32_error(module, kind, w, codebook, ids):
    """Largest difference between the logits of PyTorch in float32 and ours in
    float64, over all coalitions of all rows with both baselines."""
    worst = 0.0
    table, codebook = table_of(w), np.array(codebook)
    module.eval()
    for row in np.unique(ids, axis=0):
        for baseline in (np.zeros_like(codebook), codebook):
            e = coalitions(table[row], baseline)
            with torch.no_grad():
                z = module.head(torch.from_numpy(e).float(), torch.from_numpy(row).expand(len(e), -1)).double().numpy()
            worst = max(worst, np.abs(z - logits(kind, w, e, row)).max())
    return worst


def arrays(state_dict):
    """The state dict as float64 arrays under their plain names."""
    return {k.removeprefix("_orig_mod."): v.detach().numpy().astype(np.float64) for k, v in state_dict.items()}


# ---- The goldens.


def draw(module, rng):
    """Gives the module random weights, large enough that logits vary by some units, and
    returns its state dict (the same memory). RandomState's numbers are the same in every
    version of numpy; torch's generator promises less."""
    state = module.state_dict()
    for key, tensor in state.items():
        shape = tuple(tensor.shape)
        if key == "offsets":
            continue
        if key.endswith("num_batches_tracked"):
            value = np.array(1234)
        elif key.endswith("running_var"):
            value = rng.uniform(0.3, 3.0, shape)
        elif key.endswith("running_mean"):
            value = rng.normal(0.0, 0.5, shape)
        elif key.endswith("bias") or ".biases." in key:
            value = rng.normal(0.0, 0.3, shape)
        elif len(shape) == 1:  # BatchNorm's gamma, of both signs
            value = rng.uniform(0.6, 1.6, shape) * np.where(rng.uniform(size=shape) < 0.2, -1.0, 1.0)
        elif key in ("embedding.weight", "fc.weight") or "_emb_module." in key:
            value = rng.normal(0.0, 0.8, shape)
        else:  # a matrix; how many numbers one of its results sums
            fan_in = shape[1] if len(shape) == 2 or key.endswith("gates") or ".V." in key else shape[-2]
            gain = 1.0 if "cross_head" in key else 1.5  # cross layers multiply: more, and float32 suffers
            value = rng.normal(0.0, gain / math.sqrt(fan_in), shape)
        tensor.copy_(torch.from_numpy(np.asarray(value)))
    return state


def draw_rows(field_dims, rows, unseen, rng):
    """Labels [rows] and global ids [rows, m]: low ids are frequent, all but the unseen occur."""
    columns, first = [], 0
    for size in field_dims:
        seen = [i for i in range(first, first + size) if i not in unseen]
        share = 1.0 / np.arange(1, len(seen) + 1)
        columns.append(np.concatenate([seen, rng.choice(seen, rows - len(seen), p=share / share.sum())]))
        first += size
    ids = np.stack([rng.permutation(column) for column in columns], 1).astype(np.int64)
    return (rng.uniform(size=rows) < 0.4).astype(np.int64), ids


def null_fm(state, ids):
    """Column 2 is 0 outside field 1, so its weights there have nothing to pair with."""
    state["embedding.weight"][:3, 2] = 0
    state["embedding.weight"][7:, 2] = 0
    return {"null": [[i, 2] for i in range(10)]}


def null_dcn_mix(state, ids):
    """Nothing reads column 1 of field 2, input 2*3+1; cross layers hand it to itself only."""
    state["cross_head.gates"][:, 7] = 0
    for layer in range(3):
        state[f"cross_head.V.{layer}"][:, 7] = 0
    state["_dnn.0.weight"][:, 7] = 0
    return {"null": [[i, 1] for i in range(7, 11)]}


def symmetric_fields(state, ids):
    """Fields 0 and 1 always occur with the same local id, and agree in column 1 and in its
    weights. They differ in column 0."""
    ids[:, 1] = ids[:, 0] + 3
    state["embedding.weight"][3:6, 1] = state["embedding.weight"][:3, 1]
    state["_deep_branch.0.weight"][:, 3] = state["_deep_branch.0.weight"][:, 1]
    return {"symmetric": [[[i, 1], [i + 3, 1]] for i in range(3)]}


def symmetric_columns(state, ids):
    """Columns 1 and 3 of field 0 are equal, and the network cannot tell them apart."""
    state["embedding.weight"][:4, 3] = state["embedding.weight"][:4, 1]
    for layer in range(2):
        state[f"cross_head.layers.{layer}.weight"][3] = state[f"cross_head.layers.{layer}.weight"][1]
        state[f"cross_head.layers.{layer}.weight"][:, 3] = state[f"cross_head.layers.{layer}.weight"][:, 1]
        state[f"cross_head.layers.{layer}.bias"][3] = state[f"cross_head.layers.{layer}.bias"][1]
    state["_dnn.0.weight"][:, 3] = state["_dnn.0.weight"][:, 1]
    return {"symmetric": [[[i, 1], [i, 3]] for i in range(4)]}


def null_neumf(state, ids):
    """The products of column 3, the second of GMF, have the weight 0."""
    state["_gmf.gmf_fc.weight"][0, 1] = 0
    return {"null": [[i, 3] for i in range(9)]}


# name, kind, seed, field sizes and the form they are stored in, rows, features that never occur, model_config, special players
GOLDENS = [
    ("fm", "fm", 1, [3, 4, 3], list, 32, {5}, {"num_factor": 3}, null_fm),
    ("deepfm", "deepfm", 2, [2, 3, 2, 4, 3], list, 30, {10},
     {"num_factor": 2, "hidden_sizes": [6, 4], "p_dropout": 0.5, "use_batchnorm": True, "embedding_config": {"name": "vanilla"}}, None),
    ("deepfm-plain", "deepfm", 3, [3, 3, 4, 2], torch.tensor, 40, {9},
     {"num_factor": 2, "hidden_sizes": [7, 6, 5], "p_dropout": 0.1, "use_batchnorm": False, "embedding_config": None}, symmetric_fields),
    ("dcn-mix", "dcn-mix", 9, [3, 4, 4], np.array, 36, {2, 6},
     {"num_factor": 3, "hidden_sizes": [6, 5], "num_layers": 3, "num_experts": 4, "rank": 2, "activation": None, "p_dropout": 0.5}, null_dcn_mix),
    ("dcnv2-stacked", "dcnv2", 5, [4, 5], list, 28, {8},
     {"num_factor": 5, "hidden_sizes": [6, 4], "num_layers": 2, "p_dropout": 0.5, "structure": "Stacked"}, symmetric_columns),
    ("dcnv2-parallel", "dcnv2", 6, [1, 4, 5], torch.tensor, 34, {4},
     {"num_factor": 3, "hidden_sizes": [7], "num_layers": 2, "p_dropout": 0.5, "structure": "Parallel"}, None),
    ("neumf", "neumf", 7, [4, 5], None, 36, {6}, {"name": "nmf", "emb_size": 4, "hidden_sizes": [6, 4], "p_dropout": 0.2}, null_neumf),
]  # fmt: skip


def variant(kind, config):
    """The name under which logits knows a model."""
    return f"{kind}-{config['structure'].lower()}" if kind == "dcnv2" else kind


def check(name, module, w, golden, config, ids):
    """The script's own doubts; says what it measured."""
    error = float32_error(module, variant(golden["kind"], config), w, golden["codebook"], ids)
    assert error < TOLERANCE_TORCH, f"{name}: torch and numpy differ by {error}"
    sums = {b: np.sum(golden["exact"][b]) - (golden["loss_empty"][b] - golden["loss_full"]) for b in golden["exact"]}
    unseen = np.array(golden["frequencies"]) == 0
    assert unseen.any()
    for baseline, phi in golden["exact"].items():
        phi = np.array(phi)
        assert abs(sums[baseline]) < TOLERANCE_SUM, f"{name} {baseline}: values sum to {sums[baseline]} too much"
        assert not phi[unseen].any(), f"{name} {baseline}: a feature that never occurs has a value"
        for player in golden.get("null", []):
            assert phi[tuple(player)] == 0, f"{name} {baseline}: null player {player} has {phi[tuple(player)]}"
        for a, b in golden.get("symmetric", []):
            assert abs(phi[tuple(a)] - phi[tuple(b)]) < TOLERANCE_SUM, f"{name} {baseline}: {a} and {b} differ"
    z = golden["logits"]
    print(f"{name:15} logits {min(z):6.2f} to {max(z):5.2f}, float32 error {error:.1e}, efficiency {max(map(abs, sums.values())):.0e}, "
          f"largest value {max(np.abs(phi).max() for phi in map(np.array, golden['exact'].values())):.3f}")  # fmt: skip


def make(out, name, kind, seed, field_dims, form, rows, unseen, config, special):
    rng = np.random.RandomState(seed)
    module = MODULES[kind](field_dims, config)
    state = draw(module, rng)
    labels, ids = draw_rows(field_dims, rows, unseen, rng)
    players = special(state, ids) if special else {}
    w = arrays(state)
    golden = {"kind": kind, **expect(variant(kind, config), w, field_dims, labels, ids), **players}
    check(name, module, w, golden, config, ids)

    if kind == "dcn-mix":  # as torch.compile leaves it
        state = {"_orig_mod." + key: tensor for key, tensor in state.items()}
    metrics = {"auc": 0.5, "log_loss": golden["loss_full"]}
    sizes = {"field_dims": form(field_dims)} if form else {"num_users": field_dims[0], "num_items": field_dims[1]}
    torch.save({"state_dict": state, "model_config": config, "val_metrics": metrics, **sizes}, out / f"{name}.pth")
    with open(out / f"{name}.rows.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["label"] + [f"f{j}" for j in range(len(field_dims))])
        writer.writerows(np.column_stack([labels, ids]).tolist())
    with open(out / f"{name}.json", "w") as file:
        lines = (f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'), allow_nan=False)}" for key, value in golden.items())
        file.write("{" + ",\n".join(lines) + "}\n")


def verify(folder):
    """Recomputes the goldens of a folder from their checkpoints and rows."""
    for path in sorted(folder.glob("*.json")):
        golden = json.loads(path.read_text())
        checkpoint = torch.load(path.with_suffix(".pth"), weights_only=False)
        table = np.loadtxt(path.with_suffix(".rows.csv"), delimiter=",", skiprows=1, dtype=np.int64)
        labels, ids = table[:, 0], table[:, 1:]
        sizes = checkpoint["field_dims"] if "field_dims" in checkpoint else (checkpoint["num_users"], checkpoint["num_items"])
        field_dims = [int(size) for size in sizes]
        config, kind = checkpoint["model_config"], golden["kind"].replace("_", "-")
        module = MODULES[kind](field_dims, config)
        module.load_state_dict({k.removeprefix("_orig_mod."): v for k, v in checkpoint["state_dict"].items()})  # strict: no key more, none less
        w = arrays(checkpoint["state_dict"])
        ours = expect(variant(kind, config), w, field_dims, labels, ids)
        worst = {}
        for key in ("field_dims", "rows", "logits", "losses", "frequencies", "codebook"):
            worst[key] = np.abs(np.array(ours[key]) - np.array(golden[key])).max()
        for baseline, phi in golden["exact"].items():
            phi = phi["values"] if isinstance(phi, dict) else phi
            worst["exact " + baseline] = np.abs(np.array(ours["exact"][baseline]) - np.array(phi)).max()
        assert max(worst.values()) < TOLERANCE_VERIFY, f"{path.name}: {worst}"
        error = float32_error(module, variant(kind, config), w, ours["codebook"], ids)
        print(f"{path.stem:15} " + ", ".join(f"{key} {value:.0e}" for key, value in worst.items()) + f"; float32 {error:.0e}")


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=here, help="folder to write to (default: the script's)")
    parser.add_argument("--verify", type=pathlib.Path, metavar="DIR", help="check the goldens in DIR; write nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.verify:
        verify(options.verify)
        return
    with tempfile.TemporaryDirectory(dir=options.out) as scratch:
        for golden in GOLDENS:
            make(pathlib.Path(scratch), *golden)
        for path in sorted(pathlib.Path(scratch).iterdir()):  # only when all of them passed
            os.replace(path, options.out / path.name)


if __name__ == "__main__":
    main()
