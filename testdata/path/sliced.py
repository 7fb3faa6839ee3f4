#!/usr/bin/env python3
"""Removes fields and columns from exported models, and runs the new .onnx files in onnxruntime.

    sliced.py SHAVER            SHAVER is the program
    sliced.py SHAVER NAME ...   only the graphs whose name begins with a NAME, for example tasks- or fuxictr-autoint.legacy

The models are those of pruned.py. For each graph it removes the first field, every second field, and a column, each into an
.onnx file and a safetensors file. The outputs of onnxruntime for the .onnx file must be those that follow from the
logits of shaver evaluate --predictions for both files.

It needs numpy and onnxruntime.
"""

import csv
import json
import pathlib
import sys
import tempfile

import numpy as np
from pruned import TOLERANCE, columns_of, graphs, run, write

import onnxruntime

REFUSED = (  # what has no slice, or no .onnx file of one
    "remove that field too",  # the logit of some models is a product of two fields
    "no longer depends on the row",
    "expected the same number in all of them",
)


def outputs(path, document, kept):
    """What onnxruntime computes for the rows with the given fields of the document: a probability, or the output itself."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}
    rows = len(document["ids"])
    ids, values = np.array(document["ids"]), np.array(document["values"], np.float32).reshape(rows, -1)
    feed = {}
    for i in session.get_inputs():
        parts = [(f["column"], ids[:, at]) for n, (f, at) in enumerate(columns_of(document["fields"])) if n in kept and f["input"] == i.name]
        parts += [(f["column"], values[:, k : k + 1]) for k, f in enumerate(document["dense"]) if f["input"] == i.name]
        shape = [rows] + i.shape[1:]
        x = np.concatenate([x for _, x in sorted(parts, key=lambda p: p[0])], axis=1)
        if x.shape[1] != np.prod(shape[1:]):  # an input with dense inputs keeps its columns
            x = np.zeros((rows, np.prod(shape[1:])))
            for column, part in parts:
                x[:, column : column + part.shape[1]] = part
        feed[i.name] = x.astype(kinds[i.type]).reshape(shape)
    return session.run(None, feed)[0].reshape(rows).astype(np.float64)


def logits(shaver, model, rows, at, output=()):
    run(shaver, "evaluate", "--model", model, *output, "--dataset", rows, "--split", "train", "--predictions", at / "p.csv")
    with open(at / "p.csv") as f:
        return np.array([float(r["logit"]) for r in csv.DictReader(f)])


def check(shaver, model, document):
    """Returns the number of slices, and the largest difference between onnxruntime and shaver."""
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        output = ["--model-output", document["output"]]
        facts = json.loads(run(shaver, "model", "inspect", model, *output, "-o", "json"))
        flags = write(at, document, facts)
        rows = at / "rows"
        data = ["--train", at / "rows.csv", "--val", at / "rows.csv"]
        run(shaver, "dataset", "import", "csv", *data, "--model", model, *output, *flags, "--out", rows)
        names = [f"f{i}" for i in range(len(facts["fields"]))]  # those of the dataset
        numbers = {(f["input"], f["column"]): n for n, f in enumerate(document["fields"])}
        order = [numbers[f["input"], f.get("column", 0)] for f in facts["fields"]]
        slices, most = 0, 0.0
        for gone, columns in ((names[:1], None), (names[1::2], None), ([], 1)):
            if len(gone) == len(names) or columns is None and not gone:
                continue
            flags = ["--drop-fields", ",".join(gone)] if gone else []
            if columns:
                width = min(t["dim"] for f in facts["fields"] for t in f["tables"] if t["player"])
                if width == 1:
                    continue
                flags = ["--columns", width - 1]
            small, dense = at / "small.onnx", at / "small.safetensors"
            try:
                for file in (small, dense):
                    run(shaver, "prune", "--model", model, *output, "--dataset", rows, *flags, "--out", file, "--force")
            except RuntimeError as e:
                if any(text in str(e) for text in REFUSED):
                    continue
                raise
            kept = {n for name, n in zip(names, order, strict=True) if name not in gone}
            got = outputs(small, document, kept)
            for file in (small, dense):
                want = logits(shaver, file, rows, at)
                if document["logit"] != "output":
                    want = 1 / (1 + np.exp(-want))
                off = float((np.abs(got - want) / np.maximum(1, np.abs(want))).max())
                assert off <= TOLERANCE, f"without {gone or columns}: the outputs differ by {off:.1e} from {file.name}"
                most = max(most, off)
            slices += 1
        return slices, most


def main():
    shaver, names = pathlib.Path(sys.argv[1]).resolve(), tuple(sys.argv[2:]) or ("",)
    failed = ran = 0
    for name, path, document in graphs():
        if not name.startswith(names) or "raw" in document:  # computed ids have no new .onnx file
            continue
        ran += 1
        try:
            slices, most = check(shaver, path, document)
            print(f"{name}: {slices} slices, differ by {most:.1e} from shaver", flush=True)
        except Exception as e:
            failed += 1
            print(f"{name}: FAILED: {type(e).__name__}: {e}", flush=True)
    print(f"{ran} graphs, {failed} failed")
    sys.exit(failed > 0 or ran == 0)


if __name__ == "__main__":
    main()
