#!/usr/bin/env python3
"""Evaluates every graph of this folder with shaver and compares the logits with onnxruntime's.

    loop.py SHAVER            SHAVER is the program
    loop.py SHAVER NAME ...   only these, for example fuxictr-fm.legacy

It needs no packages. Each graph is evaluated on its 32 rows, with labels that are made up.
"""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 2e-6


def run(*args):
    p = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr.strip())
    return p.stdout


def logits(shaver, document, name):
    facts = json.loads(run(shaver, "model", "inspect", HERE / (name + ".onnx"), "-o", "json"))
    if "raw" in document:  # the import computes ids from the columns of the inputs
        names = [f["name"] for f in facts["fields"] if "computed" not in f]
        names += [n for n in document["raw"] if n not in names]
        rows = [[i % 2] + ["|".join(map(str, document["raw"][n][i])) for n in names] for i in range(len(document["ids"]))]
        return evaluate(shaver, name, [["label"] + names] + rows, [])
    # The fields and dense inputs of a graph in its own order, under its own names.
    columns, first = {}, 0
    for f in document["fields"]:
        n = f.get("length", 1)
        columns[f["input"], f["column"]] = ["|".join(str(v) for v in row[first:first + n]) for row in document["ids"]]
        first += n
    columns |= {(f["input"], f["column"]): [row[i] for row in document["values"]] for i, f in enumerate(document["dense"])}

    def column(f):
        return columns[f["input"], f.get("column", 0)]

    fields, dense = facts["fields"], facts.get("dense") or []
    rows = zip([i % 2 for i in range(len(document["ids"]))], *[column(f) for f in fields + dense])
    numbers = ["--dense", ",".join(f"d{i}={f['name']}" for i, f in enumerate(dense))] if dense else []
    return evaluate(shaver, name, [["label"] + [f"f{i}" for i in range(len(fields))] + [f"d{i}" for i in range(len(dense))], *rows], numbers)


def evaluate(shaver, name, rows, numbers):
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        with open(at / "rows.csv", "w") as f:
            csv.writer(f, lineterminator="\n").writerows(rows)
        run(shaver, "dataset", "import", "csv", "--train", at / "rows.csv", "--test", at / "rows.csv", "--model", HERE / (name + ".onnx"), *numbers, "--out", at / "data")
        run(shaver, "evaluate", "--model", HERE / (name + ".onnx"), "--dataset", at / "data", "--predictions", at / "p.csv")
        with open(at / "p.csv") as f:
            return [float(r["logit"]) for r in csv.DictReader(f)]


def main():
    shaver, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    failed = 0
    for path in sorted(HERE.glob("*.json")):
        name = path.name.removesuffix(".json")
        if names and name not in names:
            continue
        document = json.loads(path.read_text())
        try:
            got = logits(shaver, document, name)
            worst = max(abs(a - b) for a, b in zip(got, document["logits"], strict=True))
            text, bad = f"differs by {worst:.1e}", worst > TOLERANCE
        except Exception as e:
            text, bad = str(e), True
        failed += bad
        print(f"{name}: {'FAILED: ' if bad else ''}{text}", flush=True)
    if failed:
        sys.exit(f"{failed} failed")


main()
