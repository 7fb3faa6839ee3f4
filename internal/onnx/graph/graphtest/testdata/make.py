"""Writes ONNX's own test vectors of the operators of package graph, one file per operator.

The vectors are those of onnx.backend.test (Apache-2.0), with onnx 1.23.2. A line of a file
is a case in JSON: the operator, its attributes, inputs and outputs, and the tolerances of
ONNX's own runner. Elements are text, separated by spaces. float64 becomes float32, and all
whole numbers become int64. The cases of OWN are not ONNX's; onnx.reference computed them.

The vectors of REWRITTEN are in the folder rewritten. onnxruntime computed those that are not ONNX's.

    python -W ignore make.py $(go test -run '^TestOperators$' -v .. | grep ^Abs)
"""
import json
import pathlib
import re
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_node_model_tests
from onnx.reference import ReferenceEvaluator

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
INTS = (TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
        TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64)
LONGEST = 16000 # bytes of a line; longer cases are left out

# Cases that package graph refuses, or whose result depends on the width of a type.
SKIP = [
    r"_training|_train|dropout_.*mask|dropout_default_ratio_mask",  # training, second outputs
    r"scatter.*_(add|mul|max|min)|with_duplicate_indices",  # reductions of Scatter
    r"mod_float.*fmod_0",                     # floats with fmod=0, which set 22 does not have
    r"pad_.*(edge|reflect|wrap)|_(edge|reflect|wrap)_pad",  # modes of Pad
    r"reduce_(max|min)_.*bool",               # reductions of bools
    r"_(uint8|uint16|uint32|uint64|int8|int16)$",  # arithmetic that wraps
    r"cast_.*(FLOAT16|BFLOAT16|FLOAT8|INT4|UINT4|STRING|FLOAT4|E8M0|INT2)",
]

# Operators of which package graph has only the first output.
SINGLE = ("Dropout", "LayerNormalization", "BatchNormalization", "MaxPool")

# Operators that package dissect converts to others. Of Conv, package graph has kernels of one element.
REWRITTEN = ("Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "InstanceNormalization", "GRU", "LSTM", "RNN")


def tensor(array, type_):
    if type_ in FLOATS:
        data = " ".join(np.format_float_scientific(x, trim="-", exp_digits=1) if x != 0 and np.isfinite(x) and not 1e-4 <= abs(x) < 1e7
                        else np.format_float_positional(x, trim="-") for x in array.astype(np.float32).ravel())
        return {"type": "float", "shape": list(array.shape), "data": data}
    if type_ in INTS:
        data = " ".join(str(int(np.int64(np.uint64(x) if type_ == TensorProto.UINT64 else x))) for x in array.ravel())
        return {"type": "int64", "shape": list(array.shape), "data": data}
    if type_ == TensorProto.BOOL:
        return {"type": "bool", "shape": list(array.shape), "data": " ".join(str(int(x)) for x in array.ravel())}
    raise ValueError(f"type {type_}")


def attribute(a):
    value = helper.get_attribute_value(a)
    if a.type == onnx.AttributeProto.INT:
        return {"i": value}
    if a.type == onnx.AttributeProto.FLOAT:
        return {"f": str(np.float32(value))}
    if a.type == onnx.AttributeProto.STRING:
        return {"s": value.decode()}
    if a.type == onnx.AttributeProto.INTS:
        return {"is": list(value)}
    if a.type == onnx.AttributeProto.FLOATS:
        return {"fs": [str(np.float32(v)) for v in value]}
    if a.type == onnx.AttributeProto.STRINGS:
        return {"ss": [v.decode() for v in value]}
    if a.type == onnx.AttributeProto.TENSOR:
        return {"t": tensor(numpy_helper.to_array(value), value.data_type)}
    raise ValueError(f"attribute type {a.type}")


def case(name, node, inputs, outputs, rtol, atol):
    """inputs and outputs are lists of (array, type), or None for an absent input."""
    if node.op_type in SINGLE:
        outputs = outputs[:1]
    return {
        "name": name, "op": node.op_type,
        "attributes": {a.name: attribute(a) for a in node.attribute},
        "inputs": [t and tensor(*t) for t in inputs],
        "outputs": [t and tensor(*t) for t in outputs],
        "rtol": rtol, "atol": atol,
    }


def onnx_cases(operators):
    for t in load_node_model_tests():
        graph = t.model.graph
        node = graph.node[0]
        if len(graph.node) != 1 or node.op_type not in operators or node.domain or any(re.search(p, t.name) for p in SKIP):
            continue
        schema = onnx.defs.get_schema(node.op_type, 22)
        if any(o.version < schema.since_version for o in t.model.opset_import if o.domain == ""):
            continue
        types = {v.name: v.type.tensor_type.elem_type for v in [*graph.input, *graph.output]}
        for inputs, outputs in t.data_sets:
            if not all(isinstance(x, (np.ndarray, np.generic)) for x in [*inputs, *outputs]):
                continue
            named = {v.name: (np.asarray(x), types[v.name]) for v, x in zip(graph.input, inputs)}
            results = {v.name: (np.asarray(x), types[v.name]) for v, x in zip(graph.output, outputs)}
            try:
                yield case(t.name, node, [named[n] if n else None for n in node.input], [results[n] if n else None for n in node.output], t.rtol, t.atol)
            except ValueError as e:
                print("left out:", t.name, e, file=sys.stderr)


def own_cases():
    rng = np.random.default_rng(1)

    def f(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    own = [
        ("pad_zero", helper.make_node("Pad", ["x", "p"], ["y"]), [f(2, 3), np.array([1, 0, 0, 2])]),
        ("pad_axis", helper.make_node("Pad", ["x", "p", "", "a"], ["y"]), [f(2, 3), np.array([1, 2]), None, np.array([-1])]),
        ("split_last_smaller", helper.make_node("Split", ["x"], ["y", "z"], num_outputs=2, axis=1), [f(2, 5)]),
        ("erf", helper.make_node("Erf", ["x"], ["y"]), [np.concatenate([f(20) * 2, np.array([0, 9, -9], np.float32)])]),
        ("cast_float_to_int32", helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT32), [np.array([1.7, -1.7, 0, 2.5], np.float32)]),
        ("cast_float_to_bool", helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BOOL), [np.array([1.7, -1.7, 0, .1], np.float32)]),
        ("cast_int_to_float", helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT), [np.array([3, -4, 16777217])]),
        ("cast_int_to_int8", helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT8), [np.array([3, -4, 200, -129])]),
        ("cast_int_to_bool", helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BOOL), [np.array([3, -4, 0])]),
        ("conv1_bias", helper.make_node("Conv", ["x", "w", "b"], ["y"], kernel_shape=[1]), [f(1, 4, 3), f(2, 4, 1), f(2)]),
        ("conv1_groups", helper.make_node("Conv", ["x", "w"], ["y"], group=2, kernel_shape=[1]), [f(1, 4, 3), f(6, 2, 1)]),
        ("conv2", helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[1, 1], pads=[0, 0, 0, 0], strides=[1, 1]), [f(2, 3, 2, 2), f(2, 3, 1, 1)]),
        ("einsum_bilinear", helper.make_node("Einsum", ["x", "y"], ["z"], equation="bid,bjd->bij"), [f(1, 3, 4), f(1, 2, 4)]),
        ("einsum_outer", helper.make_node("Einsum", ["x", "y"], ["z"], equation="bhd,bmd->bhmd"), [f(1, 2, 3), f(1, 2, 3)]),
        ("einsum_broadcast", helper.make_node("Einsum", ["x", "y"], ["z"], equation="...ij,jk->...ik"), [f(2, 1, 2, 3), f(3, 2)]),
        ("einsum_trace", helper.make_node("Einsum", ["x"], ["z"], equation="ii"), [f(3, 3)]),
        ("einsum_implicit", helper.make_node("Einsum", ["x", "y"], ["z"], equation="ba,ac"), [f(2, 3), f(3, 2)]),
        ("matmul_lists", helper.make_node("MatMul", ["x", "y"], ["z"]), [f(3), f(3)]),
        ("matmul_list_left", helper.make_node("MatMul", ["x", "y"], ["z"]), [f(3), f(2, 3, 2)]),
        ("matmul_list_right", helper.make_node("MatMul", ["x", "y"], ["z"]), [f(2, 3, 2), f(2)]),
        ("matmul_broadcast", helper.make_node("MatMul", ["x", "y"], ["z"]), [f(2, 1, 2, 3), f(3, 3, 2)]),
        ("gather_negative", helper.make_node("Gather", ["x", "i"], ["y"], axis=-1), [f(2, 4), np.array([[0, -1], [-4, 2]])]),
        ("slice_back", helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"]), [f(5, 4), np.array([10, -1]), np.array([-10, 0]), np.array([0, -1]), np.array([-2, -3])]),
    ]
    recurrent = [
        ("gru_both", helper.make_node("GRU", ["x", "w", "r", "b", "n", "h"], ["y", "z"], hidden_size=2, direction="bidirectional", linear_before_reset=1),
         [f(4, 3, 2), f(2, 6, 2), f(2, 6, 2), f(2, 12), np.array([4, 2, 1]), f(2, 3, 2)]),
        ("gru_reverse", helper.make_node("GRU", ["x", "w", "r", "b"], ["y", "z"], hidden_size=2, direction="reverse", clip=.5), [f(3, 1, 4), f(1, 6, 4), f(1, 6, 2), f(1, 12)]),
        ("gru_activations", helper.make_node("GRU", ["x", "w", "r"], ["", "z"], hidden_size=3, activations=["HardSigmoid", "Relu"]), [f(3, 2, 1), f(1, 9, 1), f(1, 9, 3)]),
        ("lstm_both", helper.make_node("LSTM", ["x", "w", "r", "b", "n", "h", "c"], ["y", "h1", "c1"], hidden_size=2, direction="bidirectional"),
         [f(4, 3, 2), f(2, 8, 2), f(2, 8, 2), f(2, 16), np.array([1, 4, 3]), f(2, 3, 2), f(2, 3, 2)]),
        ("lstm_peepholes", helper.make_node("LSTM", ["x", "w", "r", "b", "", "", "", "p"], ["y", "", "c1"], hidden_size=2, direction="reverse"),
         [f(3, 2, 2), f(1, 8, 2), f(1, 8, 2), f(1, 16), None, None, None, f(1, 6)]),
        ("rnn_both", helper.make_node("RNN", ["x", "w", "r", "b", "", "h"], ["y", "z"], hidden_size=2, direction="bidirectional", activations=["Tanh", "Relu"]),
         [f(3, 2, 2), f(2, 2, 2), f(2, 2, 2), f(2, 4), None, f(2, 2, 2)]),
        ("conv_dilated", helper.make_node("Conv", ["x", "w", "b"], ["y"], dilations=[1, 2], strides=[2, 1], pads=[1, 0, 0, 2], group=2), [f(2, 4, 4, 5), f(6, 2, 2, 3), f(6)]),
        ("conv_list", helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3], auto_pad="SAME_LOWER", strides=[2]), [f(1, 2, 6), f(3, 2, 3)]),
        ("conv_stride", helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[1], strides=[2]), [f(1, 2, 5), f(3, 2, 1)]),
        ("pool_pads", helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3], pads=[1, 2], strides=[2]), [f(1, 2, 6)]),
        ("pool_counted", helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3], pads=[1, 1], strides=[2], count_include_pad=1), [f(1, 2, 5)]),
        ("pool_ceil", helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[3], ceil_mode=1), [f(1, 2, 7)]),
        ("mish", helper.make_node("Mish", ["x"], ["y"]), [np.concatenate([f(20) * 3, np.array([0, 100, -100], np.float32)])]),
    ]
    for name, node, inputs in own + recurrent:
        ints = [x is not None and x.dtype == np.int64 for x in inputs]
        given = [(n, x, i) for n, x, i in zip(node.input, inputs, ints) if n]
        graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, TensorProto.INT64 if i else TensorProto.FLOAT, x.shape)
                                                for n, x, i in given],
                                  [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in node.output if n])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
        feed = {n: x for n, x, _ in given}
        if node.op_type in REWRITTEN and not name.startswith("conv1") and name != "conv2":
            if "n" in feed:
                model.graph.input[4].type.tensor_type.elem_type, feed["n"] = TensorProto.INT32, feed["n"].astype(np.int32)
            model.ir_version = 10
            results = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
        else:
            results = [np.asarray(r) for r in ReferenceEvaluator(model).run(None, feed)]
        results = [(r, helper.np_dtype_to_tensor_dtype(r.dtype)) for r in results]
        pairs = [x if x is None else (x, TensorProto.INT64 if i else TensorProto.FLOAT) for x, i in zip(inputs, ints)]
        yield case("own_" + name, node, pairs, [results.pop(0) if n else None for n in node.output], 1e-3, 1e-7)


def main():
    operators = set(sys.argv[1:])
    if not operators:
        sys.exit(__doc__)
    lines = {}
    for c in [*onnx_cases(operators.union(REWRITTEN)), *own_cases()]:
        ones = c["op"] == "Conv" and set(c["inputs"][1]["shape"][2:]) == {1} and "strides" not in c["attributes"]
        ones = ones or c["name"] == "own_conv2"
        path = "rewritten/" if c["op"] in REWRITTEN and not ones else ""
        lines.setdefault(path + c["op"], []).append(json.dumps(c, separators=(",", ":")))
    folder = pathlib.Path(__file__).parent
    for old in folder.rglob("*.jsonl"):
        old.unlink()
    (folder / "rewritten").mkdir(exist_ok=True)
    for op, cases in sorted(lines.items()):
        kept = [c for c in cases if len(c) <= LONGEST]
        print(op, len(kept), "of", len(cases), file=sys.stderr)
        (folder / (op + ".jsonl")).write_text("\n".join(sorted(kept)) + "\n")
    print("without vectors:", sorted(operators - set(lines)), file=sys.stderr)


main()
