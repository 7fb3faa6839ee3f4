#!/usr/bin/env python3
"""Takes every checkpoint of this folder through shaver and back into its package.

    loop.py SHAVER            SHAVER is the program
    loop.py SHAVER NAME ...   only these, for example fuxictr-deepfm

For each checkpoint whose model is one of shaver's kinds, except that of PyTorch's old format: evaluate (logits, AUC and LogLoss must be those of the
package), score, prune to half of the entries as a dense file and as a compact one, load both with strict=True, and
compare the package's logits with those of evaluate on the pruned file.
"""

import csv
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import cases
from packages import float64, logging, logits_instead, np, randomise, rows, torch

HERE = pathlib.Path(__file__).resolve().parent
COUNT = 400
LOGIT, MEASURE = 5e-6, 1e-6  # largest differences


def statement(case):
    """What has to be said about a checkpoint: all that can be said."""
    kind = case.kind.split(" ")[0].replace("-", "")
    said = {"kind": kind, "activation": "relu"}
    if case.family in ("recbole", "pytorch-fm"):
        said["field_dims"] = [size for _, size in case.fields]
    return said


def run(*args):
    p = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"{' '.join(map(str, args))}: {p.stderr.strip()}")
    return p.stdout


def measures(logits, labels):
    """AUC and LogLoss in float64."""
    from sklearn.metrics import roc_auc_score

    loss = np.logaddexp(0, logits) - labels * logits
    return roc_auc_score(labels, logits), float(loss.mean())


def package_logits(case, model, ids):
    with torch.no_grad(), logits_instead(), float64():
        return case.call(model.double(), torch.from_numpy(ids), torch.zeros(len(ids), 0, dtype=torch.float64)).flatten().numpy()


def load(case, path):
    """The package's model with the weights of a file, and no others."""
    from safetensors.torch import load_file

    return cases.strict(randomise(case.model(), 1), load_file(path))


def loop(shaver, case):
    ids, _ = rows(9, [size for _, size in case.fields], count=COUNT)
    labels = np.random.default_rng(10).integers(0, 2, COUNT)
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        source = at / case.file
        shutil.copyfile(HERE / case.file, source)
        (at / (case.file + ".json")).write_text(json.dumps(statement(case)))
        if case.name == "wrapped-ambiguous":
            run(shaver, "model", "convert", source, at / "one.safetensors", "--state-dict", "model", "--dense")
            source = at / "one.safetensors"
        with open(at / "rows.csv", "w") as f:
            w = csv.writer(f, lineterminator="\n")
            w.writerow(["label"] + [name for name, _ in case.fields])
            w.writerows([[y, *row] for y, row in zip(labels, ids.tolist())])
        run(shaver, "dataset", "import", "csv", "--train", at / "rows.csv", "--test", at / "rows.csv", "--model", source, "--out", at / "data")

        def evaluate(model):
            """shaver's logits, AUC and LogLoss."""
            out = json.loads(run(shaver, "evaluate", "--model", model, "--dataset", at / "data", "--predictions", at / "p.csv", "--force", "-o", "json"))
            with open(at / "p.csv") as f:
                logits = np.array([float(r["logit"]) for r in csv.DictReader(f)])
            text = json.dumps(out)
            return logits, find(out, "auc"), find(out, "logloss"), text

        def find(o, key):
            if isinstance(o, dict):
                for k, v in o.items():
                    if k.lower().replace("_", "") == key and isinstance(v, (int, float)):
                        return v
                    got = find(v, key)
                    if got is not None:
                        return got
            return None

        worst = []

        def compare(model, file):
            expected = package_logits(case, model, ids)
            got, auc, loss, text = evaluate(file)
            a, l = measures(expected, labels)
            assert np.abs(got - expected).max() < LOGIT, f"logits differ by {np.abs(got - expected).max():.2g}"
            assert abs(auc - a) < MEASURE and abs(loss - l) < MEASURE, (auc, a, loss, l, text)
            worst.append(float(np.abs(got - expected).max()))

        compare(case.model(), source)
        run(shaver, "score", "--model", source, "--dataset", at / "data", "--estimator", "permutation", "--passes", "1", "--out", at / "s.arrow")
        prune = (shaver, "prune", "--model", source, "--scores", at / "s.arrow", "--sparsity", "0.5", "--out")
        run(*prune, at / "dense.safetensors", "--dense")
        compare(load(case, at / "dense.safetensors"), at / "dense.safetensors")
        run(*prune, at / "compact.safetensors")
        run(shaver, "model", "convert", at / "compact.safetensors", at / "inflated.safetensors", "--dense")
        compare(load(case, at / "inflated.safetensors"), at / "compact.safetensors")
    print(f"{case.name}: evaluated, scored, pruned and loaded with strict=True; logits differ by at most {max(worst):.1e}", flush=True)


def main():
    shaver, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    logging.disable(logging.WARNING)
    failed = 0
    for case in cases.CASES:
        if case.kind and not case.legacy and (not names or case.name in names):
            try:
                loop(shaver, case)
            except Exception as e:
                failed += 1
                print(f"{case.name}: FAILED: {e}", flush=True)
    if failed:
        sys.exit(f"{failed} failed")


main()
