"""What each field of a row adds to a prediction, before and after pruning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from . import _html
from ._command import Flag, document
from ._dataset import Dataset, DatasetLike
from ._model import NAMES, Model, ModelLike
from ._table import Tabular

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NUMBERS = ("effect", "against", "change", "se")
_SCHEMA = pa.schema([("row", pa.int64()), ("field", pa.string()), ("values", pa.list_(pa.string())), *((name, pa.float64()) for name in _NUMBERS)])


class Explanation(Tabular):
    """What each field and each dense input of rows adds to their logits."""

    document: dict[str, Any]  # what shaver explain -o json prints

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def to_arrow(self) -> pa.Table:
        """Returns a table with a row for each field of each row, the largest effects of a row first: the
        number of the row, the field, its values, its effect, that in the model of ``against``, the
        change, and the standard error of the change, or without ``against`` of the effect."""
        return pa.Table.from_pylist([{"row": row["row"], **each} for row in self.document["rows"] for each in _changes(row)], schema=_SCHEMA)

    def plot(self, row: int | None = None, ax: Axes | None = None) -> Axes:
        """Draws how the effects in a row, by default the first, lead from the base to the logit. Those in the
        model of ``against`` are the thin bars. Needs matplotlib."""
        import matplotlib.pyplot as plt

        (shown,) = [each for each in self.document["rows"] if each["row"] == row] if row is not None else self.document["rows"][:1]
        effects = shown["effects"]
        names = ["base", *(each["field"] for each in effects), "logit"]
        if ax is None:
            _, ax = plt.subplots(figsize=(7, 0.8 + 0.32 * len(names)), layout="constrained")
        for key, output, height, offset in (("effect", shown, 0.5, 0.1), ("against", shown.get("against"), 0.2, -0.3)):
            if output is None:
                continue
            at = [output["base"]]
            for each in effects:
                at.append(at[-1] + each[key])
            lines = [i + 1 + offset for i in range(len(effects))]
            ax.barh(lines, [each[key] for each in effects], height, left=at[:-1], color=["#2f6db3" if each[key] >= 0 else "#d55e00" for each in effects])
            ax.vlines(at, [i + offset - height / 2 for i in range(len(at))], [i + 1 + offset + height / 2 for i in range(len(at))], color="gray", linewidth=0.8)
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.use_sticky_edges = False
        ax.autoscale_view()
        ax.set_xlabel("logit")
        ax.set_title(f"Row {shown['row']} of {self.document['split']}")
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _repr_html_(self) -> str:
        pages = []
        for row in self.document["rows"]:
            against = row.get("against")
            facts = [f"label {row['label']:g}"]
            for name in ("base", "logit", "probability"):
                if name in row:
                    facts.append(f"{name} {row[name]:.4f}" if against is None else f"{name} {against[name]:.4f} to {row[name]:.4f}")
            columns = {"effect": "effect"} if against is None else {"against": "before", "effect": "after", "change": "change"}
            lines = [
                (each["field"], ", ".join(each["values"]), *(f"{each[key]:+.4f}" for key in columns), "" if each["se"] is None else f"{each['se']:.4f}")
                for each in _changes(row)
            ]
            table = _html.table(["field", "value", *columns.values(), "se"], lines)
            pages.append(_html.page(f"Row {row['row']:,} of {self.document['split']}", ", ".join(facts), table))
        return f"<div>{''.join(pages)}</div>"

    def __repr__(self) -> str:
        rows = ", ".join(f"row {row['row']} logit {row['logit']:+.4f}" for row in self.document["rows"])
        return f"Explanation({self.document['split']}: {rows})"


def _changes(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the effects of a row with their changes."""
    return [{**each, "change": each["effect"] - each["against"]} if "against" in each else each for each in row["effects"]]


def explain(
    model: ModelLike,
    dataset: DatasetLike,
    *,
    rows: int | Sequence[int] | None = None,
    against: ModelLike | None = None,
    task: str | None = None,
    split: Literal["train", "val", "test", "fresh"] | None = None,
    loss: Literal["logistic", "squared"] | None = None,
    background: int | None = None,
    **flags: Flag,
) -> Explanation:
    """Explains predictions: what each field and each dense input of a row adds to its logit.

    Parameters
    ----------
    model : Model, path, state dict or torch.nn.Module
        Model to explain, pruned or not.
    dataset : Dataset or path
        Dataset with the rows.
    rows : int or sequence of int, optional
        Numbers of rows in the split, from 0. By default the one that changes most of the first 10,000,
        or 0 without ``against``.
    against : Model, path, state dict or torch.nn.Module, optional
        Model that was pruned, which is explained in the same way.
    task : str, optional
        Label of the dataset that the model predicts, by its output of the same name, or LABEL:OUTPUT.
    split : {"train", "val", "test", "fresh"}, default "test"
        Split that has the rows.
    loss : {"logistic", "squared"}, optional
        Loss of a row. By default it is squared if the labels are numbers, else logistic.
    background : int, default 64
        Number of background rows, whose values absent fields read.
    **flags
        Other flags of ``shaver explain``. ``python -m shaver explain --help`` prints all of them.

    Returns
    -------
    Explanation
        The effects, which with the base sum to the logit of each row.
    """
    data = Dataset.of(dataset)
    explained = Model.of(model, data.field_dims)  # its file is deleted with it
    other = None if against is None else Model.of(against, data.field_dims)
    settings: dict[str, Flag] = {
        **explained.flags,
        **data.flags,
        "rows": rows,
        "against": None if other is None else other.path,
        "task": task,
        "split": split,
        "loss": loss,
        "background": background,
        **flags,
    }
    return Explanation(document(["explain"], settings, names=NAMES))
