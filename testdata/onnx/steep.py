#!/usr/bin/env python3
"""Trains models whose derivatives are steep on real rows, prunes each by several estimators, and prints the table of docs/evidence/models.md.

    steep.py SHAVER FLIGHTS DIR [MODEL ...]

SHAVER is the program. FLIGHTS has train.csv.gz, val.csv.gz and test.csv.gz: a label and the id of each field within the field. DIR keeps
models, datasets, scores and measurements, so that an interrupted run continues. The structures are those of structures.py, with 8 columns,
and a DeepFM, which is not steep. Each is trained with the seeds 1, 2 and 3, for two epochs. The baseline is the codebook. The page has some of the lines.

A figure is a difference of test AUC from walks (permutation, rms) over the same rows, as the mean of the trainings. The number after ± is
the mean of the halves of their 95% intervals. It covers the test rows, which are the same for all trainings.
"""

import gzip
import json
import pathlib
import subprocess
import sys

import cases
import numpy as np
import torch
from torch import nn

MODELS = ["AFN", "InterHAt", "MaskNetParallel", "MaskNetSerial", "DeepFM"]
SPARSITIES = [".5", ".8", ".9", ".95", ".98"]
SEEDS = [1, 2, 3]
WALKS = "permutation"
JOBS = [  # title, estimator, rows, or 0 for all
    ("path", "path", 0),
    ("multilinear", "multilinear", 0),
    ("taylor", "taylor", 0),
    ("path, 100,000 rows", "path", 100000),
    ("path, 30,000 rows", "path", 30000),
]


def read(folder, split):
    with gzip.open(folder / f"{split}.csv.gz", "rt") as f:
        names = f.readline().strip().split(",")[1:]
        rows = np.loadtxt(f, delimiter=",", dtype=np.int64)
    return names, torch.tensor(rows[:, 0]).float(), torch.tensor(rows[:, 1:])


def structures(fields):
    """The classes of structures.py for these fields, and DeepFM."""
    cases.DIM, cases.FIELDS, cases.NAMES, cases.SIZES = 8, fields, [n for n, _ in fields], [s for _, s in fields]
    import structures

    class DeepFM(structures.Fields):
        def build(self):
            self.dnn = structures.mlp(structures.WIDTH, 64, 32)

        def logit(self, e, x):
            q = e.sum(1)
            return self.dnn(e.flatten(1)) + 0.5 * (q * q - (e * e).sum(1)).sum(1, keepdim=True)

    return {name: getattr(structures, name, DeepFM) for name in MODELS}


def train(build, seed, names, labels, ids, path):
    torch.manual_seed(seed)
    model = build()
    for table in model.tables.values():
        nn.init.normal_(table.weight, std=0.05)
    net, optimizer, loss = cases.ByName(model, names), torch.optim.Adam(model.parameters(), lr=2e-3), nn.BCELoss()
    for _ in range(2):
        for rows in torch.randperm(len(labels)).split(1024):
            optimizer.zero_grad()
            loss(net(*ids[rows].t()), labels[rows]).backward()
            optimizer.step()
    axes = {n: {0: "batch"} for n in [*names, "p"]}
    torch.onnx.export(net.eval(), tuple(ids[:3].t()), str(path), input_names=names, output_names=["p"], dynamic_axes=axes, dynamo=False, opset_version=17)


class Lab:
    def __init__(self, shaver, flights, folder):
        self.shaver, self.flights, self.folder, self.data = shaver, flights, folder, folder / "data"

    def run(self, *args):
        done = subprocess.run([self.shaver, *map(str, args)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, args))}: {done.stderr.strip().splitlines()[-1]}")
        return done.stdout

    def prepare(self, models):
        """Trains the models that are missing, and imports the rows."""
        missing = [(m, s) for m in models for s in SEEDS if not self.model(m, s).exists()]
        if missing:
            splits = {split: read(self.flights, split) for split in ("train", "val", "test")}
            names, labels, ids = splits["train"]
            sizes = torch.stack([i.max(0).values for _, _, i in splits.values()]).max(0).values + 1
            built = structures(list(zip(names, sizes.tolist())))
            for m, s in missing:
                train(built[m], s, names, labels, ids, self.model(m, s))
        if not self.data.exists():
            files = [a for split in ("train", "val", "test") for a in ("--" + split, self.flights / f"{split}.csv.gz")]
            self.run("dataset", "import", "csv", "--ids", "local", *files, "--model", self.model(models[0], SEEDS[0]), "--out", self.data)

    def model(self, name, seed):
        return self.folder / f"{name}.{seed}.onnx"

    def pruned(self, name, seed, estimator, rows, sparsity):
        base = self.folder / f"{name}.{seed}.{estimator}.{rows}"
        scores, out = base.with_name(base.name + ".arrow"), base.with_name(f"{base.name}.{sparsity}.onnx")
        if not scores.exists():
            limit = ["--max-rows", rows] if rows else []
            self.run("score", "--model", self.model(name, seed), "--dataset", self.data, "--estimator", estimator, *limit, "--seed", seed, "--out", scores)
        if not out.exists():
            self.run("prune", "--model", self.model(name, seed), "--scores", scores, "--sparsity", sparsity, "--calibrate", "--dataset", self.data, "--out", out)
        return out

    def evaluate(self, model, against):
        name = self.folder / f"{model.stem}-{against.stem}.json"
        if not name.exists():
            name.write_text(self.run("evaluate", "--model", model, "--against", against, "--dataset", self.data, "-o", "json"))
        return json.loads(name.read_text())

    def line(self, name, estimator, rows, metric="auc"):
        cells = []
        for t in SPARSITIES:
            all = [self.evaluate(self.pruned(name, s, estimator, rows, t), self.pruned(name, s, WALKS, rows, t))["against"][metric + "_difference"] for s in SEEDS]
            value, half = np.mean([d["value"] for d in all]), np.mean([(d["high"] - d["low"]) / 2 for d in all])
            cells.append(f"{value:+.4f} ± {half:.4f}".replace("0.", "."))
        return " | ".join(cells)

    def walks(self, name):
        unpruned = np.mean([self.evaluate(self.pruned(name, s, WALKS, 0, ".5"), self.model(name, s))["against"]["auc"] for s in SEEDS])
        cells = [np.mean([self.evaluate(self.pruned(name, s, "path", 0, t), self.pruned(name, s, WALKS, 0, t))["against"]["auc"] for s in SEEDS]) for t in SPARSITIES]
        return f"{unpruned:.4f}", [f"{c:.4f}".lstrip("0") for c in cells]


def main():
    shaver, flights, folder, *models = sys.argv[1:]
    lab, models = Lab(shaver, pathlib.Path(flights), pathlib.Path(folder)), models or MODELS
    lab.folder.mkdir(parents=True, exist_ok=True)
    lab.prepare(models)
    print("| | " + " | ".join(("t = " if i == 0 else "") + t for i, t in enumerate(SPARSITIES)) + " |\n|---" + "|---" * len(SPARSITIES) + "|")
    for name in models:
        unpruned, cells = lab.walks(name)
        print(f"| {name}, unpruned {unpruned.lstrip('0')}: walks | {' | '.join(cells)} |")
        for title, estimator, rows in JOBS:
            print(f"| {title} | {lab.line(name, estimator, rows)} |", flush=True)
        print(f"| path, calibrated LogLoss | {lab.line(name, 'path', 0, 'log_loss')} |", flush=True)


if __name__ == "__main__":
    main()
