#!/usr/bin/env python3
"""Measures the time of a batch in onnxruntime before and after fields are removed from a DeepFM or a DCN-Mix.

    speed.py SHAVER MODEL DATASET WORK FIELDS ...    for example 8 5

MODEL is a checkpoint with shaver's names of the tensors. The script writes its graph, with the operators of PyTorch's
exporter, to WORK/whole.onnx, keeps each number of FIELDS by shaver prune --fields, and times batches of 1,024 rows on one
thread by its CPU time, in turns. It needs numpy, onnx and onnxruntime.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROWS, TURNS, REPEATS = 1024, 21, 5


class Graph:
    """A graph of ONNX that is being built."""

    def __init__(self, weights):
        self.weights, self.nodes, self.tensors = weights, [], []

    def tensor(self, values):
        name = f"t{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, key, transpose=False):
        w = self.weights[key]
        return self.tensor(np.ascontiguousarray(w.T) if transpose else w)

    def add(self, op, *inputs, **attributes):
        out = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], **attributes))
        return out

    def gemm(self, x, prefix):
        return self.add("Gemm", x, self.weight(f"{prefix}.weight"), self.weight(f"{prefix}.bias"), transB=1)

    def mlp(self, x, prefix):
        """Linear layers with BatchNorm, which the exporter folds into them, and ReLU."""
        i = 0
        while f"{prefix}.{i}.weight" in self.weights:
            w, b = self.weights[f"{prefix}.{i}.weight"], self.weights[f"{prefix}.{i}.bias"]
            norm = f"{prefix}.{i + 1}"
            last = f"{norm}.running_mean" not in self.weights
            if not last:
                scale = self.weights[f"{norm}.weight"] / np.sqrt(self.weights[f"{norm}.running_var"] + 1e-5)
                w, b = w * scale[:, None], (b - self.weights[f"{norm}.running_mean"]) * scale + self.weights[f"{norm}.bias"]
            x = self.add("Gemm", x, self.tensor(w.astype(np.float32)), self.tensor(b.astype(np.float32)), transB=1)
            if not last:
                x = self.add("Relu", x)
            i += 4
        return x


def build(weights, architecture, path):
    g = Graph(weights)
    sizes, dim = architecture["field_dims"], architecture["dim"]
    m = len(sizes)
    ids = g.add("Add", "ids", g.tensor(np.cumsum([0] + sizes[:-1]).astype(np.int64)))
    e = g.add("Gather", g.weight("embedding.weight"), ids)  # [N, m, dim]
    x = g.add("Reshape", e, g.tensor(np.array([-1, m * dim])))
    if architecture["architecture"] == "deepfm":
        axis = g.tensor(np.array([1]))
        total = g.add("ReduceSum", e, axis, keepdims=0)
        pairs = g.add("Sub", g.add("Mul", total, total), g.add("ReduceSum", g.add("Mul", e, e), axis, keepdims=0))
        pairs = g.add("Mul", g.add("ReduceSum", pairs, axis, keepdims=1), g.tensor(np.float32(0.5)))
        wide = g.add("ReduceSum", g.add("Gather", g.weight("fc.weight"), ids), axis, keepdims=0)
        logit = g.add("Add", g.add("Add", wide, pairs), g.mlp(x, "_deep_branch"))
        logit = g.add("Add", logit, g.weight(next(k for k in ("_bias", "linear_layer.bias") if k in weights)))
    else:
        x0 = x
        gates = g.weight("cross_head.gates")
        for i in range(architecture["cross_layers"]):
            low = g.add("Tanh", g.add("MatMul", x, g.weight(f"cross_head.V.{i}")))  # [experts, N, rank]
            low = g.add("Tanh", g.add("MatMul", low, g.weight(f"cross_head.C.{i}")))
            experts = g.add("Add", g.add("MatMul", low, g.weight(f"cross_head.U.{i}")), g.weight(f"cross_head.biases.{i}"))
            gated = g.add("Mul", g.add("Mul", x0, experts), g.add("MatMul", x, gates))
            x = g.add("Add", x, g.add("ReduceSum", gated, g.tensor(np.array([0])), keepdims=0))
        logit = g.mlp(x, "_dnn")
    g.nodes.append(helper.make_node("Sigmoid", [logit], ["probability"]))
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", m])]
    outputs = [helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["batch", 1])]
    graph = helper.make_graph(g.nodes, "whole", inputs, outputs, g.tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def run(*args):
    p = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if p.returncode:
        sys.exit(p.stderr)
    return p.stdout


def read(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    kinds = {"F32": np.float32, "I64": np.int64}
    out = {}
    for key, t in header.items():
        if key != "__metadata__":
            begin, end = t["data_offsets"]
            values = np.frombuffer(data[8 + size + begin : 8 + size + end], kinds[t["dtype"]]).reshape(t["shape"])
            out[key.removeprefix("_orig_mod.")] = values
    return out


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def main():
    shaver, model, dataset, work, *fields = sys.argv[1:]
    work = pathlib.Path(work)
    run(shaver, "model", "convert", model, work / "whole.safetensors", "--dense", "--force")
    facts = json.loads(run(shaver, "model", "inspect", model, "-o", "json"))
    build(read(work / "whole.safetensors"), facts, work / "whole.onnx")
    files, products = [work / "whole.onnx"], []
    for n in fields:
        files.append(work / f"{n}.onnx")
        result = json.loads(run(shaver, "prune", "--model", files[0], "--dataset", dataset, "--fields", n, "--out", files[-1], "--force", "-o", "json"))
        products.append(result["after"]["multiplications"])
    products.insert(0, result["before"]["multiplications"])
    print(run(shaver, "evaluate", "--model", files[0], "--against", model, "--dataset", dataset), file=sys.stderr)
    sessions = [session(f) for f in files]
    feeds = []
    for s in sessions:
        i = s.get_inputs()[0]
        feeds.append({i.name: np.random.default_rng(1).integers(0, 4, (ROWS, i.shape[1]))})
    times = [[] for _ in sessions]
    for _ in range(TURNS):
        for s, feed, t in zip(sessions, feeds, times):
            began = time.thread_time()
            for _ in range(REPEATS):
                s.run(None, feed)
            t.append((time.thread_time() - began) / REPEATS)
    whole = statistics.median(times[0])
    for f, p, t in zip(files, products, times):
        print(f"{f.stem}: {p} products ({p / products[0]:.2f}), median {1e3 * statistics.median(t):.3f} ms ({statistics.median(t) / whole:.2f}), least {1e3 * min(t):.3f} ms ({min(t) / min(times[0]):.2f}), {f.stat().st_size} bytes")


if __name__ == "__main__":
    main()
