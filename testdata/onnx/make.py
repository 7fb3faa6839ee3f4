#!/usr/bin/env python3
"""Exports tiny models of real packages to ONNX, with rows and onnxruntime's logits.

    make.py                 write the files next to this script
    make.py --out DIR       write them to DIR
    make.py NAME ...        write only these files, for example fuxictr-fm.legacy
    make.py --states        write the state dicts of the models in STATES
    make.py --table         print the table of README.md from the files next to this script

README.md says what the files hold, and with which versions they were made.
"""

import argparse
import collections
import json
import pathlib
import tempfile
import traceback

import onnx
import onnxruntime

import cases
import lookups
from packages import ROWS, float64, np, quiet, randomise, torch, versions

LIMIT = 200_000  # bytes of a file
TOLERANCE = 5e-6  # onnxruntime's logits against those of PyTorch in float64


def jobs():
    """All files: name -> (model, exporter, options)."""
    out = {}
    for model, (_, opset) in cases.MODELS.items():
        if model == "keras":  # Keras calls the legacy exporter for a dynamic batch, and the dynamo exporter for a static one
            out["keras"], out["keras.batch1"] = (model, "legacy", dict(opset=opset, batch=0)), (model, "dynamo", dict(opset=opset, batch=1))
            continue
        batch = 1 if model == "dlrm-offsets" else 0
        out[model + ".legacy"] = (model, "legacy", dict(opset=opset, batch=batch))
        out[model + ".dynamo"] = (model, "dynamo", dict(opset=18, batch=batch))
    # Files of batch 1, as exporters write them by default.
    for model in ("fuxictr-deepfm", "deepctr-torch-fm", "dlrm", "ncf", "pytorch-fm-autoint", "fuxictr-pnn", "deepctr-torch-afm"):
        out[model + ".legacy-batch1"] = (model, "legacy", dict(opset=cases.MODELS[model][1], batch=1))
        out[model + ".dynamo-batch1"] = (model, "dynamo", dict(opset=18, batch=1))
    # A static batch of 4 rows.
    out["fuxictr-deepfm.legacy-batch4"] = ("fuxictr-deepfm", "legacy", dict(opset=17, batch=4))
    # Tables in another file, as the dynamo exporter does by default.
    out["fuxictr-deepfm.external"] = ("fuxictr-deepfm", "dynamo", dict(opset=18, batch=0, external=True))
    out["ncf.external"] = ("ncf", "dynamo", dict(opset=18, batch=1, external=True))
    # Old forms. Initializers are inputs too, nothing is folded, and the operator sets are old.
    out["fuxictr-deepfm.opset7"] = ("fuxictr-deepfm", "legacy", dict(opset=7, batch=1, keep=True, folding=False))
    out["ncf.opset9"] = ("ncf", "legacy", dict(opset=9, batch=0, keep=True))
    # Newer operator sets, and a graph that the exporter has not optimized.
    out["fuxictr-masknet.opset20"] = ("fuxictr-masknet", "legacy", dict(opset=20, batch=0))
    out["two-classes.opset22"] = ("two-classes", "dynamo", dict(opset=22, batch=0))
    out["fuxictr-deepfm.plain"] = ("fuxictr-deepfm", "dynamo", dict(opset=18, batch=0, optimize=False))
    out["fuxictr-autoint.plain"] = ("fuxictr-autoint", "dynamo", dict(opset=18, batch=0, optimize=False))
    for name in UNABLE:
        del out[name]
    return out


# Exports that fail: the dynamo exporter of torch 2.8 has no masked_select, and the legacy exporter no padding_idx of EmbeddingBag.
UNABLE = ["fuxictr-pnn.dynamo", "fuxictr-pnn.dynamo-batch1", "padded-bags.legacy"]

# The mask of the dynamo exporter is finite here, so the weights of an empty history are not those of PyTorch.
UNABLE += ["masked-attention.dynamo"]


# Models that shaver's own kinds can compute. Their state dicts have the weights of the graphs.
STATES = ["fuxictr-fm", "fuxictr-deepfm", "fuxictr-widedeep", "fuxictr-dcnv2-parallel", "fuxictr-dcnv2-stacked", "pytorch-fm-fm", "pytorch-fm-deepfm"]


# Models whose output is computed from several probabilities.
PROBABILITIES = ["entire-space", "regions"]


# Models whose weights are smaller, because float32 is too coarse for logits above 8.
SMALLER = ["deepctr-torch-autoint", "deepctr-torch-dcn", "fuxictr-deepfm-numeric", "fuxictr-xdeepfm"]


def network(model):
    """Builds a model with its weights, and its rows."""
    seed = sum(ord(c) * (i + 1) for i, c in enumerate(model))
    torch.manual_seed(seed)
    with quiet():
        net = cases.MODELS[model][0]()
    if not net.keras:
        randomise(net.module, seed)
    if model in SMALLER:
        with torch.no_grad():
            for p in net.module.parameters():
                if p.dim() > 1 and p.is_floating_point():
                    p.mul_(0.7)
    return net, net.rows(seed)


def arguments(net, values, low, high):
    return tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays(net, values, low, high))


def arrays(net, values, low, high):
    out = []
    for name, dtype, columns in net.inputs:
        a = values[name][low:high]
        if dtype is torch.int32:
            a = a.astype(np.int32)
        if columns == 0:
            a = a[:, 0]
        elif columns < 0:  # offsets [tables, 1]
            a = np.zeros((-columns, 1), np.int64)
        out.append(a)
    return out


def export(net, values, exporter, path, opset, batch, external=False, keep=False, folding=True, optimize=True):
    args = arguments(net, values, 0, batch or 3)
    names = [name for name, _, _ in net.inputs]
    options = dict(input_names=names, output_names=[net.output], opset_version=opset, dynamo=exporter == "dynamo")
    if exporter == "legacy":
        options |= dict(keep_initializers_as_inputs=keep or None, do_constant_folding=folding)
        if not batch:
            options["dynamic_axes"] = {name: {0: "batch"} for name in names + [net.output]}
    else:
        options |= dict(external_data=external, optimize=optimize)
        if not batch:
            shapes = tuple({0: torch.export.Dim("batch")} for _ in names)
            variadic = isinstance(net.module, (cases.ByName, cases.First, cases.DLRM))
            if isinstance(net.module, cases.DLRM):
                shapes = (shapes[0], shapes[1:])
            elif variadic:
                shapes = (shapes,)
            options["dynamic_shapes"] = shapes
    with quiet(), torch.no_grad():
        if net.keras:
            net.export(path, batch)
        else:
            torch.onnx.export(net.module, args, str(path), **options)
    clean(path)


def clean(path):
    """Removes stack traces, which hold paths of this machine and lines of the packages' source."""
    model = onnx.load(path, load_external_data=False)

    def graph(g):
        for node in g.node:
            node.ClearField("doc_string")
            for i in reversed(range(len(node.metadata_props))):
                if "stack_trace" in node.metadata_props[i].key:
                    del node.metadata_props[i]
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    graph(a.g)

    graph(model.graph)
    for f in model.functions:
        graph(f)
    model.graph.ClearField("doc_string")
    onnx.save(model, path)
    onnx.checker.check_model(path)


def logit_of(model):
    """The tensors before the last sigmoid or softmax: ("logit", name), ("classes", name), or ("probability", "")."""
    producers = {out: node for node in model.graph.node for out in node.output}
    name = model.graph.output[0].name
    while name in producers:
        node = producers[name]
        if node.op_type == "Sigmoid":
            return "logit", node.input[0]
        if node.op_type == "Softmax":
            return "classes", node.input[0]
        if node.op_type not in ("Squeeze", "Unsqueeze", "Reshape", "Flatten", "Identity", "Cast"):
            break
        name = node.input[0]
    return "output", model.graph.output[0].name


def run(path, net, values, batch, probability):
    """Outputs and logits of onnxruntime in one pass over all rows, and how the logits were found."""
    model = onnx.load(path)
    how, tensor = logit_of(model)
    if how == "output" and probability:
        how = "probability"
    elif how != "output":
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(tensor))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs, logits = [], []
    step = batch or ROWS
    for low in range(0, ROWS, step):
        feed = {name: a for (name, _, _), a in zip(net.inputs, arrays(net, values, low, low + step))}
        feed = {k: v for k, v in feed.items() if k in {i.name for i in session.get_inputs()}}
        got = [g.astype(np.float64).reshape(step, -1) for g in session.run(None, feed)]
        outputs.append(got[0])
        logits.append(got[-1])
    outputs, logits = np.concatenate(outputs), np.concatenate(logits)
    if how == "classes":
        logits = logits[:, 1:] - logits[:, :1]
    if how == "probability":
        logits = np.log(outputs) - np.log1p(-outputs)
        assert np.abs(logits).max() < 2.5, "the probabilities are too near 0 or 1"
    assert logits.shape == (ROWS, 1), logits.shape
    return outputs, logits[:, 0], how, tensor


def reference(net, values, batch):
    """The outputs of PyTorch in float64, or for Keras the logits in float32."""
    import copy

    if net.keras:
        with torch.no_grad():
            return net.module(list(arguments(net, values, 0, ROWS))).numpy()
    out = []
    step = batch or ROWS
    with torch.no_grad(), float64():
        module = copy.deepcopy(net.module).double()
        for low in range(0, ROWS, step):
            args = [a.double() if a.is_floating_point() else a for a in arguments(net, values, low, low + step)]
            out.append(module(*args).numpy().reshape(step, -1))
    return np.concatenate(out)


def logits_from(y, how):
    if how == "classes":
        return np.log(y[:, 1]) - np.log(y[:, 0])
    return y[:, 0] if how == "output" else np.log(y[:, 0]) - np.log1p(-y[:, 0])


def make(name, folder):
    model, exporter, options = jobs()[name]
    net, values = network(model)
    path = folder / (name + ".onnx")
    expected = reference(net, values, options["batch"])  # before the export, which leaves traces in some modules
    export(net, values, exporter, path, **options)
    outputs, logits, how, tensor = run(path, net, values, options["batch"], "mmoe" in model or model in PROBABILITIES)
    difference = float(np.abs(logits - logits_from(expected, "output" if net.keras else how)).max())
    assert difference < TOLERANCE, difference
    proto = onnx.load(path, load_external_data=False)
    inputs = {i.name for i in proto.graph.input} - {i.name for i in proto.graph.initializer}
    size = path.stat().st_size
    assert size < LIMIT, size
    document = {
        "file": path.name,
        "package": versions(*([net.package] if net.package else []), "torch", "onnxruntime"),
        "exporter": exporter,
        "opset": next(o.version for o in proto.opset_import if o.domain == ""),
        "ir": proto.ir_version,
        "batch": options["batch"],
        "inputs": [n for n, _, _ in net.inputs if n in inputs],
        "fields": [{"name": f.name, "input": f.input, "column": f.column, "rows": f.rows} | ({"length": f.length} if f.length else {}) | ({"computed": True} if isinstance(f, lookups.Computed) else {}) for f in net.fields],
        "dense": [{"name": f.name, "input": f.input, "column": f.column} for f in net.dense],
        "fixed": net.fixed,
        "output": proto.graph.output[0].name,
        "logit": how,
        "tensor": tensor if how in ("logit", "classes") else "",
        "operators": dict(sorted(collections.Counter(operators(proto.graph)).items())),
        "ids": np.concatenate([f.ids(values) for f in net.fields], axis=1).astype(int).tolist(),
        "values": [[float(values[f.input][i, f.column]) for f in net.dense] for i in range(ROWS)],
        "outputs": outputs.tolist(),
        "logits": logits.tolist(),
    }
    if isinstance(net, lookups.Raw):
        document["raw"] = {name: values[name].tolist() for name, _, _ in net.inputs}
    lines = [f' "{k}": {json.dumps(v)}' for k, v in document.items()]
    (folder / (name + ".json")).write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return f"{name}: {size} bytes, {len(proto.graph.node)} nodes, logit by {how}, PyTorch differs by {difference:.1e}"


def operators(graph):
    for node in graph.node:
        yield node.op_type
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from operators(a.g)


def table():
    """One line for each model: its files with operator set and nodes, and the shapes that need most care."""
    lines = ["| model | package | files: exporter and variant (operator set, nodes) | logits |", "|---|---|---|---|"]
    here = pathlib.Path(__file__).resolve().parent
    models = collections.defaultdict(list)
    for path in sorted(here.glob("*.json")):
        models[path.name.split(".")[0]].append((path.name.removesuffix(".json"), json.loads(path.read_text())))
    for model, files in models.items():
        d = files[0][1]
        package = d["package"].split(", ")[0]
        variants = [f"{name.removeprefix(model).lstrip('.') or 'dynamic'} ({d['opset']}, {sum(d['operators'].values())})" for name, d in files]
        how = {"logit": "input of Sigmoid", "classes": "input of Softmax", "output": "output", "probability": "from the output"}[d["logit"]]
        lines.append(f"| {model} | {package if not package.startswith('torch ') else 'none'} | {', '.join(variants)} | {how} |")
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    p.add_argument("--states", action="store_true")
    p.add_argument("--table", action="store_true")
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    if a.states:
        for model in STATES:
            module = network(model)[0].module
            torch.save(getattr(module, "model", module).state_dict(), a.out / (model + ".pth"))
        return
    if a.table:
        print(table())
        return
    failed = 0
    for name in a.names or jobs():
        try:
            print(make(name, a.out), flush=True)
        except Exception as e:
            failed += 1
            print(f"{name}: FAILED: {type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}", flush=True)
            if a.names:
                traceback.print_exc()
    print(f"{failed} failed")


if __name__ == "__main__":
    main()
