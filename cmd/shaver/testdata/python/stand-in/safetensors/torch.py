"""Stands in for the package safetensors where that is not installed, as Debian
has PyTorch without it: the format is a length, a JSON header and the bytes."""

import json

import torch

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "I64": torch.int64,
         "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}


def load_file(path):
    raw = bytearray(open(path, "rb").read())
    start = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for key, info in json.loads(raw[8:start]).items():
        if key != "__metadata__":
            begin, end = info["data_offsets"]
            data = torch.frombuffer(raw[start + begin:start + end], dtype=TYPES[info["dtype"]])
            tensors[key] = data.reshape(info["shape"])
    return tensors
