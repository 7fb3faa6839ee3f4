#!/usr/bin/env python3
"""Writes terms.jsonl: the terms of exported models at masked tables, by PyTorch's autograd in float64.

    make.py                 write the file next to this script
    make.py --out DIR       write it to DIR

For each model of MODELS it drops about 60% of the entries of all tables, which then read a baseline. Let f be a row's logit
with these tables, and l the loss of a*f + b. Then the terms of an entry that is kept, which differs from its baseline by
delta, are

    first:  the sum over the rows of l'(a*f + b) * a * df/dentry * delta
    second: the sum over the rows of l''(a*f + b) * (a * df/dentry * delta)^2

The modules are those from which the graphs were exported. README.md says what the file holds, and with which versions
it was made.
"""

import argparse
import copy
import csv
import importlib.util
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent
sys.path.insert(0, str(DATA / "onnx"))

import make as exporting  # noqa: E402
from packages import FIELDS, float64, np, nn, quiet, torch  # noqa: E402

import onnx  # noqa: E402

ROWS = 20
DROPPED = 0.6
SCALE, OFFSET = 0.8, -0.3

# Models of testdata/onnx.
MODELS = [
    "fuxictr-autoint", "deepctr-torch-autoint", "pytorch-fm-autoint", "torch-rechub-autoint",
    "deepctr-torch-din", "fuxictr-din", "torch-rechub-din", "deepctr-torch-bags", "fuxictr-sum", "torch-rechub-youtube",
    "torch-rechub-mmoe", "fuxictr-deepfm", "fuxictr-dcnv2-stacked", "fuxictr-dcnv2-mixture", "recbole-xdeepfm", "fuxictr-fibinet",
    "fuxictr-masknet", "fuxictr-finalmlp", "deepctr-torch-pnn", "deepctr-torch-ifm", "ncf", "two-classes",
]


class Net:
    """What a model needs: the logits [rows] of its module for the ids and dense values of rows, and the losses.

    labels: the labels of the rows for each loss.
    lists: whether row 0 of a table may be a pad, which is never dropped.
    export: the description of the graph, if its folder has none like those of testdata/onnx.
    """

    def __init__(self, module, logits, labels, lists, export=None):
        self.module, self.logits, self.labels, self.lists, self.export = module, logits, labels, lists, export


def drawn(count=ROWS):
    return {"logistic": np.random.default_rng(4).integers(0, 2, count).tolist()}


def exported(name):
    """A model of testdata/onnx with the first rows of its description."""
    net, values = exporting.network(name)
    document = json.loads(next(iter(sorted((DATA / "onnx").glob(name + ".*json")))).read_text())

    def logits(module):
        args = [a.double() if a.is_floating_point() else a for a in exporting.arguments(net, values, 0, ROWS)]
        return logit_of(module(*args).reshape(ROWS, -1), document["logit"])

    return Net(net.module, logits, drawn(), any(f.length for f in net.fields))


def logit_of(y, how):
    if how == "classes":
        return torch.log(y[:, 1]) - torch.log(y[:, 0])
    return y[:, 0] if how == "output" else torch.log(y[:, 0]) - torch.log1p(-y[:, 0])


def script(folder):
    """The module make.py of another folder."""
    spec = importlib.util.spec_from_file_location(folder + "_make", DATA / folder / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(module, path):
    """Gives a module the weights of its graph, whose tensors have the names of the module's."""
    graph = onnx.load(path).graph
    state = {t.name: torch.from_numpy(onnx.numpy_helper.to_array(t).copy()) for t in graph.initializer}
    for n in graph.node:  # the exporter stores equal tensors once
        if n.op_type == "Identity" and n.input[0] in state:
            state[n.output[0]] = state[n.input[0]]
    wanted = {k for k in module.state_dict() if not k.endswith("num_batches_tracked")}
    assert wanted <= state.keys(), wanted - state.keys()
    module.load_state_dict({k: state[k] for k in wanted}, strict=False)
    return module.eval()


def rows_of(path, label, names):
    """The first rows of a CSV file: labels, and for each name a list of ids for each row."""
    with open(path) as f:
        rows = [r for r, _ in zip(csv.DictReader(f), range(ROWS))]
    return [float(r[label]) for r in rows], [[[int(v) for v in r[n].split("|") if v] for r in rows] for n in names]


def export_of(file, output, names, sizes, lengths, columns):
    fields = [{"input": n, "column": 0, "rows": s} | ({"length": k} if k else {}) for n, s, k in zip(names, sizes, lengths)]
    return {"file": file, "output": output, "fields": fields, "ids": np.concatenate(columns, axis=1).tolist(), "values": [[]] * ROWS}


def history(name):
    """A model of testdata/histories with the first rows of its log."""
    made = script("histories")
    names = made.NAMES if name == "din" else ["user", "item", "items"]
    module = load(made.DIN2() if name == "din" else made.TwoTowers(), DATA / "histories" / (name + ".onnx"))
    labels, cells = rows_of(DATA / "histories" / "log.csv", "label", names)
    lengths = [made.LENGTH if n in ("items", "categories") else 0 for n in names]
    columns = [np.array([c + [0] * (max(1, k) - len(c)) for c in column]) for column, k in zip(cells, lengths)]
    sizes = [{"user": made.USERS, "item": made.ITEMS, "items": made.ITEMS}.get(n, made.CATEGORIES) for n in names]

    def logits(module):
        p = module(*[torch.from_numpy(c if k else c[:, 0]) for c, k in zip(columns, lengths)]).reshape(ROWS)
        return torch.log(p) - torch.log1p(-p)

    export = export_of(f"../histories/{name}.onnx", "probability", names, sizes, lengths, columns)
    return Net(module, logits, {"logistic": [int(v) for v in labels]}, True, export)


def task(name):
    """A task of the model in testdata/tasks."""
    made = script("tasks")
    module = load(made.SharedBottom(), DATA / "tasks" / "shared-bottom.onnx")
    names, sizes = [n for n, _ in FIELDS], [s for _, s in FIELDS]
    with open(DATA / "tasks" / "log.csv") as f:
        rows = [r for r, _ in zip(csv.DictReader(f), range(ROWS))]
    columns = [np.array([[int(r[n].split("-")[1])] for r in rows]) for n in names]

    def logits(module):
        p = module(*[torch.from_numpy(c[:, 0]) for c in columns])[made.TASKS.index(name)].reshape(ROWS)
        return torch.log(p) - torch.log1p(-p)

    export = export_of("../tasks/shared-bottom.onnx", name, names, sizes, [0] * len(names), columns)
    return Net(module, logits, {"logistic": [int(r[name]) for r in rows]}, False, export)


def rating(name):
    """An output of the model in testdata/ratings, with both losses."""
    made = script("ratings")
    module = load(made.Ratings(), DATA / "ratings" / "ratings.onnx")
    names, sizes = [n for n, _ in made.FIELDS], [s for _, s in made.FIELDS]
    labels, cells = rows_of(DATA / "ratings" / "train.csv", "rating", names)
    columns = [np.array(c) for c in cells]

    def logits(module):
        return module(*[torch.from_numpy(c[:, 0]) for c in columns])[["rating", "bounded"].index(name)].reshape(ROWS)

    export = export_of("../ratings/ratings.onnx", name, names, sizes, [0] * len(names), columns)
    return Net(module, logits, {"squared": labels} | drawn(), False, export)


def loss_of(kind, z, label):
    """The loss [rows] of calibrated logits."""
    if kind == "squared":
        return (z - label) ** 2
    return nn.functional.softplus(z) - label * z


def look_up(ids, weight, *_, **__):
    """An embedding without its padding, whose derivative PyTorch omits."""
    return weight[ids]


def terms(name, net):
    """The line of a model."""
    random = np.random.default_rng(sum(name.encode()))
    with float64():
        module = copy.deepcopy(net.module).double()
        tables = [m.weight for m in module.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag)) and m.weight.shape[1] > 1]
        found = []
        for table in tables:
            entries = table.detach().clone()
            baseline = torch.from_numpy(random.normal(0, 0.3, table.shape[1]).astype(np.float32)).double()
            dropped = torch.from_numpy(random.random(table.shape) < DROPPED)
            if net.lists:
                dropped[0] = False
            with torch.no_grad():
                table.copy_(torch.where(dropped, baseline, entries))
            found.append({"first_column": short(entries[:, 0].tolist()), "baseline": baseline.tolist(), "dropped": ["".join("01"[v] for v in row) for row in dropped.int().tolist()]})
            table.requires_grad_()
        logits = net.logits(module)
        slopes = [torch.autograd.grad(logits[r], tables, retain_graph=True, allow_unused=True) for r in range(ROWS)]
        losses = {}
        for kind, labels in net.labels.items():
            z = (SCALE * logits.detach() + OFFSET).requires_grad_()
            by = torch.autograd.grad(loss_of(kind, z, torch.tensor(labels, dtype=torch.float64)).sum(), z, create_graph=True)[0]
            bend = torch.autograd.grad(by.sum(), z)[0]
            first, second = [], []
            for k, table in enumerate(tables):
                delta = table.detach() - torch.tensor(found[k]["baseline"])
                kept = torch.tensor([[v == "0" for v in row] for row in found[k]["dropped"]])
                change = torch.stack([torch.zeros_like(delta) if s[k] is None else SCALE * s[k].to_dense() * delta for s in slopes])
                first.append(short((by.detach()[:, None, None] * change).sum(dim=0)[kept].tolist()))
                second.append(short((bend[:, None, None] * change**2).sum(dim=0)[kept].tolist()))
            losses[kind] = {"labels": labels, "first": first, "second": second}
    line = {"model": name, "scale": SCALE, "offset": OFFSET, "logits": [round(v, 7) for v in logits.tolist()], "tables": found, "losses": losses}
    return line | ({"export": net.export} if net.export else {})


def short(values):
    return [float(f"{v:.7g}") for v in values]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out
    nn.functional.embedding = look_up
    builds = {name: (exported, name) for name in MODELS}
    builds |= {"histories-" + name: (history, name) for name in ("din", "two-towers")}
    builds |= {"tasks-" + name: (task, name) for name in ("click", "buy")}
    builds |= {"ratings-" + name: (rating, name) for name in ("rating", "bounded")}
    lines = []
    for name, (build, of) in builds.items():
        with quiet():
            line = terms(name, build(of))
        largest = {kind: max(abs(v) for t in loss["first"] for v in t) for kind, loss in line["losses"].items()}
        print(name, {kind: round(v, 3) for kind, v in largest.items()}, flush=True)
        lines.append(json.dumps(line, separators=(",", ":")) + "\n")
    (out / "terms.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
