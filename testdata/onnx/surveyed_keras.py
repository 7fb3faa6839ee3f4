#!/usr/bin/env python3
"""Exports the models of DeepCTR (TensorFlow) for survey.py by tf2onnx: surveyed_keras.py DIR [NAME ...].

It needs tensorflow-cpu 2.18.1, tf_keras 2.18.0, deepctr 0.9.4, tf2onnx and onnxruntime, in an environment of its own.
"""

import json
import os
import pathlib
import sys

os.environ |= {"TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}

import numpy as np
import requests
import survey

requests.get = lambda *a, **k: exec("raise OSError('offline')")  # the package asks for its newest version

import deepctr.models as m  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf2onnx  # noqa: E402
from deepctr.feature_column import DenseFeat, SparseFeat, VarLenSparseFeat  # noqa: E402

FIELDS = [("user", 7), ("item", 11), ("category", 5), ("city", 4), ("device", 3)]
DENSE = ["age", "price"]
HISTORY = [("hist_item", "item", 11), ("hist_category", "category", 5)]
L, DIM = 4, 4
H, T = dict(dnn_hidden_units=(8, 6)), dict(tower_dnn_hidden_units=(6,))
PLAIN = [SparseFeat(n, s, DIM) for n, s in FIELDS]
C = PLAIN + [DenseFeat(n, 1) for n in DENSE]
LISTS = C + [VarLenSparseFeat(SparseFeat(n, s, DIM, embedding_name=t), maxlen=L, length_name="seq_length") for n, t, s in HISTORY]
MASKED = C + [VarLenSparseFeat(SparseFeat(n, s, DIM, embedding_name=t), maxlen=L) for n, t, s in HISTORY]
SESSIONS = C + [VarLenSparseFeat(SparseFeat(f"sess_{i}_{n}", s, DIM, embedding_name=n), maxlen=L) for i in range(2) for n, s in (("item", 11), ("category", 5))]
GROUPS = [SparseFeat(n, s, DIM, group_name=g) for (n, s), g in zip(FIELDS, ("user", "item", "item", "user", "context"))]

MODELS = {k: lambda k=k: getattr(m, k)(C, C, **H) for k in ("DeepFM", "WDL", "NFM", "IFM", "ONN", "xDeepFM", "DCN", "DCNMix", "FNN", "FwFM", "DeepFEFM", "FiBiNET")}
MODELS |= {
    "AFM": lambda: m.AFM(C, PLAIN, attention_factor=5),
    "AutoInt": lambda: m.AutoInt(C, C, att_layer_num=2, att_embedding_size=3, **H),
    "CCPM": lambda: m.CCPM(PLAIN, PLAIN, conv_kernel_width=(3, 2), conv_filters=(2, 2), **H),
    "DCN matrix": lambda: m.DCN(C, C, cross_parameterization="matrix", **H),
    "DIFM": lambda: m.DIFM(C, C, att_embedding_size=3, att_head_num=2, **H),
    "EDCN": lambda: m.EDCN(PLAIN, PLAIN),
    "FGCNN": lambda: m.FGCNN(PLAIN, PLAIN, conv_kernel_width=(3, 2), conv_filters=(2, 3), new_maps=(2, 2), pooling_width=(2, 2), **H),
    "FLEN": lambda: m.FLEN(GROUPS, GROUPS, **H),
    "MLR": lambda: m.MLR(C, region_num=2),
    "PNN inner": lambda: m.PNN(C, **H),
    "PNN outer": lambda: m.PNN(C, use_inner=False, use_outter=True, **H),
    "BST": lambda: m.BST(LISTS, ["item", "category"], att_head_num=2, **H),
    "DIN": lambda: m.DIN(MASKED, ["item", "category"], att_hidden_size=(6, 4), **H),
    "DSIN": lambda: m.DSIN(SESSIONS, ["item", "category"], sess_max_count=2, att_embedding_size=4, att_head_num=2, **H),
    "ESMM ctr": lambda: task(m.ESMM(C, **T), 0),
    "ESMM ctcvr": lambda: task(m.ESMM(C, **T), 1),
    "MMOE": lambda: task(m.MMOE(C, expert_dnn_hidden_units=(8,), gate_dnn_hidden_units=(4,), **T), 0),
    "PLE": lambda: task(m.PLE(C, expert_dnn_hidden_units=(8,), gate_dnn_hidden_units=(4,), **T), 0),
    "SharedBottom": lambda: task(m.SharedBottom(C, bottom_dnn_hidden_units=(8,), **T), 0),
}
MODELS |= {f"DIEN {k}": lambda k=k: m.DIEN(LISTS, ["item", "category"], gru_type=k, att_hidden_units=(6, 4), **H) for k in ("GRU", "AIGRU", "AGRU", "AUGRU")}
MODELS["xDeepFM"] = lambda: m.xDeepFM(C, C, cin_layer_size=(6, 4), **H)


def task(model, i):
    return tf.keras.Model(model.inputs, model.outputs[i])


def plant(model, r):
    for w in model.weights:
        if w.dtype != tf.float32:
            continue
        fan = w.shape[-2] if len(w.shape) > 1 else 25
        value = r.normal(size=w.shape) * (0.5 if "emb" in w.name else max(0.2, 1 / fan**0.5))
        if "variance" in w.name or "gamma" in w.name:
            value = r.uniform(0.6, 1.6, size=w.shape)
        w.assign(value.astype(np.float32))


def export(name, build, path):
    seed = sum(ord(c) * (i + 1) for i, c in enumerate(name))
    r = np.random.default_rng(seed)
    tf.keras.backend.clear_session()
    model = build()
    plant(model, r)
    sizes = dict(FIELDS) | {n: s for n, _, s in HISTORY} | {f"sess_{i}_{n}": s for i in range(2) for n, s in (("item", 11), ("category", 5))}
    lengths = r.integers(1, L + 1, 32)
    values = {}
    for i in model.inputs:
        width = i.shape[1] or 1
        if i.name == "seq_length":
            values[i.name] = lengths[:, None]
        elif i.name == "sess_length":
            values[i.name] = r.integers(1, 3, (32, 1))
        elif i.name in DENSE:
            values[i.name] = r.normal(size=(32, 1)).astype(np.float32).round(3)
        elif width > 1:
            values[i.name] = r.integers(1, sizes[i.name], (32, width)) * (np.arange(width) < lengths[:, None])
        else:
            values[i.name] = r.integers(0, sizes[i.name], (32, 1))
    types = [[i.name, i.dtype.name, i.shape[1] or 1] for i in model.inputs]
    tensors = [tf.constant(values[n].astype(t)) for n, t, _ in types]
    signature = [tf.TensorSpec((None, i.shape[1] or 1), i.dtype, name=i.name) for i in model.inputs]
    tf2onnx.convert.from_keras(model, input_signature=signature, opset=17, output_path=str(path))
    document = {"inputs": {k: v.tolist() for k, v in values.items()}, "types": types, "batch": 0}
    document |= survey.run_document(path, document)
    y = model(tensors, training=False).numpy().reshape(32, -1)
    document["differs"] = float(np.abs(np.array(document["outputs"]) - y).max())
    if document["differs"] > 1e-3:
        raise RuntimeError(f"the graph computes something else: onnxruntime differs from TensorFlow by {document['differs']:.1e}")
    weights = [w for w in model.trainable_weights if len(w.shape) == 2]
    total = None
    for i in range(survey.SCORED):
        with tf.GradientTape() as tape:
            p = tf.reshape(model([t[i : i + 1] for t in tensors], training=False), [-1])[0]
            z = tf.math.log(p) - tf.math.log1p(-p)
        g = [tf.convert_to_tensor(d).numpy() if d is not None else np.zeros(w.shape) for d, w in zip(tape.gradient(z, weights), weights)]
        c = [-(float(p) - i % 2) * d * w.numpy() / survey.SCORED for d, w in zip(g, weights)]
        total = c if total is None else [a + b for a, b in zip(total, c)]
    import onnx

    known = {}
    for tensor, value in survey.tensors(onnx.load(path).graph):
        for w, t in zip(weights, total):
            if value.shape == t.shape and np.array_equal(value, w.numpy()):
                known[tensor] = t.tolist()
    document["derivatives"] = document["probabilities"] = known
    return document


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, build in MODELS.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        path = folder / f"deepctr.{name}.tf2onnx.onnx"
        if path.with_suffix(".json").exists():
            continue
        try:
            document = export(name, build, path)
        except Exception as e:
            path.unlink(missing_ok=True)
            document = {"error": f"{type(e).__name__}: {survey.first_line(e)}"}
        document |= {"name": "deepctr/" + name, "exporter": "tf2onnx"}
        path.with_suffix(".json").write_text(json.dumps(document))
        print(f"{name}: {document.get('error') or 'exported, TensorFlow differs by %.1e' % document['differs']}", flush=True)


main()
