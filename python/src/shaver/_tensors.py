"""Reads and writes state dicts, whose values are arrays of numpy or tensors of torch."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import BadInputError

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, np.dtype[Any]]
StateDict = Mapping[str, Any]
"""Tensors by name. The values are all arrays of numpy or all tensors of torch."""

_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
_NAMES = {np.dtype(text): name for name, text in _TYPES.items()}


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


def as_array(value: Any) -> Array | None:
    """Returns an array or a tensor as an array, or None if numpy does not have its type."""
    if not is_tensor(value):
        return np.asarray(value)
    try:
        return np.asarray(value.detach().cpu().numpy())
    except TypeError:
        return None


def like(array: Array, value: Any) -> Any:
    """Returns a copy of array of the class, type and device of value."""
    if not is_tensor(value):
        return np.array(array, value.dtype)
    import torch

    return torch.from_numpy(np.array(array)).to(value.device, value.dtype)


def copy_into(array: Array, tensor: torch.Tensor) -> None:
    """Overwrites the values of a tensor in place, also those of a parameter."""
    import torch

    with torch.no_grad():
        tensor.copy_(torch.from_numpy(np.array(array)))
