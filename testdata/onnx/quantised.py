#!/usr/bin/env python3
"""Quantises every graph of this folder in several ways, and compares shaver with onnxruntime.

    quantised.py SHAVER            SHAVER is the program
    quantised.py SHAVER NAME ...   only these, for example fuxictr-fm.legacy
    quantised.py SHAVER --write    writes the folder quantised, with the files of KEPT and onnxruntime's logits

Each file that shaver reads must have onnxruntime's logits within 1e-5 of the largest logit,
or 1e-5 if that is below 1. A file that shaver does not read must have a node that rounds what
depends on the row, and be refused with the name of a node of a quantised model. Ways: `dynamic` and `gather` by quantize_dynamic, `static` by
quantize_static, `nbits` and `qdq` by MatMulNBitsQuantizer, and by hand `axis`, which has int8
weights with a scale for each position of an axis, and `2-bit`, `4-bit` and `8-bit`, which have
tables of GatherBlockQuantized with float16 scales and zero points.

It needs numpy, onnx 1.23.2, onnx-ir and onnxruntime 1.32.0.
"""

import collections
import json
import logging
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
import pruned
from onnx import helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization import matmul_nbits_quantizer

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 1e-5
OPERATORS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantize", "MatMulInteger", "QLinear", "ConvInteger", "GatherBlockQuantized", "MatMulNBits")


class Rows(quantization.CalibrationDataReader):
    """The rows of a document as the inputs of a session, once."""

    def __init__(self, model, document):
        self.feeds = pruned.feeds(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]), document)

    def get_next(self):
        return next(self.feeds, None)


def nbits(model, out, form, types, bits):
    m = onnx.load(model)
    quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(m, bits=bits, block_size=16, is_symmetric=False, quant_format=form, op_types_to_quantize=types, quant_axes=(("MatMul", 0), ("Gather", 1)))
    quantizer.process()
    onnx.save(quantizer.model.model, out)


def with_opset(m, version):
    """Returns m at a version of the operator set, at least, and with onnxruntime's own operators."""
    if m.opset_import[0].version < version:
        m = onnx.version_converter.convert_version(m, version)
    m.ir_version = max(m.ir_version, 10)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return m


def axis(model, out):
    m = with_opset(onnx.load(model), 13)
    g = m.graph
    nodes = []
    for t in list(g.initializer):
        w = numpy_helper.to_array(t)
        if w.dtype != np.float32 or w.ndim != 2:
            continue
        scale = (np.abs(w).max(0) / 127).astype(np.float32) + np.float32(1e-9)
        q = np.clip(np.rint(w / scale), -127, 127).astype(np.int8)
        g.initializer.remove(t)
        g.initializer.extend([numpy_helper.from_array(q, t.name + ".q"), numpy_helper.from_array(scale, t.name + ".s")])
        nodes.append(helper.make_node("DequantizeLinear", [t.name + ".q", t.name + ".s"], [t.name], axis=1))
    for n in nodes:
        g.node.insert(0, n)
    if not nodes:
        return False
    onnx.save(m, out)


def blocks(bits):
    def write(model, out):
        m = with_opset(onnx.load(model), 13)
        g, per, found = m.graph, 8 // bits, 0
        for i, n in enumerate(list(g.node)):
            t = next((t for t in g.initializer if n.op_type == "Gather" and t.name == n.input[0]), None)
            axis = sum(a.i for a in n.attribute if a.name == "axis")
            if t is None or t.data_type != onnx.TensorProto.FLOAT or len(t.dims) != 2 or axis != 0 or t.dims[1] % per:
                continue
            w = numpy_helper.to_array(t)
            count = -(-w.shape[1] // 16)
            padded = np.zeros((len(w), 16 * count), np.float32)
            padded[:, : w.shape[1]] = w
            parts = padded.reshape(len(w), count, 16)
            low, high = np.minimum(parts.min(2), 0), np.maximum(parts.max(2), 0)
            scale = ((high - low) / (2**bits - 1) + 1e-6).astype(np.float16)
            zero = np.clip(np.rint(-low / scale), 0, 2**bits - 1).astype(np.uint8)
            q = np.clip(np.rint(parts / scale[:, :, None]) + zero[:, :, None], 0, 2**bits - 1).astype(np.uint8)

            def pack(a):
                a = np.pad(a, ((0, 0), (0, -a.shape[1] % per))).reshape(len(a), -1, per)
                return sum(a[:, :, k] << (bits * k) for k in range(per)).astype(np.uint8)

            name = f"{n.output[0]}.table"
            values = (pack(q.reshape(len(w), -1)[:, : w.shape[1]]), scale, pack(zero))
            g.initializer.extend(numpy_helper.from_array(v, name + s) for v, s in zip(values, ("", ".scale", ".zero")))
            at = list(g.node).index(n)
            g.node.remove(n)
            g.node.insert(at, helper.make_node("Cast", [name + ".half"], [n.output[0]], to=1))
            g.node.insert(at, helper.make_node("GatherBlockQuantized", [name, n.input[1], name + ".scale", name + ".zero"], [name + ".half"], domain="com.microsoft", bits=bits, block_size=16, gather_axis=0, quantize_axis=1))
            found += 1
        if not found:
            return False
        onnx.save(m, out)

    return write


def static(model, out, document):
    quantization.quantize_static(model, out, Rows(model, document), quant_format=quantization.QuantFormat.QDQ)


FORMAT = matmul_nbits_quantizer.QuantFormat
WAYS = {
    "dynamic": lambda m, o, d: quantization.quantize_dynamic(m, o),
    "gather": lambda m, o, d: quantization.quantize_dynamic(m, o, op_types_to_quantize=["Gather"]),
    "static": static,
    "nbits": lambda m, o, d: nbits(m, o, FORMAT.QOperator, ("MatMul", "Gather"), 4),
    "qdq": lambda m, o, d: nbits(m, o, FORMAT.QDQ, ("MatMul",), 4),
    "axis": lambda m, o, d: axis(m, o),
    "2-bit": lambda m, o, d: blocks(2)(m, o),
    "4-bit": lambda m, o, d: blocks(4)(m, o),
    "8-bit": lambda m, o, d: blocks(8)(m, o),
}
KEPT = {"gather": "fuxictr-deepfm.dynamo", "nbits": "fuxictr-deepfm.dynamo", "axis": "deepctr-torch-din.dynamo", "2-bit": "deepctr-torch-din.dynamo"}


def check(name, way):
    """Returns what became of one file: read, refused or absent, and the difference or the reason."""
    document = json.loads((HERE / (name + ".json")).read_text())
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        plain, model = at / "plain.onnx", at / "model.onnx"
        shutil.copy(HERE / (name + ".onnx"), plain)
        if (HERE / (name + ".onnx.data")).exists():
            shutil.copy(HERE / (name + ".onnx.data"), at / (name + ".onnx.data"))
        try:
            if WAYS[way](plain, model, document) is False:
                return "absent", "nothing to quantise"
            operators = {n.op_type for n in onnx.load(model).graph.node}
            want = pruned.logits(model, document)
        except Exception as e:
            return "absent", f"the quantiser or onnxruntime fails: {str(e)[:100]}"
        if not any(o.startswith(OPERATORS) for o in operators):
            return "absent", "nothing was quantised"
        try:
            facts = json.loads(pruned.run(pruned.SHAVER, "model", "inspect", model, "-o", "json"))
        except RuntimeError as e:
            assert any(o in str(e) for o in OPERATORS) and "node " in str(e), e
            assert any(o.startswith(("QuantizeLinear", "DynamicQuantize")) for o in operators), f"only constants are rounded: {e}"
            return "refused", str(e)
        pruned.dataset(at, model, document, facts)
        got = pruned.evaluate(at, model)
        difference = float(np.abs(got - want).max()) / max(1, float(np.abs(want).max()))
        assert difference <= TOLERANCE, f"the logits differ by {difference:.1e}"
        return "read", difference


def write(name, way):
    """Writes the file of one way to the folder quantised."""
    document = json.loads((HERE / (name + ".json")).read_text())
    to = HERE / "quantised"
    to.mkdir(exist_ok=True)
    name = f"{name.split('.')[0]}.{way}"
    model = to / (name + ".onnx")
    WAYS[way](HERE / document["file"], model, document)
    kept = {k: document[k] for k in ("batch", "fields", "output", "logit", "tensor", "ids", "values")}
    (to / (name + ".json")).write_text(json.dumps({"file": f"quantised/{model.name}"} | kept | {"logits": pruned.logits(model, document).tolist()}) + "\n")


def main():
    logging.disable(logging.WARNING)
    if sys.argv[2:] == ["--write"]:
        for way in KEPT:
            write(KEPT[way], way)
        return
    names, failed, counts, worst = sys.argv[2:], 0, {w: collections.Counter() for w in WAYS}, 0.0
    for path in sorted(HERE.glob("*.json")):
        name = path.name.removesuffix(".json")
        if names and name not in names:
            continue
        for way in WAYS:
            try:
                what, detail = check(name, way)
                worst = max(worst, detail) if what == "read" else worst
            except Exception as e:
                what, detail = "FAILED", f"{type(e).__name__}: {e}"
                failed += 1
            counts[way][what] += 1
            print(f"{name} {way}: {what}, {detail}", flush=True)
    for way, count in counts.items():
        print(way, dict(count))
    print(f"the largest difference is {worst:.1e}")
    if failed:
        sys.exit(f"{failed} failed")


if __name__ == "__main__":
    main()
