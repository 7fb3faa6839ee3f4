#!/usr/bin/env python3
"""Computes the values of fields and of pairs of them by their definition in onnxruntime, and compares shaver score with them.

    enumerate.py SHAVER NAME ...                          graphs of testdata/onnx and testdata/histories, by the beginning of their names
    enumerate.py SHAVER --model m.pth --rows val.csv.gz   a DeepFM or a DCN-Mix, which is written as an .onnx file first

Every row is computed once for each set of present players, in onnxruntime. The values follow from the definition of the Shapley
value, and those of pairs from that of the Shapley interaction index. An absent player reads what a background row has
(marginal), zeros (zero), or the mean of its field (codebook). The background rows are drawn as shaver draws them, with numpy's
Philox. The mean is read from further rows of the tables, which the .onnx file of a DeepFM or a DCN-Mix has.

It needs numpy, onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import pathlib
import struct
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "testdata" / "path"))
from pruned import columns_of, graphs, outputs, run, write

SEED = 1
BACKGROUND, SAMPLE = 18, 2  # purposes of random numbers, see internal/num/random
MOST = 1 << 16  # number of background rows
STATES = 1 << 15  # computed at a time
TOLERANCE = 5e-7  # of a value in nat; logits of float32 have about this accuracy


def below(purpose: int, i: int, j: int, n: int) -> int:
    """A random integer below n. numpy's Philox increments its counter before it draws."""
    counter = ((i << 64 | j << 128) - 1) % (1 << 256)
    word = int(np.random.Philox(counter=counter, key=SEED | purpose << 64).random_raw())
    return word * n >> 64


def background(rows: int) -> np.ndarray:
    """The row whose values each row reads in place of its absent players."""
    chosen: list[int] = []
    for i in range(rows):
        need, left = min(MOST, rows) - len(chosen), rows - i
        if need == left or below(SAMPLE, i, (1 << 64) - 1, left) < need:
            chosen.append(i)
    return np.array([chosen[below(BACKGROUND, i, 0, len(chosen))] for i in range(rows)])


def weights(players: int) -> tuple[np.ndarray, np.ndarray]:
    """What the loss of each set of present players counts in the value of each player, and in that of each pair."""
    sets = np.arange(1 << players)
    sizes = np.array([int(s).bit_count() for s in sets])
    has = sets[None] >> np.arange(players)[:, None] & 1
    one = np.array([math.factorial(s) * math.factorial(players - 1 - s) / math.factorial(players) for s in range(players)])
    values = np.where(has, -one[(sizes - 1).clip(0)], one[sizes.clip(max=players - 1)])
    two = np.array([math.factorial(s) * math.factorial(players - 2 - s) / math.factorial(players - 1) for s in range(players - 1)])
    pairs = np.zeros((players, players, 1 << players))
    for i in range(players):
        for j in range(i):
            both = has[i] + has[j]
            pairs[i, j] = pairs[j, i] = np.where(both == 1, 1.0, -1.0) * two[(sizes - both).clip(0, players - 2)]
    return values, pairs


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def enumerated(logits, label, now, other, owners, dense_now, dense_other) -> tuple[np.ndarray, np.ndarray]:
    """The values of the players and of the pairs: the means over the rows.

    logits(ids, dense) computes rows. now and other are the ids of the rows and of their absent fields, [rows, columns], and
    owners has the player of each column. Dense inputs are the players after the fields.
    """
    fields = int(owners.max()) + 1
    players = fields + dense_now.shape[1]
    one, two = weights(players)
    sets = np.arange(1 << players)
    has, has_dense = (sets[:, None] >> owners & 1) == 1, (sets[:, None] >> np.arange(fields, players) & 1) == 1
    mean = np.zeros(len(sets))
    step = max(1, STATES >> players)
    for at in range(0, len(label), step):
        part = slice(at, at + step)
        ids = np.where(has, now[part, None], other[part, None])
        dense = np.where(has_dense, dense_now[part, None], dense_other[part, None])
        n = len(ids)
        z = logits(ids.reshape(n * len(sets), -1), dense.reshape(n * len(sets), -1)).reshape(n, -1)
        mean += (softplus(z) - label[part, None] * z).sum(0)
    mean /= len(label)
    return one @ mean, two @ mean


def compare(shaver, folder, model, flags, rows, want, names) -> str:
    """Scores the rows exactly, and returns how far the values are from those that are expected. It fails if they differ."""
    out = folder / "fields.arrow"
    out.unlink(missing_ok=True)
    flags = ["--splits", "train", "--players", "pairs", "--estimator", "exact", "--seed", SEED, *flags]
    run(shaver, "score", "--model", model, "--dataset", rows, *flags, "--out", out)
    document = json.loads(run(shaver, "scores", "inspect", out, "-o", "json"))
    values, pairs = want
    got = {v["field"]: v["value"] for v in document["field_values"]}
    off = np.abs(np.array([got[n] for n in names]) - values)
    relative = (off / np.maximum(np.abs(values), 1e-300)).max()
    at = {name: i for i, name in enumerate(names)}
    interactions = max(abs(p["value"] - pairs[tuple(at[f] for f in p["fields"])]) for p in document["field_pairs"])
    text = f"values of {np.abs(values).min():.1e} to {np.abs(values).max():.1e} nat differ by at most {off.max():.1e}, and by {relative:.1e} of the value"
    text += f"; {len(document['field_pairs'])} pairs of up to {np.abs(pairs).max():.1e} by at most {interactions:.1e}"
    assert len(document["field_pairs"]) == len(names) * (len(names) - 1) // 2 and max(off.max(), interactions) <= TOLERANCE, text
    return text


def prepared(export: pathlib.Path, document: dict, facts: dict, out: pathlib.Path) -> None:
    """Writes the graph with its logits as an output, and with a row of zeros at the end of each table."""
    m = onnx.load(export)
    if document["logit"] == "logit":
        m.graph.output.append(onnx.helper.make_empty_tensor_value_info(document["tensor"]))
    tables = {t["name"] for f in facts["fields"] for t in f["tables"]}
    for t in m.graph.initializer:
        if t.name in tables:
            rows = onnx.numpy_helper.to_array(t)
            t.CopyFrom(onnx.numpy_helper.from_array(np.concatenate([rows, np.zeros_like(rows[:1])]), t.name))
            tables.remove(t.name)
    assert not tables, f"{tables} are no initializers"
    onnx.save(m, out)


def check(shaver, export, document) -> list[str]:
    """Compares the values of a graph with the marginal baseline, and with zeros if it has no lists."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        output = ["--model-output", document["output"]]
        facts = json.loads(run(shaver, "model", "inspect", export, *output, "-o", "json"))
        flags = write(folder, document, facts)
        rows = folder / "rows"
        run(shaver, "dataset", "import", "csv", "--train", folder / "rows.csv", "--model", export, *output, *flags, "--out", rows)
        prepared(export, document, facts, folder / "m.onnx")
        fields = {(f["input"], f.get("column", 0)): i for i, f in enumerate(facts["fields"])}
        ids, sizes = np.array(document["ids"]), []
        owners = np.zeros(ids.shape[1], int)
        for f, columns in columns_of(document["fields"]):
            owners[columns] = fields[f["input"], f["column"]]
            sizes += [f["rows"]] * f.get("length", 1)
        inputs = facts.get("dense") or []
        places = {(f["input"], f["column"]): k for k, f in enumerate(document["dense"])}
        numbers = [places[f["input"], f.get("column", 0)] for f in inputs]
        dense = np.array(document["values"], np.float32).reshape(len(ids), -1)[:, numbers]
        logit = document["logit"] == "logit"

        def logits(states, values):
            back = np.zeros_like(values)
            back[:, numbers] = values
            d = document | {"ids": states, "values": back, "output": document["tensor"] if logit else document["output"]}
            x = outputs(folder / "m.onnx", d)
            return x if logit else np.log(x) - np.log1p(-x)

        names = [f"f{i}" for i in range(len(facts["fields"]))] + [f["name"] for f in inputs]
        other = background(len(ids))
        absent = {"marginal": (ids[other], dense[other])}
        if len(owners) == len(fields):
            absent["zero"] = np.broadcast_to(sizes, ids.shape), np.zeros_like(dense)
        found = []
        for baseline, (other_ids, other_dense) in absent.items():
            want = enumerated(logits, np.array(document["labels"], float), ids, other_ids, owners, dense, other_dense)
            found.append(f"{baseline}: " + compare(shaver, folder, export, [*output, "--baseline", baseline], rows, want, names))
        return found


def tensors(path: pathlib.Path) -> tuple[dict, dict[str, np.ndarray]]:
    """The architecture and the float32 tensors of a safetensors file. The prefix of torch.compile is left out."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    architecture = json.loads(header.pop("__metadata__")["shaver.architecture"])
    found = {}
    for key, t in header.items():
        if t["dtype"] == "F32":
            low, high = t["data_offsets"]
            found[key.removeprefix("_orig_mod.")] = np.frombuffer(data[begin + low : begin + high], np.float32).reshape(t["shape"])
    return architecture, found


class Network:
    """The nodes of an .onnx file that computes the logits of a state dict for rows of ids. Its keys are those of testdata/golden/make.py."""

    def __init__(self, state: dict[str, np.ndarray], fields: int):
        self.state, self.fields, self.nodes, self.constants = state, fields, [], []

    def constant(self, value) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes) -> str:
        name = f"value{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def summed(self, x: str, *axes: int) -> str:
        return self.node("ReduceSum", x, self.constant(np.array(axes, np.int64)), keepdims=0)

    def mlp(self, x: str, prefix: str) -> str:
        """Linear layers, each with a BatchNorm and a ReLU behind it except the last, and the logits, [rows]."""
        layers = sorted(int(k.split(".")[1]) for k in self.state if k.startswith(prefix) and k.endswith(".weight"))
        for i in layers:
            names = [f"{prefix}.{i}.{k}" for k in ("weight", "bias", "running_mean", "running_var")]
            part = [self.constant(self.state[name]) for name in names if name in self.state]
            linear = len(part) == 2
            x = self.node("Gemm", x, *part, transB=1) if linear else self.node("Relu", self.node("BatchNormalization", x, *part, epsilon=1e-5))
        return self.summed(x, 1)

    def cross(self, start: str) -> str:
        """The cross layers of a DCN-Mix."""
        x, layer, gates = start, 0, self.state["cross_head.gates"]
        while f"cross_head.U.{layer}" in self.state:
            u, c, v, bias = (self.state[f"cross_head.{k}.{layer}"] for k in ("U", "C", "V", "biases"))
            after = x
            for k in range(len(gates)):
                low = self.node("Tanh", self.node("MatMul", x, self.constant(v[k])))
                low = self.node("Tanh", self.node("MatMul", low, self.constant(c[k])))
                expert = self.node("Mul", start, self.node("Add", self.node("MatMul", low, self.constant(u[k])), self.constant(bias)))
                after = self.node("Add", after, self.node("Mul", expert, self.node("MatMul", x, self.constant(gates[k]))))
            x, layer = after, layer + 1
        return x

    def model(self, table: np.ndarray, first: np.ndarray | None) -> bytes:
        """The bytes of the file. first has the first-order weights of a DeepFM."""
        h = onnx.helper
        e = self.node("Gather", self.constant(table), "ids")
        flat = self.node("Reshape", e, self.constant(np.array([-1, self.fields * table.shape[1]], np.int64)))
        if first is None:
            logit = self.mlp(self.cross(flat), "_dnn")
        else:
            square = self.summed(self.node("Mul", e, e), 1)
            total = self.summed(e, 1)
            pairs = self.summed(self.node("Sub", self.node("Mul", total, total), square), 1)
            logit = self.node("Add", self.node("Mul", pairs, self.constant(np.float32([0.5]))), self.mlp(flat, "_deep_branch"))
            logit = self.node("Add", logit, self.summed(self.node("Gather", self.constant(first), "ids"), 1, 2))
            logit = self.node("Add", logit, self.constant(self.state["_bias"]))
        ids = h.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["rows", self.fields])
        out = h.make_tensor_value_info(logit, onnx.TensorProto.FLOAT, ["rows"])
        graph = h.make_graph(self.nodes, "model", [ids], [out], self.constants)
        return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()


def state_of(shaver, model, folder) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The sizes of the fields and the tensors of a state dict."""
    run(shaver, "model", "convert", "--dense", model, folder / "m.safetensors")
    architecture, state = tensors(folder / "m.safetensors")
    return np.array(architecture["field_dims"]), state


def encoded(shaver, model, path, count, sizes, folder) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The names of the fields, the labels and the global ids of at most count rows of a CSV file of local ids.

    It imports these rows into folder/rows.
    """
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as f:
        names, *lines = csv.reader(f)
    if count:
        lines = lines[:: -(-len(lines) // count)]
    with open(folder / "rows.csv", "w", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows([names, *lines])
    run(shaver, "dataset", "import", "csv", "--ids", "local", "--train", folder / "rows.csv", "--model", model, "--out", folder / "rows")
    local = np.array([[int(v) for v in line] for line in lines])
    return names[1:], local[:, 0].astype(float), local[:, 1:] + np.cumsum(sizes) - sizes


def session_of(state, fields, table, first, threads) -> onnxruntime.InferenceSession:
    """The model of a state dict with other tables."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(Network(state, fields).model(table, first), options, providers=["CPUExecutionProvider"])


def means_of(ids, sizes) -> np.ndarray:
    """The portion of the rows in which each field has each id, [fields, ids]."""
    portions = np.zeros((len(sizes), sizes.sum()))
    np.add.at(portions, (np.arange(len(sizes)), ids), 1 / len(ids))
    return portions


def with_absent(state, sizes, portions) -> list[np.ndarray | None]:
    """The tables of a state dict, with a further row for each field, which is the mean of the others with these portions."""
    tables = [state["embedding.weight"], state.get("fc.weight")]
    return [t if t is None else np.concatenate([t, (portions @ t).astype(np.float32)]) for t in tables]


def state_dict(shaver, model, path, count) -> None:
    """Compares the values of a state dict on at most count rows of a CSV file of local ids, with each baseline."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sizes, state = state_of(shaver, model, folder)
        names, label, ids = encoded(shaver, model, path, count, sizes, folder)
        for baseline in ("marginal", "zero", "codebook"):
            other = ids[background(len(ids))]
            if baseline != "marginal":
                other = np.broadcast_to(sizes.sum() + np.arange(len(sizes)), ids.shape)
            tables = with_absent(state, sizes, np.zeros((len(sizes), sizes.sum())) if baseline == "zero" else means_of(ids, sizes))
            session = session_of(state, len(sizes), *tables, 2)
            none = np.zeros((len(ids), 0))
            want = enumerated(lambda states, _, s=session: s.run(None, {"ids": states})[0].astype(float), label, ids, other, np.arange(len(sizes)), none, none)
            text = compare(shaver, folder, model, ["--baseline", baseline], folder / "rows", want, names)
            print(f"{pathlib.Path(model).name}, {len(ids)} rows, {baseline}: {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shaver", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--model")
    parser.add_argument("--rows", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=2000)
    args = parser.parse_args()
    shaver = args.shaver.resolve()
    if args.model:
        state_dict(shaver, args.model, args.rows, args.count)
        return
    ran = 0
    for name, path, document in graphs():
        if name.startswith(tuple(args.names)):
            for line in check(shaver, path, document):
                print(f"{name}, {len(document['ids'])} rows, {line}", flush=True)
            ran += 1
    assert ran >= len(args.names), f"{ran} graphs"
    print(f"{ran} graphs agree")


if __name__ == "__main__":
    main()
