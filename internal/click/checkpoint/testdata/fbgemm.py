#!/usr/bin/env python3
"""Compares shaver model convert --rows with FBGEMM: the bytes of the rows with those of its quantizer, and the values that
IntNBitTableBatchedEmbeddingBagsCodegen and TorchRec's EmbeddingBagCollection read from the file with what FBGEMM dequantizes. Run it with
fbgemm-gpu-cpu, the torch that it needs, torchrec (pip install --no-deps), safetensors, and the program shaver in PATH. It prints a line for each model and type, and fails if a bit differs."""
import json
import os
import subprocess
import tempfile

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_inference import IntNBitTableBatchedEmbeddingBagsCodegen
from safetensors import safe_open
from safetensors.torch import save_file
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig
from torchrec.quant.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

TYPES = {"int8": (8, SparseType.INT8), "int4": (4, SparseType.INT4), "int2": (2, SparseType.INT2), "float16": (16, SparseType.FP16)}
KEY = "embedding.weight"


def table(generator, rows, dim):
    """Returns rows of many magnitudes, rows of one value, rows of zeros, pruned rows, and rows of few values with ties."""
    values = generator.standard_normal((rows, dim)) * np.exp(generator.uniform(-18, 8, (rows, 1)))
    kind = generator.integers(0, 8, rows)
    values[kind == 0] = values[kind == 0][:, :1]
    values[kind == 1] = 0
    values[kind == 2] *= generator.random((int((kind == 2).sum()), dim)) < 0.3
    values[kind == 3] = generator.integers(-8, 8, (int((kind == 3).sum()), dim)) / 2
    values[kind == 4] += generator.uniform(-100, 100, (int((kind == 4).sum()), 1))
    return torch.from_numpy(values.astype(np.float32)) + 0.0  # no -0


def read(rows, dim, kind, data):
    """Returns the values that a table of FBGEMM on a CPU reads, and its rows."""
    parts = (data, None) if kind == SparseType.FP16 else (data[:, 4:], data[:, :4])
    bags = IntNBitTableBatchedEmbeddingBagsCodegen(
        [(KEY, rows, dim, kind, EmbeddingLocation.HOST)], device="cpu", pooling_mode=PoolingMode.NONE,
        output_dtype=SparseType.FP32, weight_lists=[parts])
    ids = torch.arange(rows + 1, dtype=torch.int32)
    return bags(ids[:-1], ids), bags.split_embedding_weights(split_scale_shifts=False)[0][0]


def read_torchrec(rows, dim, name, data):
    """Returns the values that a quantized table of TorchRec reads."""
    config = EmbeddingBagConfig(name="t", embedding_dim=dim, num_embeddings=rows, feature_names=["f"], data_type=DataType[name.upper()])
    bags = EmbeddingBagCollection(
        tables=[config], is_weighted=False, device=torch.device("cpu"), output_dtype=torch.float32,
        table_name_to_quantized_weights={"t": (data[:, 4:].contiguous(), data[:, :4].contiguous())})
    ids = KeyedJaggedTensor(keys=["f"], values=torch.arange(rows), lengths=torch.ones(rows, dtype=torch.int64))
    return bags(ids).values()


def compare(folder, values, name):
    bits, kind = TYPES[name]
    rows, dim = values.shape
    model, out = os.path.join(folder, "fm.safetensors"), os.path.join(folder, "rows.safetensors")
    save_file({KEY: values, "fc.weight": torch.zeros(rows, 1), "_bias": torch.zeros(1)}, model)
    with open(os.path.join(folder, "fm.json"), "w") as f:
        json.dump({"kind": "fm", "field_dims": [rows // 3, rows - rows // 3]}, f)
    subprocess.run(["shaver", "model", "convert", model, out, "--rows", name], check=True, stdout=subprocess.DEVNULL)
    with safe_open(out, "pt") as f:
        (key,), ours, header = f.keys(), f.get_tensor(KEY), json.loads(f.metadata()["shaver.tables"])
    assert key == KEY and header == {"version": 1, "rows": name, "dims": {KEY: dim}}, header
    got, stored = read(rows, dim, kind, ours)
    if name == "float16":
        want, values = values.half().view(torch.uint8), values.half().float()
    else:
        fused = torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf(values, bits)
        want = torch.cat([fused[:, -4:], fused[:, :-4]], 1)
        values = torch.ops.fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloat(fused, bits)
    assert torch.equal(ours, want), (ours != want).any(1).nonzero()[:5]
    assert torch.equal(stored, ours)
    assert torch.equal(got, values), float((got - values).abs().max())
    if name != "float16":
        assert torch.equal(read_torchrec(rows, dim, name, ours), values)
    print(f"{name}: {rows} rows of {dim} columns, the same bytes and the same values")


generator = np.random.default_rng(1)
with tempfile.TemporaryDirectory() as folder:
    for name, (bits, _) in TYPES.items():
        for dim in (2, 4, 8, 16, 24, 40, 64, 128):
            if dim * bits % 16 == 0:
                compare(folder, table(generator, 20000, dim), name)
