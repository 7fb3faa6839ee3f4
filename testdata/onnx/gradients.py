#!/usr/bin/env python3
"""Writes gradients.jsonl: derivatives of the logits of PyTorch's models, by autograd in float64.

    gradients.py            write the file next to this script
    gradients.py NAME ...   write only the lines of these models

Each line has a model of cases.py and the derivatives for some of the rows in NAME.json. A derivative belongs to a row of a
table, which is given by its elements. Rows without a derivative are left out.
"""

import copy
import json
import pathlib
import sys

import cases
import make
from packages import ROWS, float64, np, quiet, torch

SCORED = (0, 1, 7)  # numbers of the rows


def logit_of(y, how):
    if how == "classes":
        return torch.log(y[:, 1]) - torch.log(y[:, 0])
    return y[:, 0] if how == "output" else torch.log(y[:, 0]) - torch.log1p(-y[:, 0])


def look_up(ids, weight, *_, **__):
    """An embedding without its padding, whose derivative PyTorch omits."""
    return weight[ids]


def gradients(name):
    net, values = make.network(name)
    how = json.loads(next(iter(sorted(pathlib.Path(make.__file__).parent.glob(name + ".*json")))).read_text())["logit"]
    batch = 1 if name == "dlrm-offsets" else ROWS
    rows = []
    with float64():
        module = copy.deepcopy(net.module).double()
        tables = [m.weight for m in module.modules() if isinstance(m, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and (m.weight.shape[1] > 1 or name == "regions")]
        for table in tables:
            table.requires_grad_()
        for row in SCORED:
            low = row // batch * batch
            args = [a.double() if a.is_floating_point() else a for a in make.arguments(net, values, low, low + batch)]
            logit = logit_of(module(*args).reshape(batch, -1), how)[row - low]
            found = []
            for table, slope in zip(tables, torch.autograd.grad(logit, tables, allow_unused=True)):
                if slope is None:
                    continue
                slope = slope.to_dense()
                if name == "field-aware" and len(table) % 3 == 0:  # an id reads three rows, which count as one
                    table, slope = table.reshape(len(table) // 3, -1), slope.reshape(len(table) // 3, -1)
                for i in torch.nonzero(slope.abs().sum(dim=1))[:, 0].tolist():
                    found.append({"entries": short(table[i].tolist()), "slopes": short(slope[i].tolist())})
            if logit.isfinite() and any(np.isnan(f["slopes"]).any() for f in found):
                continue  # for PyTorch, 0 times a weight that is NaN and not used is NaN
            rows.append({"row": row, "logit": round(logit.item(), 6), "tables": found})
    return rows


def short(values):
    return [float(f"{v:.7g}") for v in values]


def main():
    torch.nn.functional.embedding = look_up
    path = pathlib.Path(__file__).resolve().parent / "gradients.jsonl"
    kept = {json.loads(line)["model"]: line for line in path.read_text().splitlines(keepends=True)}
    lines = []
    for name in cases.MODELS:
        if sys.argv[1:] and name not in sys.argv[1:]:
            lines += [kept[name]] if name in kept else []
            continue
        if name == "keras":  # its layers have no torch.nn.Embedding
            continue
        with quiet():
            rows = gradients(name)
        lines.append(json.dumps({"model": name, "rows": rows}, separators=(",", ":")) + "\n")
    path.write_text("".join(lines))


if __name__ == "__main__":
    main()
