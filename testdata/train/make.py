#!/usr/bin/python3
"""Makes the goldens of training in this folder.

    make.py             write the files beside this script
    make.py --out DIR   write them to DIR

Needs torch and numpy only. The models are those of ../golden/make.py, and a WideDeep.
README.md says what the files hold.
"""

import argparse
import csv
import importlib.util
import json
import pathlib
import struct

import numpy as np
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("golden", HERE.parent / "golden" / "make.py")
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

FIELD_DIMS, DIM, HIDDEN = [6, 9, 4], 5, [11, 7]
BATCH, STEPS = 24, 10
RATE, DECAY = 1e-2, 1e-3


class WideDeep(golden.DeepFM):
    def head(self, e, ids):
        return self._bias + self.fc(ids).sum((1, 2)) + self._deep_branch(e.flatten(1)).squeeze(1)


class SoftTable(nn.Module):
    """PEP: a threshold for each entry."""

    def __init__(self, rows, dim, scale=0.5, level=-2.0):
        super().__init__()
        self.values = nn.Parameter(scale * torch.randn(rows, dim))
        self.raw = nn.Parameter(level + torch.randn(rows, dim))

    def table(self):
        return torch.sign(self.values) * torch.relu(self.values.abs() - torch.sigmoid(self.raw))

    def forward(self, ids):
        return self.table()[ids]

    def penalty(self):
        return 0

    def own(self):
        return {"embedding": self.values, "embedding.threshold": self.raw}


class Buckets(nn.Module):
    """CERP: the sum of a row of each of two tables with thresholds, and its pruning loss."""

    def __init__(self, rows, dim, buckets=8):
        super().__init__()
        self.p, self.q = SoftTable(buckets, dim, 0.3, -3.0), SoftTable(buckets, dim, 0.3, -3.0)
        ids = torch.arange(rows)
        self.at = ids % buckets, ids // (-(-rows // buckets))

    def table(self):
        return self.p.table()[self.at[0]] + self.q.table()[self.at[1]]

    def forward(self, ids):
        return self.table()[ids]

    def penalty(self):
        # In float32, 1 - tanh^2 loses most digits.
        return -1e-4 * torch.tanh(100 * (self.p.table() + self.q.table()).double()).pow(2).sum().float()

    def own(self):
        return {"p": self.p.values, "p.threshold": self.p.raw, "q": self.q.values, "q.threshold": self.q.raw}


class Quotients(nn.Module):
    """QR: the product of a row for the remainder and one for the quotient."""

    def __init__(self, rows, dim, divider=5):
        super().__init__()
        self.emb1 = nn.Embedding(divider, dim)
        self.emb2 = nn.Embedding(-(-rows // divider), dim)
        self.divider, self.rows = divider, rows

    def forward(self, ids):
        return self.emb1(ids % self.divider) * self.emb2(ids // self.divider)

    def table(self):
        return self(torch.arange(self.rows))

    def penalty(self):
        return 0

    def own(self):
        return {"emb1.weight": self.emb1.weight, "emb2.weight": self.emb2.weight}


class Train(nn.Module):
    """TT-Rec: the product of a matrix from each core. Core i is [1, p, r*q*r'] as in the reference."""

    P, Q, R = [3, 2, 4], [2, 1, 2], [1, 3, 2, 1]

    def __init__(self, rows, dim):
        super().__init__()
        self.rows = rows
        self.tt_cores = nn.ParameterList(
            nn.Parameter(0.8 * torch.randn(1, p, self.R[i] * q * self.R[i + 1])) for i, (p, q) in enumerate(zip(self.P, self.Q))
        )

    def forward(self, ids):
        a, c, e = [core[0].view(p, r, q, s) for core, p, q, r, s in zip(self.tt_cores, self.P, self.Q, self.R, self.R[1:])]
        i, j, k = ids // 8, ids // 4 % 2, ids % 4
        return torch.einsum("...axb,...byc,...czd->...xyz", a[i], c[j], e[k]).flatten(-3)

    def table(self):
        return self(torch.arange(self.rows))

    def penalty(self):
        return 0

    def own(self):
        return {f"tt_cores.{i}": core for i, core in enumerate(self.tt_cores)}


class Step(torch.autograd.Function):
    """The step function u > 0 with the gradient of OptEmbed."""

    @staticmethod
    def forward(ctx, u):
        ctx.save_for_backward(u)
        return (u > 0).float()

    @staticmethod
    def backward(ctx, g):
        (u,) = ctx.saved_tensors
        size = u.abs()
        return g * torch.where(size <= 0.4, 2 - 4 * size, torch.where(size <= 1, torch.full_like(size, 0.4), torch.zeros_like(size)))


class Supernet(nn.Module):
    """OptEmbed: a threshold for each field, and columns that depend on the row and the field."""

    def __init__(self, rows, dim):
        super().__init__()
        self.values = nn.Parameter(0.3 * torch.randn(rows, dim))
        self.gate = nn.Parameter(torch.tensor([0.9, 0.0, 1.1]))
        self.field = torch.repeat_interleave(torch.arange(len(FIELD_DIMS)), torch.tensor(FIELD_DIMS))
        self.first = 0  # row of the batch

    def table(self):
        return self.values * (self.values.abs().sum(1) > self.gate[self.field]).float()[:, None]

    def forward(self, ids):
        e = self.values[ids]
        kept = Step.apply(e.abs().sum(2) - self.gate)
        number = self.first + torch.arange(len(ids))[:, None] * 7 + torch.arange(len(FIELD_DIMS)) * 3
        columns = torch.arange(DIM) <= (number % DIM)[:, :, None]
        self.first += 7 * len(ids)
        return e * kept[:, :, None] * columns

    def penalty(self):
        return 1e-4 * torch.exp(-self.gate).sum()

    def own(self):
        return {"embedding": self.values, "gate": self.gate}


def config(**more):
    return {"num_factor": DIM, "hidden_sizes": HIDDEN, "p_dropout": 0.0, "use_batchnorm": True, **more}


CASES = {
    "fm": (golden.FM, "fm", config()),
    "deepfm": (golden.DeepFM, "deepfm", config()),
    "deepfm-plain": (golden.DeepFM, "deepfm", config(use_batchnorm=False)),
    "deepfm-sparse": (golden.DeepFM, "deepfm", config()),
    "widedeep": (WideDeep, "widedeep", config()),
    "dcn-mix": (golden.DCNMix, "dcn-mix", config(num_layers=2, num_experts=2, rank=3)),
    "dcnv2-stacked": (golden.DCNv2, "dcnv2", config(num_layers=2, structure="Stacked")),
    "dcnv2-parallel": (golden.DCNv2, "dcnv2", config(num_layers=2, structure="Parallel")),
    "neumf": (golden.NeuMF, "neumf", {"emb_size": 6, "hidden_sizes": HIDDEN, "p_dropout": 0.0}),
}
# Tables with tensors of their own, of a DeepFM, with their numbers of columns.
TABLES = {"pep": (SoftTable, DIM), "cerp": (Buckets, DIM), "optembed": (Supernet, DIM), "qr": (Quotients, DIM), "tt": (Train, 4)}


def fields(kind):
    """The sizes of the fields. A NeuMF reads the first two of each row."""
    return FIELD_DIMS[:2] if kind == "neumf" else FIELD_DIMS


def safetensors(path, model, kind):
    """Writes a state dict as a safetensors file, without the library."""
    tensors = {key: value for key, value in model.state_dict().items() if not key.startswith("embedding.")}
    if kind != "neumf":
        table = model.embedding
        tensors["embedding.weight"] = table.weight if isinstance(table, nn.Embedding) else table.table()
    tensors = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    metadata = {"format": "pt", "shaver.architecture": json.dumps({"kind": kind, "field_dims": fields(kind)})}
    header, body = {"__metadata__": metadata}, b""
    for key, tensor in tensors:
        data = tensor.detach().numpy().tobytes()
        dtype = {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
        header[key] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    offsets = np.cumsum([0] + FIELD_DIMS[:-1])
    # The last feature of the last field never occurs.
    ids = torch.stack([torch.randint(0, size - (j == 2), (STEPS * BATCH,), generator=generator) for j, size in enumerate(FIELD_DIMS)], 1) + torch.from_numpy(offsets)
    labels = torch.randint(0, 2, (STEPS * BATCH,), generator=generator).float()
    with open(out / "rows.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["label"] + [f"field{j}" for j in range(len(FIELD_DIMS))])
        for label, row in zip(labels.tolist(), ids.tolist()):
            writer.writerow([int(label)] + row)
    for number, (name, (make, kind, settings)) in enumerate(CASES.items()):
        torch.manual_seed(number)
        model = make(fields(kind), settings)
        with torch.no_grad():
            for key, value in model.named_parameters():
                if ".gates" in key or "cross_head.U" in key or "cross_head.V" in key or "cross_head.C" in key:
                    nn.init.normal_(value, 0, 0.3)
                if "cross_head.biases" in key or key == "_bias":
                    nn.init.normal_(value, 0, 0.1)
            for key, value in model.named_parameters():
                if key.endswith(("embedding.weight", "_emb_module.weight")):
                    value.mul_(0.5)
        safetensors(out / f"{name}.0.safetensors", model, kind)
        if name.endswith("-sparse"):
            # SparseAdam reads the rows of sparse gradients; the other weights have Adam.
            model.embedding.sparse = True
            rest = [value for key, value in model.named_parameters() if not key.startswith("embedding.")]
            optimizers = [torch.optim.SparseAdam([model.embedding.weight], lr=RATE), torch.optim.Adam(rest, lr=RATE, weight_decay=DECAY)]
        else:
            optimizers = [torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=DECAY, foreach=False)]
        model.train()
        for step in range(STEPS):
            batch = slice(step * BATCH, (step + 1) * BATCH)
            loss = nn.functional.binary_cross_entropy_with_logits(model(ids[batch, : len(fields(kind))]), labels[batch])
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            if step + 1 in (1, STEPS):
                safetensors(out / f"{name}.{step + 1}.safetensors", model, kind)
    for number, (name, (make, dim)) in enumerate(TABLES.items()):
        torch.manual_seed(100 + number)
        model = golden.DeepFM(FIELD_DIMS, config(num_factor=dim))
        model.embedding = make(sum(FIELD_DIMS), dim)
        own = lambda: {key: value.detach().flatten().tolist() for key, value in model.embedding.own().items()}
        safetensors(out / f"{name}.0.safetensors", model, "deepfm")
        states = {0: own()}
        named = dict(model.named_parameters())
        raw = [value for key, value in named.items() if key.endswith(".raw")]
        rest = [value for key, value in named.items() if not key.endswith((".raw", ".gate"))]
        optimizers = [torch.optim.Adam([{"params": rest}, {"params": raw, "lr": 3 * RATE}], lr=RATE, weight_decay=DECAY, foreach=False)]
        if name == "optembed":
            optimizers = [torch.optim.Adam(rest, lr=RATE, weight_decay=DECAY, foreach=False), torch.optim.SGD([model.embedding.gate], lr=1e-4)]
        model.train()
        for step in range(STEPS):
            batch = slice(step * BATCH, (step + 1) * BATCH)
            loss = nn.functional.binary_cross_entropy_with_logits(model(ids[batch]), labels[batch]) + model.embedding.penalty()
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            if step + 1 in (1, STEPS):
                safetensors(out / f"{name}.{step + 1}.safetensors", model, "deepfm")
                states[step + 1] = own()
        (out / f"{name}.json").write_text(json.dumps(states, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
