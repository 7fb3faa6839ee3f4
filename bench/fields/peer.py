#!/usr/bin/env python3
"""Compares the values of fields with those of the package sage-importance, by the authors of SAGE.

    peer.py SHAVER --model m.pth --rows val.csv.gz --background 512 --permutations 1024

Three columns have values with 95% intervals:

- shaver score --players fields
- the package's PermutationEstimator, for an imputer in which each row reads the values of one other row
- the package's PermutationEstimator and MarginalImputer, which averages the predictions for all background rows before
  it takes the loss

The package calls the model in onnxruntime, on one thread. The processor times are of all three, and those of the package also
scaled to the mean half-width of shaver.

It needs numpy, onnx, onnxruntime and sage-importance.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import tempfile
import time

import numpy as np
import sage
from enumerate import SEED, encoded, run, session_of, state_of


class Other(sage.imputers.Imputer):
    """Reads an absent field from the second half of a row, which has the values of another row."""

    def __init__(self, model, fields):
        super().__init__(model)
        self.num_groups = fields

    def __call__(self, x, present):
        return self.model(np.where(present, x[:, : self.num_groups], x[:, self.num_groups :]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shaver", type=pathlib.Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=pathlib.Path, required=True)
    parser.add_argument("--background", type=int, default=512)
    parser.add_argument("--permutations", type=int, default=1024)
    args = parser.parse_args()
    shaver, random = args.shaver.resolve(), np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sizes, state = state_of(shaver, args.model, folder)
        names, label, ids = encoded(shaver, args.model, args.rows, None, sizes, folder)
        session = session_of(state, len(sizes), state["embedding.weight"], state.get("fc.weight"), 1)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        score = ["score", "--model", args.model, "--dataset", folder / "rows", "--splits", "train", "--players", "fields"]
        run(shaver, *score, "--seed", SEED, "--out", folder / "f.arrow")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        document = json.loads(run(shaver, "scores", "inspect", folder / "f.arrow", "-o", "json"))
    by_name = {v["field"]: v for v in document["field_values"]}
    values = np.array([by_name[n]["value"] for n in names])
    half = np.array([by_name[n]["high"] - by_name[n]["value"] for n in names])
    found = [(values, half, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime)]

    def probability(x):
        return 1 / (1 + np.exp(-session.run(None, {"ids": np.ascontiguousarray(x)})[0].astype(float)))

    background = ids[random.choice(len(ids), args.background, replace=False)]
    paired = np.hstack([ids, ids[random.integers(len(ids), size=len(ids))]])
    both = ((Other(probability, len(sizes)), paired, args.background), (sage.MarginalImputer(probability, background), ids, 1))
    for imputer, rows, factor in both:
        estimator = sage.PermutationEstimator(imputer, "cross entropy", random_state=SEED)
        began = time.process_time()
        # The first imputer takes one prediction for each that the second one takes for every background row.
        e = estimator(rows, label.astype(int), batch_size=64, thresh=1e-9, n_permutations=args.permutations * min(factor, 64), bar=False)
        found.append((e.values, 1.96 * e.std, time.process_time() - began))
    print("| field | " + " | ".join(("shaver", "package, one other row", f"package, mean of {args.background} rows")) + " |\n|---|---|---|---|")
    for i in np.argsort(-values):
        print(f"| {names[i]} | " + " | ".join(f"{v[i]:+.6f} ± {h[i]:.6f}" for v, h, _ in found) + " |")
    print("| mean half-width | " + " | ".join(f"{h.mean():.6f}" for _, h, _ in found) + " |")
    print("| processor time | " + " | ".join(f"{t:.1f} s" for _, _, t in found) + " |")
    print("| for the half-width of shaver | " + " | ".join(f"{t * (h.mean() / half.mean()) ** 2:.1f} s" for _, h, t in found) + " |")
    z = (found[1][0] - values) / np.hypot(found[1][1], half) * 1.96
    print(f"\nThe first two differ by at most {np.abs(z).max():.2f} standard errors, with a root mean square of {np.sqrt((z**2).mean()):.2f}.")


if __name__ == "__main__":
    main()
