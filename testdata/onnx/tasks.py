#!/usr/bin/env python3
"""Trains models of three tasks (MMoE, PLE and ESMM), and compares shaver with onnxruntime, with autograd, and orders with each other.

    tasks.py check SHAVER DIR                     on synthetic rows with weights and missing labels
    tasks.py table SHAVER DIR RATINGS [MODEL ...]  on ratings; prints the table of docs/evidence/models.md

SHAVER is the program. DIR keeps datasets, models, scores and measurements, so that an interrupted run continues. RATINGS is the folder
ml-100k of recbole 1.2.1, recbole/dataset_example/ml-100k in its package: 100,000 ratings of real users and items (MovieLens). The labels
are ratings of at least 3, at least 4, and 5.

check: the logits of every output are those of onnxruntime, and the value by taylor of every entry is the derivative by autograd, in
float64, of the weighted loss of all tasks times the entry.

table: each model is trained with the seeds 1, 2 and 3, and pruned by a path for all tasks and by a path for each. A cell is the loss of test AUC of the
task that loses most, for all tasks, and for the best of the single-task orders. The third number is the difference of the two on one task, that on
which the latter loses most, with the half of its 95% interval. val chooses the best order and the task, and test judges. Means over the seeds.
"""

import csv
import json
import pathlib
import subprocess
import sys

import numpy as np
import onnxruntime
import pyarrow as pa
import torch
from scipy import stats
from torch import nn

DIM, EXPERTS, WIDTH, SEEDS = 8, 3, 32, [1, 2, 3]
SPARSITIES = [".5", ".7", ".8", ".9"]


def mlp(*sizes, last=True):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*(layers[:-1] if last else layers))


class Model(nn.Module):
    """A model returns the probabilities of its tasks, each [rows]."""

    def __init__(self, sizes, tasks):
        super().__init__()
        self.tasks, self.width = tasks, DIM * len(sizes)
        self.tables = nn.ModuleList(nn.Embedding(n, DIM) for n in sizes)
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.05)
        self.build()

    def forward(self, *ids):
        x = torch.cat([table(i) for table, i in zip(self.tables, ids)], 1)
        return tuple(p[:, 0] for p in self.probabilities(x))


class MMoE(Model):
    def build(self):
        self.experts = nn.ModuleList(mlp(self.width, WIDTH, last=False) for _ in range(EXPERTS))
        self.gates = nn.ModuleList(nn.Linear(self.width, EXPERTS) for _ in self.tasks)
        self.towers = nn.ModuleList(mlp(WIDTH, 16, 1) for _ in self.tasks)

    def probabilities(self, x):
        e = torch.stack([expert(x) for expert in self.experts], 1)
        return [torch.sigmoid(tower((torch.softmax(gate(x), 1).unsqueeze(2) * e).sum(1))) for gate, tower in zip(self.gates, self.towers)]


class PLE(Model):
    """Two levels. Each task has an expert of its own, and two are shared; the gates of the shared ones choose from all."""

    def build(self):
        n, self.levels = len(self.tasks), nn.ModuleList()
        for width in (self.width, WIDTH):
            own, shared = ([mlp(width, WIDTH, last=False) for _ in range(k)] for k in (n, 2))
            gates = [nn.Linear(width, 3) for _ in range(n)] + [nn.Linear(width, n + 2)]
            self.levels.append(nn.ModuleList(nn.ModuleList(m) for m in (own, shared, gates)))
        self.towers = nn.ModuleList(mlp(WIDTH, 16, 1) for _ in self.tasks)

    def probabilities(self, x):
        xs = [x] * (len(self.tasks) + 1)
        for own, shared, gates in self.levels:
            common = [s(xs[-1]) for s in shared]
            mine = [o(v) for o, v in zip(own, xs)]
            among = [[m, *common] for m in mine] + [mine + common]
            xs = [(torch.softmax(g(v), 1).unsqueeze(2) * torch.stack(e, 1)).sum(1) for g, v, e in zip(gates, xs, among)]
        return [torch.sigmoid(tower(v)) for tower, v in zip(self.towers, xs)]


class ESMM(Model):
    """The probability of each task is that of the one before it times a conditional one."""

    def build(self):
        self.towers = nn.ModuleList(mlp(self.width, WIDTH, 1) for _ in self.tasks)

    def probabilities(self, x):
        out = []
        for tower in self.towers:
            p = torch.sigmoid(tower(x))
            out.append(p * out[-1] if out else p)
        return out


MODELS = {m.__name__: m for m in (MMoE, PLE, ESMM)}


class Rows:
    def __init__(self, data, split, fields, tasks):
        table = pa.ipc.open_file(data / f"{split}.arrow").read_all()
        column = lambda name: torch.tensor(table[name].to_numpy(zero_copy_only=False).astype(np.float64))
        self.ids = torch.stack([column(f) for f in fields]).long()
        self.labels = torch.stack([column("label" if t == 0 else task) for t, task in enumerate(tasks)])
        self.weights = column("weight") if "weight" in table.column_names else torch.ones(self.ids.shape[1], dtype=torch.float64)

    def loss(self, model, rows, of):
        """The weighted mean loss of the labels that are not missing. of are the weights of the tasks."""
        total = count = 0
        for p, y, weight in zip(model(*self.ids[:, rows]), self.labels[:, rows], of):
            known = y >= 0  # -1 is a missing label
            w = self.weights[rows][known].to(p.dtype) * weight
            total = total + (w * nn.functional.binary_cross_entropy(p[known], y[known].to(p.dtype), reduction="none")).sum()
            count = count + w.sum()
        return total / count


class Lab:
    def __init__(self, shaver, folder, tasks, fields, weight=()):
        self.shaver, self.folder, self.tasks, self.fields = shaver, pathlib.Path(folder), tasks, fields
        self.data, self.weight = self.folder / "data", weight
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self, *args):
        done = subprocess.run([self.shaver, *map(str, args)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, args))}: {done.stderr.strip().splitlines()[-1]}")
        return done.stdout

    def prepare(self, rows):
        if self.data.exists():
            return
        log = self.folder / "log.csv"
        with open(log, "w", newline="") as f:
            csv.writer(f).writerows([self.tasks + self.fields + list(self.weight), *rows()])
        weight = ["--weight", *self.weight] if self.weight else []
        self.run("dataset", "import", "csv", "--raw", log, "--label", ",".join(self.tasks), "--columns", ",".join(self.fields), *weight, "--out", self.data)

    def rows(self, split):
        return Rows(self.data, split, self.fields, self.tasks)

    def model(self, name, seed, epochs):
        """The path of a trained model, and the model."""
        path = self.folder / f"{name}.{seed}.onnx"
        sizes = [f["size"] for f in json.loads((self.data / "dataset.json").read_text())["fields"]]
        torch.manual_seed(seed)
        model = MODELS[name](sizes, self.tasks)
        if path.exists():
            model.load_state_dict(torch.load(path.with_suffix(".pt")))
            return path, model
        train, optimizer = self.rows("train"), torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5)
        for _ in range(epochs):
            for part in torch.randperm(train.ids.shape[1]).split(512):
                optimizer.zero_grad()
                train.loss(model, part, [1] * len(self.tasks)).backward()
                optimizer.step()
        torch.save(model.state_dict(), path.with_suffix(".pt"))
        axes = {n: {0: "batch"} for n in self.fields + self.tasks}
        torch.onnx.export(model.eval(), tuple(train.ids[:, :3]), str(path), input_names=self.fields, output_names=self.tasks, dynamic_axes=axes, dynamo=False, opset_version=17)
        return path, model


def synthetic():
    draw = np.random.default_rng(1)
    sizes, n = [50, 80, 12, 5], 6000
    ids = np.stack([draw.integers(size, size=n) for size in sizes], 1)
    z = sum(draw.normal(size=(size, 3))[i] for size, i in zip(sizes, ids.T)) - [0, 0.5, 1]
    labels = draw.random((n, 3)) < 1 / (1 + np.exp(-z))
    for y, row in zip(labels.astype(int).tolist(), ids.tolist()):
        y[1] = y[1] if y[0] else ""  # known after a click only
        y[2] = y[2] if draw.random() < 0.8 else ""
        yield y + [f"v{i}" for i in row] + [draw.choice(["0.5", "1", "2.25"])]


def check(shaver, folder):
    lab = Lab(shaver, folder, ["click", "buy", "like"], ["user", "item", "category", "hour"], ["weight"])
    lab.prepare(synthetic)
    test, of = lab.rows("test"), {"click": 1, "buy": 2.5, "like": 0.125}
    every, missing = slice(None), int((test.labels < 0).sum())
    for name in MODELS:
        path, model = lab.model(name, 1, 5)
        outputs = onnxruntime.InferenceSession(str(path)).run(lab.tasks, {f: i.numpy() for f, i in zip(lab.fields, test.ids)})
        worst = 0
        for t, task in enumerate(lab.tasks):
            out = lab.folder / f"{name}.{task}.csv"
            lab.run("evaluate", "--model", path, "--dataset", lab.data, "--task", task, "--predictions", out, "--force")
            with open(out) as f:
                logits = np.array([float(r["logit"]) for r in csv.DictReader(f)])
            want = outputs[t][test.labels[t].numpy() >= 0].astype(np.float64)
            worst = max(worst, np.abs(logits - np.log(want / (1 - want))).max())
        scores = lab.folder / f"{name}.taylor.arrow"
        tasks = ",".join(f"{task}={w}" for task, w in of.items())
        lab.run("score", "--model", path, "--dataset", lab.data, "--task", tasks, "--splits", "test", "--estimator", "taylor", "--baseline", "zero", "--out", scores, "--force")
        phi = np.array(pa.ipc.open_file(scores).read_all()["phi"].to_pylist())
        model = model.double()
        model.zero_grad()
        loss = test.loss(model, every, list(of.values()))
        loss.backward()
        want = np.concatenate([(-table.weight.grad * table.weight).detach().numpy() for table in model.tables])
        error = np.abs(phi - want).max() / np.abs(want).max()
        print(f"{name}: logits within {worst:.1e}, {missing} missing labels, loss {loss:.6f}, {phi.size} values within {error:.1e} of the largest")
        if not (worst < 2e-5 and phi.shape == want.shape and error < 1e-5):
            sys.exit("the values differ")


def ratings(folder):
    read = lambda name: list(csv.reader(open(pathlib.Path(folder) / f"ml-100k.{name}", encoding="utf-8"), delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    users, items = {u[0]: u[1:] for u in read("user")}, {i[0]: i[2:] for i in read("item")}
    return [[*(int(float(r) >= least) for least in (3, 4, 5)), u, i, *users[u], *items[i]] for u, i, r, _ in read("inter")]


class Orders(Lab):
    def pruned(self, path, seed, tasks, sparsity):
        base = self.folder / f"{path.stem}.{'-'.join(tasks)}"
        scores, out = base.with_name(base.name + ".arrow"), base.with_name(f"{base.name}.{sparsity}.onnx")
        if not scores.exists():
            self.run("score", "--model", path, "--dataset", self.data, "--task", ",".join(tasks), "--estimator", "path", "--seed", seed, "--out", scores)
        if not out.exists():
            self.run("prune", "--model", path, "--scores", scores, "--sparsity", sparsity, "--out", out)
        return out

    def difference(self, model, against, task, split):
        """AUC of a model minus that of the other on a split, and the half of its interval, which is that of the rows."""
        name = self.folder / f"{model.stem}-{against.stem}.{task}.{split}.json"
        if not name.exists():
            name.write_text(self.run("evaluate", "--model", model, "--against", against, "--dataset", self.data, "--task", task, "--split", split, "-o", "json"))
        d = json.loads(name.read_text())["against"]["auc_difference"]
        return d["value"], (d["high"] - d["low"]) / 2

    def cell(self, name, seed, sparsity):
        path, _ = self.model(name, seed, 4)
        worst = lambda order, split: min((self.difference(order, path, task, split)[0], task) for task in self.tasks)
        joint, single = self.pruned(path, seed, self.tasks, sparsity), [self.pruned(path, seed, [task], sparsity) for task in self.tasks]
        best = max(single, key=lambda order: worst(order, "val"))  # val chooses the rival and the task, and test judges
        return worst(joint, "test")[0], worst(best, "test")[0], *self.difference(joint, best, worst(best, "val")[1], "test")


def interval(differences, halves):
    """The half of the 95% interval of the mean over trainings on the same rows: errors of the rows, and of the trainings."""
    n = len(differences)
    rows, trainings = np.mean((np.array(halves) / 1.96) ** 2), np.var(differences, ddof=1) / n
    degrees = (n - 1) * ((rows + trainings) / trainings) ** 2
    return stats.t.ppf(0.975, degrees) * np.sqrt(rows + trainings)


def table(shaver, folder, source, *names):
    lab = Orders(shaver, folder, ["fair", "good", "best"], ["user", "item", "age", "gender", "occupation", "zip", "year", "genres"])
    lab.prepare(lambda: ratings(source))
    print("| | " + " | ".join(("t = " if i == 0 else "") + t for i, t in enumerate(SPARSITIES)) + " |\n|---" + "|---" * len(SPARSITIES) + "|")
    for name in names or MODELS:
        cells = []
        for sparsity in SPARSITIES:
            a, b, d, half = zip(*(lab.cell(name, seed, sparsity) for seed in SEEDS))
            cells.append(f"{np.mean(a):+.4f}, {np.mean(b):+.4f}; {np.mean(d):+.4f} ± {interval(d, half):.4f}".replace("0.", "."))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    {"check": check, "table": table}[sys.argv[1]](*sys.argv[2:])
