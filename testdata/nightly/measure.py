#!/usr/bin/env python3
"""Measures paired jobs against full ones: how close their values are, and how often their intervals hold.

    measure.py --dataset DATA --model OLD.pth --work DIR light=NEW-light.pth heavy=NEW-heavy.pth
    measure.py ... --seeds 10                    # also coverage, over ten seeds
    measure.py ... --chain                       # the models are successive nights: each one corrects the one before

Each model is scored in full with seed 1, which is the truth, and with seed 2. It is also scored on a sample, alone and paired with the
old model. The tables compare each of these with the truth, for one aggregate: the root mean square of the difference relative to
that of the truth, the rank correlation of the magnitudes, and the overlap of what would be kept at four sparsities. Coverage is the
portion of the entries whose 95% interval from the paired job contains the value of the full job with the same seed. It is also given by
the number of sampled rows with the entry's feature.

The script needs only Python and the program shaver. Scores files stay in --work, so a second run is fast.
"""

import argparse
import csv
import json
import math
import pathlib
import subprocess

SPARSITIES = (0.8, 0.9, 0.95, 0.99)
LEAST = (5, 10, 20, 50, 200, 1000, math.inf)  # numbers of sampled rows that divide the features


class Bench:
    def __init__(self, options):
        self.o = options
        options.work.mkdir(parents=True, exist_ok=True)

    def shaver(self, *args):
        done = subprocess.run([self.o.shaver, *map(str, args)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, args))}: {done.stderr}")
        return done.stdout

    def score(self, name, model, *more, seed=1):
        """The scores of a model, and the processor seconds that they took (0 if they were there)."""
        out = self.o.work / f"{name}-{self.o.estimator}-s{seed}.arrow"
        args = ["nightly", "score", "--model", model, "--dataset", self.o.dataset, "--splits", self.o.splits, "--baseline", self.o.baseline]
        args += ["--estimator", self.o.estimator, "--seed", seed, "--out", out, "-o", "json", *more]
        return out, json.loads(self.shaver(*args))

    def full(self, name, model, seed=1):
        return self.score(f"{name}-full", model, seed=seed)

    def paired(self, name, model, previous, previous_model, seed=1):
        more = ["--previous", previous, "--previous-model", previous_model, "--sample", self.o.sample]
        return self.score(f"{name}-paired", model, *more, seed=seed)

    def compare(self, a, truth):
        text = self.shaver("scores", "compare", a, truth, "--aggregate", self.o.aggregate, "--sparsities", ",".join(map(str, SPARSITIES)), "-o", "json")
        found = json.loads(text)
        return [found["relative_rms"], found["spearman"], *(p["portion"] for p in found["overlap"])]

    def values(self, path):
        """By entry: (count, t, phi, abs, rms, and their paired errors or None)."""
        rows = csv.DictReader(self.shaver("scores", "export", path).splitlines())
        all = []
        for row in rows:
            for c in range(len([key for key in row if key.startswith("phi_")])):
                number = [float(row[f"{key}_{c}"]) for key in ("phi", "abs", "rms")]
                errors = [float(row[f"{key}_{c}"]) for key in ("se_paired", "abs_se_paired", "rms_se_paired")] if f"se_paired_{c}" in row else None
                all.append((int(row["count"]), float(row["t"] or "nan"), *number, errors))
        return all


def line(name, figures):
    return f"| {name} | " + " | ".join(f"{f:.3f}".lstrip("0") if f is not None else "-" for f in figures) + " |"


def accuracy(b, names):
    print(f"\n| | RMS | Spearman | " + " | ".join(f"kept at {s}" for s in SPARSITIES) + " |")
    print("|---|" + "---|" * (2 + len(SPARSITIES)))
    for name, model in names.items():
        old, _ = b.full("old", b.o.model)
        truth, _ = b.full(name, model)
        other, _ = b.full(name, model, seed=2)
        sample, _ = b.score(f"{name}-sample", model, "--sample", b.o.sample)
        twice, _ = b.score(f"{name}-twice", model, "--sample", 2 * b.o.sample)
        paired, report = b.paired(name, model, old, b.o.model)
        for what, scores in ((f"{name}: another seed on all rows", other), ("the sample alone", sample), ("a sample of the same cost", twice),
                             ("yesterday's scores", old), ("**paired**", paired)):  # fmt: skip
            print(line(what, b.compare(scores, truth)), flush=True)
        l = report["lineage"]
        print(f"<!-- {name}: error {l['error']:.4f}, plain {l['plain']:.4f}, reduction {l['reduction']:.1f} -->")


def root(values):
    return math.sqrt(sum(v * v for v in values))


def coverage(b, names):
    print("\n| | seeds | RMS | its prediction | phi | abs | rms | " + " | ".join(f"{a}-{z - 1}" if z < math.inf else f"{a}+" for a, z in zip(LEAST, LEAST[1:])) + " |")
    print("|---|" + "---|" * (6 + len(LEAST) - 1))
    for name, model in names.items():
        held, known = [0] * 3, [0] * 3
        bins = [[0, 0] for _ in LEAST[1:]]
        errors, predicted = [], []
        for seed in range(1, b.o.seeds + 1):
            old, _ = b.full("old", b.o.model, seed=seed)
            truth, _ = b.full(name, model, seed=seed)
            paired, report = b.paired(name, model, old, b.o.model, seed=seed)
            predicted.append(report["lineage"]["error"])
            off, size = [], []
            for (count, t, *found), (_, _, *want) in zip(b.values(paired), b.values(truth)):
                if count == 0:
                    continue
                off.append(found[0] - want[0])
                size.append(want[0])
                for k in range(3):
                    if math.isnan(t):
                        continue
                    inside = abs(found[k] - want[k]) <= t * found[3][k]
                    held[k] += inside
                    known[k] += 1
                    if k == 0:
                        for i, (least, most) in enumerate(zip(LEAST, LEAST[1:])):
                            if least <= count * b.o.sample < most:
                                bins[i][0] += inside
                                bins[i][1] += 1
            errors.append(root(off) / root(size))
        mean = lambda v: sum(v) / len(v)
        cells = [f"{100 * h / max(k, 1):.1f}" for h, k in zip(held, known)] + [f"{100 * h / k:.1f}" if k else "-" for h, k in bins]
        print(f"| {name} | {b.o.seeds} | {mean(errors):.4f} | {mean(predicted):.4f} | " + " | ".join(cells) + " |", flush=True)


def chain(b, names):
    """Each model corrects the paired scores of the model before it."""
    print("\n| night | RMS | predicted | yesterday's scores | reduction |\n|---|---|---|---|---|")
    previous, before = b.full("old", b.o.model)[0], b.o.model
    yesterday = previous
    for night, (name, model) in enumerate(names.items(), 1):
        truth, _ = b.full(name, model)
        paired, report = b.paired(f"chain-{name}", model, previous, before)
        l = report["lineage"]
        print(f"| {night} | {b.compare(paired, truth)[0]:.4f} | {l['error']:.4f} | {b.compare(yesterday, truth)[0]:.4f} | {l['reduction']:.0f} |", flush=True)
        previous, before, yesterday = paired, model, truth


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("retrained", nargs="+", metavar="NAME=FILE", help="retrained models")
    parser.add_argument("--dataset", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="the model before it was retrained")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for scores files")
    parser.add_argument("--shaver", default="shaver", help="the program (default: %(default)s)")
    parser.add_argument("--splits", default="train,val")
    parser.add_argument("--baseline", default="codebook")
    parser.add_argument("--estimator", default="multilinear")
    parser.add_argument("--aggregate", default="sum")
    parser.add_argument("--sample", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=0, help="number of seeds for coverage (default: no coverage)")
    parser.add_argument("--chain", action="store_true", help="the models are successive nights")
    options = parser.parse_args()
    names = dict(pair.split("=", 1) for pair in options.retrained)
    b = Bench(options)
    if options.chain:
        chain(b, names)
    elif options.seeds:
        coverage(b, names)
    else:
        accuracy(b, names)


if __name__ == "__main__":
    main()
