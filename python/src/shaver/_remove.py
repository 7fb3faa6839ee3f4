"""Removes whole fields and columns from models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from . import _html, _tensors
from ._command import Flag, document
from ._dataset import Dataset, DatasetLike
from ._errors import BadInputError, UsageError
from ._model import NAMES, Model, ModelLike
from ._progress import ProgressOption
from ._scratch import delete_with, fresh
from ._table import Tabular

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PATH_SUFFIX = ".path.json"

_COSTS = [(name, pa.int64()) for name in ("fields", "columns", "look_ups", "entries", "multiplications", "bytes")]
_RISE = [(name, pa.float64()) for name in ("rise", "low", "high")]

_PATH = pa.schema(
    [("field", pa.string()), ("gone", pa.list_(pa.int64())), ("taken", pa.bool_()), ("loss", pa.float64()), *_RISE, ("auc", pa.float64()), *_COSTS]
)


class Removal(Tabular):
    """What is left of a model without some fields and columns, and the path that chose them."""

    model: Model  # what is left
    document: dict[str, Any]  # facts, as shaver prune -o json prints them

    def __init__(self, model: Model, document: dict[str, Any]) -> None:
        self.model = model
        self.document = document

    @property
    def removed(self) -> list[str]:
        """Names of the fields that are gone."""
        return list(self.document["removed"] or [])

    def state_dict(self) -> dict[str, Any]:
        """Returns the tensors of what is left as arrays of numpy, with the keys that they have in the model."""
        return dict(_tensors.read(self.model.path))

    def to_arrow(self) -> pa.Table:
        """Returns a table with a row for each step of the path: the field or the columns that went,
        the loss of what was left, its rise over the whole model with the low and the high end of the
        95% interval, the AUC, and what is left and costs. Steps that max_rise did not allow come
        last and are not taken. What is not known is null."""
        steps = [(step, True) for step in self.document.get("path", [])] + [(step, False) for step in self.document.get("beyond", [])]
        return pa.Table.from_pylist([{**step, **_interval(step["rise"]), "taken": taken} for step, taken in steps], schema=_PATH)

    @property
    def path(self) -> str:
        """The file that keeps the steps of the path, for ``report`` and for other budgets with the same ``out``."""
        return self.model.path + PATH_SUFFIX

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the rise of the loss against the multiplications of a row, with its 95% interval. Needs matplotlib."""
        import matplotlib.pyplot as plt

        steps = [step for step in self.to_arrow().to_pylist() if step["rise"] is not None]
        if not steps:
            raise BadInputError("no step of a path was taken: give fields, columns or max_rise")
        if ax is None:
            _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
        taken = [step for step in steps if step["taken"]]
        start = self.document["before"]["multiplications"]
        ax.plot([start, *(step["multiplications"] for step in taken)], [0, *(step["rise"] for step in taken)], marker="o", markersize=3, color="#2f6db3")
        known = [step for step in steps if step["low"] is not None]
        ax.vlines([step["multiplications"] for step in known], [step["low"] for step in known], [step["high"] for step in known], color="black", linewidth=1)
        for step in steps:
            name = step["field"] or "column " + " and ".join(map(str, step["gone"]))
            ax.annotate(name, (step["multiplications"], step["rise"]), fontsize=7, rotation=45, alpha=1 if step["taken"] else 0.5)
        ax.invert_xaxis()
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set_xlabel("multiplications of a row")
        ax.set_ylabel("rise of the loss, with its 95% interval")
        ax.set_title("Path")
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _repr_html_(self) -> str:
        rows = (
            (
                step.get("field") or "column " + " and ".join(map(str, step["gone"])),
                step["fields"],
                step["columns"],
                step["multiplications"],
                *_html.difference(step["rise"]),
            )
            for step in self.document.get("path", [])
        )
        table = _html.table(["without", "fields", "columns", "multiplications", "rise of the loss", "95% interval"], rows, most=40)
        return _html.page("Removal", self._facts(), *([table] if self.document.get("path") else []))

    def _facts(self) -> str:
        before, after = self.document["before"], self.document["after"]
        return ", ".join(f"{before[name]:,} -> {after[name]:,} {name.replace('_', '-')}" for name in ("fields", "columns", "look_ups", "bytes"))

    def __repr__(self) -> str:
        return f"Removal({self._facts()})"


def _interval(rise: dict[str, Any] | None) -> dict[str, Any]:
    rise = rise or {}
    return {"rise": rise.get("value"), "low": rise.get("low"), "high": rise.get("high")}


def remove(
    model: ModelLike,
    dataset: DatasetLike,
    *,
    fields: int | None = None,
    columns: int | None = None,
    drop_fields: Sequence[str] | None = None,
    max_rise: float | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: ProgressOption = None,
    **flags: Flag,
) -> Removal:
    """Removes whole fields and columns from a model, whose tables and layers become smaller.

    A path chooses what to remove: each step compares the loss without each field, or each column of
    the table, that is left, on rows of the split val, and removes the one that raises it least. The
    figures are those of the other rows of val. What is left is an ordinary model, which reads its
    fields of the same dataset by their names.

    Parameters
    ----------
    model : Model, path, state dict or torch.nn.Module
        Model to make smaller.
    dataset : Dataset or path
        Rows on which the path measures, with the names of the fields.
    fields : int, default all
        Number of fields to keep. With ``max_rise`` the least number.
    columns : int, default all
        Number of columns of the table to keep. With ``max_rise`` the least number.
    drop_fields : sequence of str, optional
        Names of fields to remove before the path begins.
    max_rise : float, optional
        Rise of the loss over the whole model that may not be exceeded by the 95% interval of any
        step. Fields go first, and then columns.
    out : path, optional
        File for what is left, .safetensors. Without it what is left lives as long as the result. A
        file next to it keeps the path: its steps are followed without measuring, and new steps are
        added, also before an interrupt.
    force : bool, default False
        Replace a file at ``out`` that is of another model.
    progress : bool or callable, optional
        Whether to show the progress, or a function that is called with each Progress.
    **flags
        Other flags of ``shaver prune``. ``python -m shaver prune --help-all`` prints all of them.

    Returns
    -------
    Removal
        What is left, as a Model, and the path as a table.
    """
    if fields is None and columns is None and not drop_fields and max_rise is None:
        raise UsageError("remove needs one of fields, columns, drop_fields and max_rise, which say what to remove")
    rows = Dataset.of(dataset)
    before = Model.of(model, rows.field_dims)
    target = str(fresh("smaller.safetensors", "what is left of the model") if out is None else os.fspath(out))
    settings: dict[str, Flag] = {
        **before.flags,
        **rows.flags,
        "fields": fields,
        "columns": columns,
        "drop_fields": drop_fields,
        "max_rise": max_rise,
        "out": target,
        "force": force or None,
        **flags,
    }
    facts = document(["prune"], settings, names=NAMES, progress=progress)
    left = Model(target)
    if out is None:
        delete_with(left, target)
    return Removal(left, facts)
