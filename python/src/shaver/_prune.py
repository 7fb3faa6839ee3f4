"""Prunes models, and puts pruned tables back into modules and state dicts."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from . import _tensors
from ._command import Flag, document, log
from ._dataset import Dataset, DatasetLike
from ._errors import BadInputError
from ._model import NAMES, Model, Source, is_module
from ._progress import ProgressOption
from ._scores import Scores, ScoresLike
from ._scratch import delete, delete_with, fresh

if TYPE_CHECKING:
    import torch

M = TypeVar("M", bound=Model | Source)


def prune(
    model: M,
    scores: ScoresLike,
    *,
    sparsity: float | None = None,
    parameters: int | None = None,
    bytes: int | None = None,
    max_rise: float | None = None,
    aggregate: Literal["rms", "sum", "abs", "signed"] | None = None,
    protect: Sequence[str] | None = None,
    field_minimum: float | None = None,
    values: Literal["float32", "float16", "int8", "auto"] | None = None,
    calibrate: bool = False,
    tune: bool = False,
    dense: bool | None = None,
    dataset: DatasetLike | None = None,
    in_place: bool = False,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: ProgressOption = None,
    **flags: Flag,
) -> M:
    """Drops the entries of the embedding table with the lowest scores, and returns the result.

    Only the tables change: all other tensors of a state dict are the same objects, and those of a
    module have the same bits. With ``calibrate`` or ``tune``, other weights of a state dict change
    too. The budget is one of ``sparsity``, ``parameters``, ``bytes`` and ``max_rise``.

    Parameters
    ----------
    model : Model, path, state dict or torch.nn.Module
        Model that was scored.
    scores : Scores or path
        Scores of the model.
    sparsity : float in [0, 1], optional
        Budget: portion of the entries to drop.
    parameters : int, optional
        Budget: number of parameters to keep.
    bytes : int, optional
        Budget: size of the compact file in bytes.
    max_rise : float, optional
        Budget: rise of the loss on the split val, over the whole model, that may cost fields,
        columns, entries and, with ``values="auto"``, bits. It needs a model that is a file, because
        tensors become smaller.
    aggregate : {"rms", "sum", "abs", "signed"}, default "rms"
        Aggregate of the scores to rank by: the root mean square over rows, the mean, which is the
        paper's ranking, the mean absolute value, or the mean with its sign. Scores of path have only their order.
    protect : sequence of str, optional
        Fields that keep all entries.
    field_minimum : float in [0, 1], optional
        Smallest portion of its entries that each field keeps.
    values : {"float32", "float16", "int8", "auto"}, default "float32"
        Encoding of the kept entries, to which they are rounded. "auto" chooses the bits of each row
        and needs ``dataset``.
    calibrate : bool, default False
        Fit a*logit + b to the split val of ``dataset``, and fold a and b into the weights.
    tune : bool, default False
        Train the kept entries and the head on the split train of ``dataset``.
    dense : bool, optional
        Write every entry, also the dropped ones, by default in .onnx files only. With False a table
        of such a file is stored by its kept entries if that is smaller.
    dataset : Dataset or path, optional
        Rows for ``calibrate``, ``tune`` and ``max_rise``, by default those that were scored.
    in_place : bool, default False
        Change a module instead of a copy of it.
    out : path, optional
        File for the pruned model: .safetensors, or .onnx if the model is an .onnx file or was
        exported to one. Required if ``model`` is a path.
    force : bool, default False
        Replace a file at ``out`` that shaver did not write.
    progress : bool or callable, optional
        Whether to show the progress, or a function that is called with each Progress.
    **flags
        Other flags of ``shaver prune``. ``python -m shaver prune --help-all`` prints all of them.

    Returns
    -------
    the class of ``model``
        A path gives the path of the pruned file. A state dict gives a new one. A module gives a
        copy of it. A Model gives one whose ``source`` is the pruned source.
    """
    known = Scores.of(scores)
    before = Model.of(model, known.field_dims)
    in_memory = not isinstance(before.source, (str, os.PathLike))
    rows = None if dataset is None else Dataset.of(dataset)
    if in_memory and max_rise is not None:
        raise BadInputError("max_rise removes fields and columns too, which a model in memory cannot lose: prune the file of Model.path, with out")
    if rows is None and (calibrate or tune or max_rise is not None):
        rows = known.dataset
    if out is None:
        if not in_memory:
            raise BadInputError(f"{before.path}: pruning a file needs out, the path of the pruned file")
        path = str(fresh("pruned.onnx" if before.is_onnx else "pruned.safetensors", "the pruned model"))
    else:
        path = str(os.fspath(out))
        if in_memory and before.is_onnx and not path.endswith(".onnx"):
            raise BadInputError(f"{path}: the module was exported to ONNX, expected an .onnx file")
    if in_memory and before.is_onnx and (calibrate or tune):
        raise BadInputError("calibrate and tune change more than tables, which cannot be put into an exported module: prune the .onnx file of Model.path")
    settings: dict[str, Flag] = {
        **before.flags,
        **({} if rows is None else rows.flags),
        "scores": known.path,
        "sparsity": sparsity,
        "parameters": parameters,
        "bytes": bytes,
        "max_rise": max_rise,
        "aggregate": aggregate,
        "protect": protect,
        "field_minimum": field_minimum,
        "values": values,
        "calibrate": calibrate or None,
        "tune": tune or None,
        "dense": dense,
        "out": path,
        "force": force or None,
        **flags,
    }
    facts = document(["prune"], settings, names=NAMES, progress=progress)
    log.info("pruned entries=%d kept=%d sparsity=%s", facts["entries"], facts["kept"], facts["sparsity"])
    if not in_memory:
        after: Source = path
    else:
        tables = _onnx_tables(before, path) if before.is_onnx else _state_tables(before, path)
        after = _with(before.source, tables, in_place)
    if isinstance(model, Model):
        pruned = before.replaced(path, after, facts)
        if out is None:
            delete_with(pruned, path)
        return cast(M, pruned)
    if out is None:
        delete(path)
    if isinstance(model, os.PathLike):
        return cast(M, Path(path))
    return cast(M, after)


def _with(source: Source, tables: Mapping[str, Any], in_place: bool) -> Source:
    """Returns a state dict or a module with other values in the named tensors."""
    if not is_module(source):
        return {**cast(_tensors.StateDict, source), **tables}
    import torch

    module = cast("torch.nn.Module", source)
    if not in_place:
        module = copy.deepcopy(module)
    state = module.state_dict()
    with torch.no_grad():
        for name, table in tables.items():
            state[name].copy_(table)
    return module


def _state(source: Source) -> Mapping[str, Any]:
    """Returns the state dict of a model in memory."""
    if is_module(source):
        return cast(Mapping[str, Any], cast("torch.nn.Module", source).state_dict())
    return cast(_tensors.StateDict, source)


def _state_tables(before: Model, path: str) -> dict[str, Any]:
    """Returns the tensors of a state dict that differ in the pruned file, as they are there."""
    dense = str(fresh("dense.safetensors", "the pruned model"))
    state = _state(before.source)
    changed = {}
    try:
        document(["model", "convert"], {"dense": True}, paths=[path, dense])
        for name, array in _tensors.read(dense):
            if name not in state:
                raise BadInputError(f"the pruned file has a tensor {name}, which the state dict lacks")
            table = _tensors.replaced(state[name], array)
            if table is not None:
                changed[name] = table
    finally:
        delete(dense)
    return changed


def _onnx_tables(before: Model, path: str) -> dict[str, Any]:
    """Returns the tensors of a module that are pruned tables of the exported graph, as they are there."""
    was, now = _initializers(before.path), _initializers(path)
    values = _state(before.source)
    state = {name: array for name, value in values.items() if (array := _tensors.as_array(value)) is not None}
    changed = {}
    for name, array in now.items():
        if name not in was:
            raise BadInputError(f"the pruned graph has a tensor {name}, which the exported graph lacks")
        if _tensors.same_bits(was[name], array):
            continue
        found = name if name in state and _tensors.same_bits(state[name], was[name]) else None
        if found is None:
            found = next((key for key, value in state.items() if _tensors.same_bits(value, was[name])), None)
        if found is None:
            raise BadInputError(f"table {name} of the exported graph is no tensor of the module's state dict: use the pruned .onnx file, which out names")
        shared = [key for key, value in values.items() if key == found or _tensors.shares(value, values[found])]
        reader = next((before.read_whole[key] for key in shared if key in before.read_whole), None)
        if reader is not None:
            raise BadInputError(
                f"table {name}: the module reads {found} also by the operator {reader}, which is no look-up, so the module with the pruned "
                "table computes something else than the pruned graph: use the pruned .onnx file, which out names"
            )
        changed[found] = _tensors.replaced(values[found], array)
    return changed


def _initializers(path: str) -> dict[str, _tensors.Array]:
    """Returns the tensors of an .onnx file."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
