#!/usr/bin/env python3
"""Prunes every graph of this folder with shaver and runs the files in onnxruntime.

    pruned.py SHAVER            SHAVER is the program
    pruned.py SHAVER NAME ...   only these, for example fuxictr-fm.legacy

For each graph and for the baselines zero and codebook, it scores the 32 rows, drops most
entries, and writes a dense .onnx file, a compact one and a dense safetensors file, and compact ones
with encoded values. It
compares the logits of onnxruntime for both .onnx files with those of shaver for the
safetensors file, the tensors with those of the graph, and the digests that shaver prints.
A conversion without pruning must keep every byte. If the graph can be calibrated, it does
the same with calibrated files: onnxruntime's outputs are compared with shaver's calibrated
logits, the other outputs with those of the file that is not calibrated, and everything
except the two nodes and two constants of the calibration must be the same.

It needs numpy, onnx 1.23.2 and onnxruntime 1.32.0.
"""

import csv
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 1e-6  # of the largest logit, or of 1 if that is larger


def run(*args):
    p = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr.strip())
    return p.stdout


def tensors(graph, path=""):
    """Yields the name of every tensor of a graph and of its subgraphs, and its bytes."""
    for t in graph.initializer:
        yield path + t.name, (t.data_type, tuple(t.dims), numpy_helper.to_array(t).tobytes())
    for i, n in enumerate(graph.node):
        for a in n.attribute:
            if a.type == onnx.AttributeProto.TENSOR:
                yield f"{path}{n.output[0]}.{a.name}", (a.t.data_type, tuple(a.t.dims), numpy_helper.to_array(a.t).tobytes())
            if a.type == onnx.AttributeProto.GRAPH:
                yield from tensors(a.g, f"{path}{i}/")


def frame(path):
    """Returns the graph without its tensors, the place of external data and metadata."""
    m = onnx.load(path, load_external_data=False)
    m.ClearField("metadata_props")

    def strip(g):
        for t in g.initializer:
            empty(t)
        for n in g.node:
            for a in n.attribute:
                if a.type == onnx.AttributeProto.TENSOR:
                    empty(a.t)
                if a.type == onnx.AttributeProto.GRAPH:
                    strip(a.g)

    def empty(t):
        for name in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "external_data"):
            t.ClearField(name)

    strip(m.graph)
    return m.SerializeToString(deterministic=True)


def logits(path, document, calibrated=False):
    """Returns onnxruntime's logits for the rows, found as make.py found them.

    Those of a calibrated file are found from the output, because the tensor that make.py
    names is not calibrated.
    """
    m = onnx.load(path)
    wanted, how = document["tensor"], document["logit"]
    if how == "output" or how == "probability":
        wanted = document["output"]
    elif calibrated:
        wanted = "shaver.calibration.logit"
    v = outputs(m, [wanted], document)[0]
    if how == "classes":
        return v[:, 1] - v[:, 0]
    if how == "probability":
        return np.log(v[:, 0]) - np.log1p(-v[:, 0])
    return v[:, 0]


def outputs(m, wanted, document):
    """Returns what onnxruntime computes for the rows as the tensors of these names, [rows, numbers]."""
    for name in wanted:
        if name not in [o.name for o in m.graph.output]:
            m.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    out = [[] for _ in wanted]
    for feed in feeds(session, document):
        for values, to in zip(session.run(wanted, feed), out):
            to.append(np.asarray(values).reshape(document["batch"] or len(document["ids"]), -1))
    return [np.concatenate(o).astype(np.float64) for o in out]


def feeds(session, document):
    """Yields the inputs of the session for the rows, batch by batch."""
    rows = len(document["ids"])
    batch = document["batch"] or rows
    kinds = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}
    inputs = {}
    for i in session.get_inputs():
        if i.name in document.get("fixed", {}):
            inputs[i.name] = None
            continue
        shape = [rows] + [d if isinstance(d, int) else 1 for d in i.shape[1:]]
        if "raw" in document:
            inputs[i.name] = np.array(document["raw"][i.name], kinds[i.type]).reshape(shape)
            continue
        values = np.zeros((rows, int(np.prod(shape[1:]))), kinds[i.type])
        for kind, data in (("fields", "ids"), ("dense", "values")):
            first = 0  # of the field's values in a row
            for f in document[kind]:
                count = f.get("length", 1)
                if f["input"] == i.name:
                    values[:, f["column"] : f["column"] + count] = [r[first : first + count] for r in document[data]]
                first += count
        inputs[i.name] = values.reshape(shape)
    for first in range(0, rows, batch):
        feed = {}
        for i in session.get_inputs():
            if inputs[i.name] is None:
                feed[i.name] = np.full(i.shape, document["fixed"][i.name], kinds[i.type])
            else:
                feed[i.name] = inputs[i.name][first : first + batch]
        yield feed


def enlarge(path, document, facts):
    """Gives all tables of the graph at path more rows, and the document rows that read them."""
    m = onnx.load(path)
    random = np.random.default_rng(1)
    names = {t["name"]: t["rows"] for f in facts["fields"] for t in f["tables"]}
    for name, rows in names.items():
        table = next((t for t in m.graph.initializer if t.name == name), None)
        if table is None:
            table = next(n.attribute[0].t for n in m.graph.node if n.op_type == "Constant" and name in (n.output[0], n.attribute[0].t.name))
        old = numpy_helper.to_array(table)
        new = np.concatenate([old, random.normal(0, 0.1, (MORE, *old.shape[1:])).astype(old.dtype)])
        table.CopyFrom(numpy_helper.from_array(new, table.name))
        for v in [*m.graph.input, *m.graph.value_info]:
            if v.name == name:
                v.type.tensor_type.shape.dim[0].dim_value = rows + MORE
    onnx.save(m, path)


def with_more_ids(document, facts):
    """Returns the document with twice the rows. The new ones have ids of all rows of the tables."""
    random = np.random.default_rng(2)
    sizes = {(f["input"], f["column"]): f["rows"] for f in facts["fields"]}
    if "raw" in document:  # the ids of the new rows are not needed
        return document | {"ids": document["ids"] * 2, "values": document["values"] * 2, "raw": {name: values * 2 for name, values in document["raw"].items()}}
    ids = [[int(random.integers(sizes[f["input"], f["column"]])) for f in document["fields"] for _ in range(f.get("length", 1))] for _ in document["ids"]]
    return document | {"ids": document["ids"] + ids, "values": document["values"] * 2}


def dataset(at, model, document, facts):
    if "raw" in document:  # the import computes ids from the columns of the inputs
        with open(at / "rows.csv", "w") as f:
            w = csv.writer(f, lineterminator="\n")
            names = [f["name"] for f in facts["fields"] if "computed" not in f]
            names += [name for name in document["raw"] if name not in names]
            w.writerow(["label"] + names)
            w.writerows([i % 2] + ["|".join(map(str, document["raw"][name][i])) for name in names] for i in range(len(document["ids"])))
        run(SHAVER, "dataset", "import", "csv", "--train", at / "rows.csv", "--val", at / "rows.csv", "--test", at / "rows.csv", "--model", model, "--out", at / "data")
        return
    columns, first = {}, 0
    for f in document["fields"]:
        n = f.get("length", 1)
        columns[f["input"], f["column"]] = ["|".join(str(v) for v in row[first:first + n]) for row in document["ids"]]
        first += n
    columns |= {(f["input"], f["column"]): [row[i] for row in document["values"]] for i, f in enumerate(document["dense"])}
    fields, dense = facts["fields"], facts.get("dense") or []
    with open(at / "rows.csv", "w") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["label"] + [f"f{i}" for i in range(len(fields))] + [f"d{i}" for i in range(len(dense))])
        w.writerows(zip([i % 2 for i in range(len(document["ids"]))], *[columns[f["input"], f.get("column", 0)] for f in fields + dense]))
    numbers = ["--dense", ",".join(f"d{i}={f['name']}" for i, f in enumerate(dense))] if dense else []
    run(SHAVER, "dataset", "import", "csv", "--train", at / "rows.csv", "--val", at / "rows.csv", "--test", at / "rows.csv", "--model", model, *numbers, "--out", at / "data")


def evaluate(at, model):
    run(SHAVER, "evaluate", "--model", model, "--dataset", at / "data", "--predictions", at / "p.csv", "--force")
    with open(at / "p.csv") as f:
        return np.array([float(r["logit"]) for r in csv.DictReader(f)])


def digest(model):
    return json.loads(run(SHAVER, "model", "inspect", model, "-o", "json"))["digest"]


def check(name, baseline, large):
    """Returns the largest difference between logits, and how many tables became compact."""
    document = json.loads((HERE / (name + ".json")).read_text())
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        model = at / "model.onnx"
        shutil.copy(HERE / (name + ".onnx"), model)
        if (HERE / (name + ".onnx.data")).exists():
            shutil.copy(HERE / (name + ".onnx.data"), at / (name + ".onnx.data"))
        facts = json.loads(run(SHAVER, "model", "inspect", model, "-o", "json"))
        if large:
            enlarge(model, document, facts)
            facts = json.loads(run(SHAVER, "model", "inspect", model, "-o", "json"))
            document = with_more_ids(document, facts)
        before = dict(tensors(onnx.load(model).graph))
        (at / "copy").mkdir()
        run(SHAVER, "model", "convert", model, at / "copy" / "copy.onnx")
        assert dict(tensors(onnx.load(at / "copy" / "copy.onnx").graph)) == before, "the copy has other tensors"
        external = any(len(t.external_data) for t in onnx.load(model, load_external_data=False).graph.initializer)
        assert external or model.read_bytes() == (at / "copy" / "copy.onnx").read_bytes(), "the copy has other bytes"
        assert external == (at / "copy" / "copy.onnx.data").exists(), "the tables moved"
        dataset(at, model, document, facts)
        run(SHAVER, "score", "--model", model, "--dataset", at / "data", "--estimator", "permutation", "--passes", "1", "--baseline", baseline, "--out", at / "s.arrow")
        prune = [SHAVER, "prune", "--model", model, "--scores", at / "s.arrow", "--sparsity", "0.95" if large else "0.7"]
        run(*prune, "--dense", "--out", at / "dense.safetensors")
        run(*prune, "--out", at / "dense.onnx")
        result = json.loads(run(*prune, "--dense=false", "--out", at / "compact.onnx", "-o", "json"))
        tables = {t["name"] for f in facts["fields"] for t in f["tables"] if t["player"]}
        after = dict(tensors(onnx.load(at / "dense.onnx").graph))
        assert after.keys() == before.keys(), "the tensors have other names"
        changed = {t for t in after if after[t] != before[t]}
        assert changed and {t.removesuffix(".value") for t in changed} <= tables, f"{changed} changed, and the tables are {tables}"
        assert all(after[t][:2] == before[t][:2] for t in after), "a tensor has another type or shape"
        assert frame(at / "dense.onnx") == frame(model) or external, "more than tables changed"
        onnx.checker.check_model(at / "compact.onnx")
        want = evaluate(at, at / "dense.safetensors")
        got = [logits(at / file, document) for file in ("dense.onnx", "compact.onnx")]
        assert (got[0] == got[1]).all(), "the dense and the compact file give other logits"
        worst = float(np.abs(got[0] - want).max())
        assert worst <= TOLERANCE * max(1, np.abs(want).max()), f"the logits differ by {worst:.1e}, and the largest is {np.abs(want).max():.1f}"
        for file in ("dense.onnx", "compact.onnx"):
            if digest(at / file) != digest(at / "dense.safetensors"):
                raise RuntimeError(f"{file} has another digest")
        run(SHAVER, "model", "convert", at / "dense.onnx", at / "again.onnx", "--dense=false")
        assert digest(at / "again.onnx") == digest(at / "compact.onnx"), "convert and prune differ"
        if large:
            worst = max(worst, check_encoded(at, prune, document))
        calibrated = check_calibrated(at, prune, document)
        if large:
            assert (at / "compact.onnx").stat().st_size < (at / "dense.onnx").stat().st_size or not result.get("compact_tables") or external, "the compact file is larger"
        return max(worst, calibrated or 0), result.get("compact_tables", 0), result["onnx_tables"], calibrated is not None


def check_encoded(at, prune, document):
    """Returns the largest difference between logits of files with encoded values and those of shaver for the same file."""
    worst = 0.0
    for encoding in ("float16", "int8", "auto"):
        file = at / (encoding + ".onnx")
        run(*prune, "--values", encoding, *(["--dataset", at / "data"] if encoding == "auto" else []), "--out", file)
        onnx.checker.check_model(file, full_check=True)
        want, got = evaluate(at, file), logits(file, document)
        difference = float(np.abs(got - want).max())
        assert difference <= TOLERANCE * max(1, np.abs(want).max()), f"the logits of {encoding} differ by {difference:.1e}"
        worst = max(worst, difference)
    return worst


def check_calibrated(at, prune, document):
    """Returns the largest difference between calibrated logits, or None if the graph cannot be calibrated."""
    prune = [*prune, "--calibrate", "--dataset", at / "data"]
    try:
        run(*prune, "--out", at / "c-dense.onnx")
    except RuntimeError as e:
        assert "the graph cannot be calibrated: " in str(e), e
        return None
    run(*prune, "--dense=false", "--out", at / "c-compact.onnx")
    run(*prune, "--dense", "--out", at / "c.safetensors")
    want, worst = evaluate(at, at / "c.safetensors"), 0.0
    size = max(1, np.abs(want).max())
    for form in ("dense", "compact"):
        plain, file = at / (form + ".onnx"), at / ("c-" + form + ".onnx")
        onnx.checker.check_model(file, full_check=True)
        m, before = onnx.load(file), onnx.load(plain)
        assert [o.SerializeToString() for o in m.graph.output] == [o.SerializeToString() for o in before.graph.output], "an output has another name or shape"
        got = logits(file, document, calibrated=True)
        difference = float(np.abs(got - want).max())
        assert difference <= TOLERANCE * size, f"the calibrated logits differ by {difference:.1e}"
        ours = float(np.abs(evaluate(at, file) - want).max())
        assert ours <= TOLERANCE * size, f"shaver reads calibrated logits that differ by {ours:.1e}"
        worst = max(worst, difference, ours)
        if document["logit"] != "output":
            p = outputs(m, [document["output"]], document)[0][:, -1]
            assert np.abs(p - 1 / (1 + np.exp(-want))).max() <= TOLERANCE, "the probabilities are not calibrated"
        assert without_calibration(file) == frame(plain).replace(b"%s.onnx" % form.encode(), b"c-%s.onnx" % form.encode()), "more than the calibration changed"
        old, new = dict(tensors(before.graph)), dict(tensors(onnx.load(file).graph))
        assert {n: new[n] for n in old} == old and {n for n in new if n not in old} == {PREFIX + "scale", PREFIX + "offset"}, "another tensor changed"
    return worst


def without_calibration(path):
    """Returns the frame of a calibrated graph as it was before the calibration."""
    m = onnx.ModelProto.FromString(frame(path))
    g = m.graph
    mul = next(n for n in g.node if n.output[0] == PREFIX + "scaled")
    add = next(n for n in g.node if PREFIX + "scaled" in n.input)
    assert mul.op_type == "Mul" and add.op_type == "Add"
    for n in g.node:
        for i, name in enumerate(n.input):
            if name == add.output[0] and name.startswith(PREFIX):
                n.input[i] = mul.input[0]
        for i, name in enumerate(n.output):
            if n not in (mul, add) and name == mul.input[0] and name.startswith(PREFIX):
                n.output[i] = add.output[0]
    g.node.remove(mul)
    g.node.remove(add)
    for list in (g.initializer, g.input):
        for t in [t for t in list if t.name in (PREFIX + "scale", PREFIX + "offset")]:
            list.remove(t)
    return m.SerializeToString(deterministic=True)


SHAVER = pathlib.Path(sys.argv[1]).resolve()
PREFIX = "shaver.calibration."  # of the names that a calibration adds
MORE = 600  # rows that an enlarged table has in addition


def main():
    names, failed, overall, compact, total, calibrated = sys.argv[2:], 0, 0.0, 0, 0, 0
    for path in sorted(HERE.glob("*.json")):
        name = path.name.removesuffix(".json")
        if names and name not in names:
            continue
        for baseline, large in (("zero", False), ("codebook", not name.startswith("field-aware."))):  # whose rows fields share
            try:
                worst, small, tables, can = check(name, baseline, large)
                text, bad = f"differs by {worst:.1e}, {small} of {tables} tables compact" + ("" if can else ", not calibrated"), False
                overall, compact, total, calibrated = max(overall, worst), compact + small, total + tables, calibrated + can
            except Exception as e:
                text, bad = f"{type(e).__name__}: {e}", True
            failed += bad
            print(f"{name} {baseline}: {'FAILED: ' if bad else ''}{text}", flush=True)
    print(f"the largest difference is {overall:.1e}; {compact} of {total} tables are compact; {calibrated} models were calibrated")
    if failed:
        sys.exit(f"{failed} failed")


if __name__ == "__main__":
    main()
