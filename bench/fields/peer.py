#!/usr/bin/env python3
"""Compares the values of fields with those of the package sage-importance, by the authors of SAGE.

    peer.py SHAVER --model m.pth --rows val.csv.gz

It prints values with 95% intervals and the processor time:

- shaver score --players fields --baseline codebook, and the package's PermutationEstimator and DefaultImputer
- shaver score --players fields, and the package's PermutationEstimator with an imputer in which each row reads the values of one other row
- the package's PermutationEstimator and MarginalImputer, which averages the predictions for all background rows before it takes the loss

The package calls the model in onnxruntime, on one thread.

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
from enumerate import SEED, encoded, means_of, run, session_of, state_of, with_absent


class Other(sage.imputers.Imputer):
    """Reads an absent field from the second half of a row, which has the values of another row."""

    def __init__(self, model, fields):
        super().__init__(model)
        self.num_groups = fields

    def __call__(self, x, present):
        return self.model(np.where(present, x[:, : self.num_groups], x[:, self.num_groups :]))


def scored(shaver, model, folder, names, baseline) -> tuple[np.ndarray, np.ndarray, float]:
    """The values of shaver for the rows of folder, their half-widths and the processor time."""
    out = folder / f"{baseline}.arrow"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    flags = ["--splits", "train", "--players", "fields", "--baseline", baseline, "--seed", SEED]
    run(shaver, "score", "--model", model, "--dataset", folder / "rows", *flags, "--out", out)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    document = json.loads(run(shaver, "scores", "inspect", out, "-o", "json"))
    by_name = {v["field"]: v for v in document["field_values"]}
    values, high = (np.array([by_name[n][k] for n in names]) for k in ("value", "high"))
    return values, high - values, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shaver", type=pathlib.Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=pathlib.Path, required=True)
    parser.add_argument("--background", type=int, default=128)
    parser.add_argument("--permutations", type=int, default=32768)
    args = parser.parse_args()
    shaver, random = args.shaver.resolve(), np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sizes, state = state_of(shaver, args.model, folder)
        names, label, ids = encoded(shaver, args.model, args.rows, None, sizes, folder)
        own = {b: scored(shaver, args.model, folder, names, b) for b in ("codebook", "marginal")}
    tables = with_absent(state, sizes, means_of(ids, sizes))
    session = session_of(state, len(sizes), *tables, 1)

    def probability(x):
        return 1 / (1 + np.exp(-session.run(None, {"ids": np.ascontiguousarray(x)})[0].astype(float)))

    def package(imputer, rows, permutations):
        estimator = sage.PermutationEstimator(imputer, "cross entropy", random_state=SEED)
        began = time.process_time()
        e = estimator(rows, label.astype(int), batch_size=64, thresh=1e-9, n_permutations=permutations, bar=False)
        return e.values, 1.96 * e.std, time.process_time() - began

    sets = {
        "shaver, codebook": own["codebook"],
        "package, DefaultImputer": package(sage.DefaultImputer(probability, sizes.sum() + np.arange(len(sizes))), ids, args.permutations),
        "shaver, marginal": own["marginal"],
        "package, one other row": package(Other(probability, len(sizes)), np.hstack([ids, ids[random.integers(len(ids), size=len(ids))]]), args.permutations),
    }
    background = ids[random.choice(len(ids), args.background, replace=False)]
    # Every prediction becomes one for each background row.
    sets["package, MarginalImputer"] = package(sage.MarginalImputer(probability, background), ids, args.permutations // 16)
    print("| field | " + " | ".join(sets) + " |\n" + "|---" * (len(sets) + 1) + "|")
    for i in np.argsort(-own["marginal"][0]):
        print(f"| {names[i]} | " + " | ".join(f"{v[i]:+.4f} ± {h[i]:.4f}" for v, h, _ in sets.values()) + " |")
    print("| mean half-width | " + " | ".join(f"{h.mean():.5f}" for _, h, _ in sets.values()) + " |")
    print("| processor time | " + " | ".join(f"{t:.1f} s" for _, _, t in sets.values()) + " |")
    mean = own["marginal"][1].mean()
    print(f"| for {mean:.5f} | " + " | ".join(f"{t * (h.mean() / mean) ** 2:.1f} s" for _, h, t in sets.values()) + " |\n")
    found = list(sets.values())
    for (v, h, _), (w, k, _) in ((found[0], found[1]), (found[2], found[3])):
        z = (v - w) / np.hypot(h, k) * 1.96
        print(f"They differ by at most {np.abs(z).max():.2f} standard errors, with a root mean square of {np.sqrt((z**2).mean()):.2f}.")


if __name__ == "__main__":
    main()
