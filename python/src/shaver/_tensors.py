"""Reads and writes state dicts, whose values are arrays of numpy or tensors of torch."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import BadInputError

Array = np.ndarray[Any, np.dtype[Any]]
StateDict = Mapping[str, Any]
"""Tensors by name. The values are all arrays of numpy or all tensors of torch."""

_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # the bits, because numpy has no such type
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
_NAMES = {np.dtype(text): name for name, text in _TYPES.items() if name != "BF16"}


def is_tensor(value: object) -> bool:
    """Reports whether value is a tensor of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def write(path: Path, state: StateDict) -> Path:
    """Writes a state dict to path with a suffix for its form, which it returns.

    The form is .pth for tensors of torch and .safetensors for arrays of numpy. Raises
    BadInputError if a value is neither.
    """
    if not state:
        raise BadInputError("the state dict is empty, expected tensors by name")
    for name, value in state.items():
        if not is_tensor(value) and not isinstance(value, np.ndarray):
            raise BadInputError(f"{name} is a {type(value).__name__}, expected an array of numpy or a tensor of torch")
    if any(is_tensor(value) for value in state.values()):
        import torch

        if not all(is_tensor(value) for value in state.values()):
            raise BadInputError("the state dict has both arrays and tensors, expected only one of them")
        path = path.with_suffix(".pth")
        torch.save({name: value.detach().cpu() for name, value in state.items()}, path)
        return path
    path = path.with_suffix(".safetensors")
    _write_safetensors(path, state)
    return path


def _write_safetensors(path: Path, state: Mapping[str, Array]) -> None:
    header: dict[str, object] = {}
    arrays = []
    at = 0
    for name, value in state.items():
        kind = _NAMES.get(value.dtype.newbyteorder("<"))
        if kind is None:
            raise BadInputError(f"{name} has the type {value.dtype}, expected one of {', '.join(map(str, _NAMES))}")
        array = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [at, at + array.nbytes]}
        arrays.append(array)
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as f:
        f.write(len(text).to_bytes(8, "little"))
        f.write(text)
        for array in arrays:
            f.write(array.tobytes())


def read(path: str | os.PathLike[str]) -> Iterator[tuple[str, Array]]:
    """Yields the tensors of a safetensors file that shaver wrote, as arrays that map the file."""
    data = np.memmap(path, np.uint8, "r")
    size = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8 : 8 + size].tobytes())
    for name, facts in header.items():
        if name != "__metadata__":
            first, last = (8 + size + offset for offset in facts["data_offsets"])
            yield name, data[first:last].view(_TYPES[facts["dtype"]]).reshape(facts["shape"])


def same_bits(one: Array, other: Array) -> bool:
    """Reports whether two arrays have the same type, shape and bits."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def shares(one: Any, other: Any) -> bool:
    """Reports whether two tensors of torch begin at the same place in memory, as tied weights do."""
    return is_tensor(one) and is_tensor(other) and one.numel() > 0 and one.data_ptr() == other.data_ptr()


def as_array(value: Any) -> Array | None:
    """Returns an array or a tensor as an array, or None if numpy does not have its type. The
    array of a bfloat16 tensor has its bits."""
    if not is_tensor(value):
        return np.asarray(value)
    import torch

    tensor = value.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.contiguous().view(torch.int16).numpy().view(np.uint16))
    try:
        return np.asarray(tensor.numpy())
    except TypeError:
        return None


def replaced(value: Any, array: Array) -> Any:
    """Returns a copy of an array or a tensor with the entries of array, or None if all are the same.

    If array is float32 and value has another type, as the tables of a pruned file may, an entry
    is the same if it is so in float32. It then keeps its bits.
    """
    old = as_array(value)
    if old is None or old.shape != array.shape:
        raise BadInputError(f"a tensor has the shape {tuple(value.shape)} and the type {value.dtype}, which the pruned tensor {array.shape} does not fit")
    if old.dtype != array.dtype:
        old = np.asarray(value.detach().cpu().float().numpy() if is_tensor(value) else value.astype(array.dtype))
    bits = np.dtype(f"u{array.itemsize}")
    same = np.ascontiguousarray(old).view(bits) == np.ascontiguousarray(array).view(bits)
    if same.all():
        return None
    if not is_tensor(value):
        return np.where(same, value, array.astype(value.dtype))
    import torch

    if value.dtype == torch.bfloat16 and array.dtype == np.uint16:
        new = torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    else:
        new = torch.from_numpy(np.array(array)).to(value.dtype)
    return torch.where(torch.from_numpy(same), value.detach().cpu(), new).to(value.device)
