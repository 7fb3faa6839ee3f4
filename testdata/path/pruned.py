#!/usr/bin/env python3
"""Takes models from rows to a pruned .onnx file by a path, and runs the file in onnxruntime.

    pruned.py SHAVER            SHAVER is the program
    pruned.py SHAVER NAME ...   only the graphs whose name begins with a NAME, for example tasks- or fuxictr-autoint.legacy

The models are those of testdata/onnx and the other exports of terms.jsonl. For each graph it imports rows, scores them with
--estimator path, and prunes 80% of the entries. The outputs of onnxruntime for the pruned file must be those that follow
from the logits of shaver evaluate --predictions, and they must differ from the outputs of the model that is not pruned.
Graphs of ROUNDED are also pruned with --values auto. The values that readers of that file get are written over those of the
graph, and the outputs of onnxruntime must be those of the compact file.

It needs numpy and onnxruntime.
"""

import csv
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent
TOLERANCE = 2e-6  # of an output, or of 1 if that is larger
SPARSITY = 0.8
ROUNDED = ("fuxictr-autoint.legacy", "histories-din", "tasks-click", "masked-bst.dynamo")


def run(*args):
    p = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr.strip())
    return p.stdout


def columns_of(fields):
    """The columns of the ids of each field, in a matrix of the ids of all fields."""
    first = 0
    for f in fields:
        yield f, slice(first, first + f.get("length", 1))
        first += f.get("length", 1)


def log_of(path, label, fields):
    """The labels and the ids of the rows of a CSV file, whose cells are ids, lists of ids, or NAME-ID."""
    with open(path) as f:
        rows = list(csv.DictReader(f))
    ids = np.zeros((len(rows), sum(f.get("length", 1) for f in fields)), int)
    for f, at in columns_of(fields):
        for i, r in enumerate(rows):
            cell = [int(v.rsplit("-", 1)[-1]) for v in r[f["input"]].split("|") if v]
            ids[i, at.start : at.start + len(cell)] = cell
    return [float(r[label]) for r in rows], ids.tolist()


def graphs():
    """All graphs by name: the path, and a document as in testdata/onnx with labels, of more rows than terms.jsonl has."""
    for path in sorted((DATA / "onnx").glob("*.json")):
        document = json.loads(path.read_text())
        document["labels"] = [i % 2 for i in range(len(document["ids"]))]
        yield path.name.removesuffix(".json"), path.with_suffix(".onnx"), document
    logs = {"histories": ("log.csv", "label"), "ratings": ("train.csv", "rating")}
    for line in (HERE / "terms.jsonl").read_text().splitlines():
        line = json.loads(line)
        document = line.get("export")
        if document is None:
            continue
        path = (DATA / "onnx" / document["file"]).resolve()
        file, label = logs.get(path.parent.name, ("log.csv", document["output"]))
        labels, ids = log_of(path.parent / file, label, document["fields"])
        kind = "output" if path.parent.name == "ratings" else "probability"
        yield line["model"], path, document | {"labels": labels, "ids": ids, "values": [[]] * len(ids), "dense": [], "batch": 0, "logit": kind}


def outputs(path, document):
    """What onnxruntime computes for the rows: a probability, or the output itself."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}
    rows = len(document["ids"])
    batch = document["batch"] or rows
    ids, values = np.array(document["ids"]), np.array(document["values"], np.float32).reshape(rows, -1)
    out = []
    for low in range(0, rows, batch):
        feed = {}
        for i in session.get_inputs():
            if i.name in document.get("fixed", {}):
                feed[i.name] = np.full(i.shape, document["fixed"][i.name], kinds[i.type])
                continue
            shape = [batch] + [d if isinstance(d, int) else 1 for d in i.shape[1:]]
            if "raw" in document:
                feed[i.name] = np.array(document["raw"][i.name][low : low + batch], kinds[i.type]).reshape(shape)
                continue
            x = np.zeros((batch, int(np.prod(shape[1:]))), kinds[i.type])
            for f, at in columns_of(document["fields"]):
                if f["input"] == i.name:
                    x[:, f["column"] : f["column"] + f.get("length", 1)] = ids[low : low + batch, at]
            for k, f in enumerate(document["dense"]):
                if f["input"] == i.name:
                    x[:, f["column"]] = values[low : low + batch, k]
            feed[i.name] = x.reshape(shape)
        out.append(session.run([document["output"]], feed)[0].reshape(batch, -1)[:, -1])
    return np.concatenate(out).astype(np.float64)


def write(at, document, facts):
    """Writes the rows in the order of the model's fields and dense inputs, and returns the flags of the import."""
    if "raw" in document:  # the import computes ids from the columns of the inputs
        names = [f["name"] for f in facts["fields"] if "computed" not in f]
        names += [name for name in document["raw"] if name not in names]
        with open(at / "rows.csv", "w", newline="") as f:
            w = csv.writer(f, lineterminator="\n")
            w.writerow(["label"] + names)
            w.writerows([label] + ["|".join(map(str, document["raw"][n][r])) for n in names] for r, label in enumerate(document["labels"]))
        return []
    columns = {(f["input"], f["column"]): [row[k] for row in document["ids"]] for f, k in columns_of(document["fields"])}
    numbers = {(f["input"], f["column"]): k for k, f in enumerate(document["dense"])}
    fields, dense = facts["fields"], facts.get("dense") or []
    with open(at / "rows.csv", "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["label"] + [f"f{i}" for i in range(len(fields))] + [f"d{i}" for i in range(len(dense))])
        for r, label in enumerate(document["labels"]):
            lists = ["|".join(str(v) for v in columns[f["input"], f.get("column", 0)][r]) for f in fields]
            w.writerow([f"{label:g}"] + lists + [document["values"][r][numbers[f["input"], f.get("column", 0)]] for f in dense])
    flags = ["--dense", ",".join(f"d{i}={f['name']}" for i, f in enumerate(dense))] if dense else []
    return flags + (["--labels", "numbers"] if document["logit"] == "output" and any(v not in (0, 1) for v in document["labels"]) else [])


def check(shaver, export, document):
    """Returns how many entries are kept, and the largest difference to shaver and to the model that is not pruned."""
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        model = at / export.name
        for suffix in ("", ".data"):
            if pathlib.Path(f"{export}{suffix}").exists():
                shutil.copy(f"{export}{suffix}", f"{model}{suffix}")
        output = ["--model-output", document["output"]]
        facts = json.loads(run(shaver, "model", "inspect", model, *output, "-o", "json"))
        flags = write(at, document, facts)
        run(shaver, "dataset", "import", "csv", "--train", at / "rows.csv", "--model", model, *output, *flags, "--out", at / "rows")
        run(shaver, "score", "--estimator", "path", "--model", model, *output, "--dataset", at / "rows", "--splits", "train", "--baseline", "codebook", "--sparsity", SPARSITY, "--out", at / "p.arrow")
        pruned = at / "pruned.onnx"
        result = json.loads(run(shaver, "prune", "--model", model, *output, "--scores", at / "p.arrow", "--sparsity", SPARSITY, "--out", pruned, "-o", "json"))
        assert result["method"] == "path", result
        run(shaver, "evaluate", "--model", pruned, *output, "--dataset", at / "rows", "--split", "train", "--predictions", at / "p.csv")
        with open(at / "p.csv") as f:
            want = np.array([float(r["logit"]) for r in csv.DictReader(f)])
        if document["logit"] != "output":
            want = 1 / (1 + np.exp(-want))
        got, before = outputs(pruned, document), outputs(model, document)
        off = float((np.abs(got - want) / np.maximum(1, np.abs(want))).max())
        assert off <= TOLERANCE, f"the outputs differ by {off:.1e}"
        change = float(np.abs(got - before).max())
        assert change > 1e-3, f"the outputs of the pruned file differ from those of the model by {change:.1e} only"
        return result, off, change


def tensors(path):
    """The bytes of the tensors of a safetensors file, by their keys."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    return {key: data[begin + t["data_offsets"][0] : begin + t["data_offsets"][1]] for key, t in header.items() if key != "__metadata__"}


def overwrite(graph, old, new):
    """Replaces the floats old in the bytes of a graph. They may be several tables, one after another."""
    at = 0
    while at < len(old):
        begin = old[at : at + 64]
        place = graph.find(begin)
        assert place >= 0 and graph.find(begin, place + 1) < 0, f"byte {at} of {len(old)} of a tensor is not once in the graph"
        n = len(begin)
        while at + n < len(old) and graph[place + n : place + n + 4] == old[at + n : at + n + 4]:
            n += 4
        graph = graph[:place] + new[at : at + n] + graph[place + n :]
        at += n
    return graph


def check_rounded(shaver, export, document):
    """Returns the largest difference between shaver for a file of --values auto and onnxruntime for the same values."""
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        output = ["--model-output", document["output"]]
        facts = json.loads(run(shaver, "model", "inspect", export, *output, "-o", "json"))
        flags = write(at, document, facts)
        rows, small = at / "rows", at / "small.safetensors"
        run(shaver, "dataset", "import", "csv", "--train", at / "rows.csv", "--val", at / "rows.csv", "--model", export, *output, *flags, "--out", rows)
        run(shaver, "score", "--estimator", "path", "--model", export, *output, "--dataset", rows, "--splits", "train", "--sparsity", SPARSITY, "--out", at / "p.arrow")
        auto = ["--values", "auto", "--dataset", rows]
        result = json.loads(run(shaver, "prune", "--model", export, *output, "--scores", at / "p.arrow", "--sparsity", SPARSITY, *auto, "--out", small, "-o", "json"))
        assert any(t["bits"] < 32 for t in result["rounding"]["tensors"]), f"the network is not rounded: {result['rounding']}"
        assert any(r["bits"] < 16 for r in result["rounding"]["rows"]), f"the tables are not rounded: {result['rounding']}"
        run(shaver, "model", "convert", "--dense", export, at / "before.safetensors", *output)
        run(shaver, "model", "convert", "--dense", small, at / "after.safetensors")
        graph, after = export.read_bytes(), tensors(at / "after.safetensors")
        for key, data in tensors(at / "before.safetensors").items():
            if after[key] != data:
                graph = overwrite(graph, data, after[key])
        (at / "small.onnx").write_bytes(graph)
        run(shaver, "evaluate", "--model", small, "--dataset", rows, "--split", "train", "--predictions", at / "p.csv")
        with open(at / "p.csv") as f:
            want = np.array([float(r["logit"]) for r in csv.DictReader(f)])
        if document["logit"] != "output":
            want = 1 / (1 + np.exp(-want))
        got = outputs(at / "small.onnx", document)
        off = float((np.abs(got - want) / np.maximum(1, np.abs(want))).max())
        assert off <= TOLERANCE, f"the outputs of rounded values differ by {off:.1e}"
        change = float(np.abs(got - outputs(export, document)).max())
        assert change > 1e-3, f"the outputs of rounded values differ from those of the model by {change:.1e} only"
        return off


def main():
    shaver, names = pathlib.Path(sys.argv[1]).resolve(), tuple(sys.argv[2:]) or ("",)
    failed = ran = 0
    for name, path, document in graphs():
        if not name.startswith(names):
            continue
        ran += 1
        try:
            result, off, change = check(shaver, path, document)
            if name in ROUNDED:
                print(f"{name}: with rounded values differs by {check_rounded(shaver, path, document):.1e} from shaver", flush=True)
            print(f"{name}: dropped {result['dropped']} of {result['entries']}, differs by {off:.1e} from shaver and by {change:.1e} from the model", flush=True)
        except Exception as e:
            failed += 1
            print(f"{name}: FAILED: {type(e).__name__}: {e}", flush=True)
    print(f"{ran} graphs, {failed} failed")
    sys.exit(failed > 0 or ran == 0)


if __name__ == "__main__":
    main()
