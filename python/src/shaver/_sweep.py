"""Sweeps: pruning methods compared at several budgets."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Union, cast

import pyarrow as pa

from . import _html
from ._command import Flag, document, path_of
from ._dataset import Dataset, DatasetLike
from ._model import NAMES, Model, ModelLike
from ._progress import ProgressOption
from ._scores import Scores, ScoresLike
from ._scratch import fresh
from ._table import Tabular

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


METRICS = {"auc": "AUC", "gauc": "GAUC", "ndcg": "NDCG", "recall": "recall", "log_loss": "LogLoss", "rmse": "RMSE"}  # names of the metrics by key

# The colours of methods are those of the program's pictures. Others have the one that the checksum of their name gives.
_METHODS = ["path", "magnitude", "frequency", "shapley", "shapley-rms", "shapley-abs", "random", "", "taylor-rms"]
_INKS = ["#0072b2", "#d55e00", "#008a63", "#b8578f", "#6b4423", "#5e3c99", "#757575", "#000000", "#8a7800"]


class Sweep(Tabular):
    """The result of a sweep."""

    path: str  # JSON file with the document
    document: dict[str, Any]  # document of the schema sweep.v1.json, sweep.v2.json or sweep.v3.json

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path_of(path, "the file of the sweep", "a path")
        with open(self.path, encoding="utf-8") as f:
            self.document = json.load(f)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Sweep:
        """Opens the file that shaver sweep --out wrote."""
        return cls(path)

    def to_arrow(self) -> pa.Table:
        """Returns a table with a row for each method and budget: the method, the budget, the
        metrics, and the differences to the unpruned model with their 95% intervals."""
        return pa.Table.from_pylist([_flat(point) for point in self.document["points"]])

    @property
    def metrics(self) -> list[str]:
        """The metrics: auc and log_loss, or rmse with the squared loss."""
        if "group" in self.document:
            return ["gauc", "log_loss"]
        return ["auc", "log_loss"] if self.document.get("loss", "logistic") == "logistic" else ["rmse"]

    @property
    def answer(self) -> list[str]:
        """The lines that say which table to ship, as all programs show them. It is empty in files of older programs."""
        return list(self.document.get("answer", {}).get("text", []))

    def _shown(self) -> dict[str, str]:
        """Returns the names of the metrics by key, as reports show them: losses are calibrated if the sweep measured that."""
        names = {}
        for metric in self.metrics:
            calibrated = self.document["unpruned"].get(f"calibrated_{metric}") is not None
            names[f"calibrated_{metric}" if calibrated else metric] = ("calibrated " if calibrated else "") + METRICS[metric]
        return names

    def plot(self, axes: Sequence[Axes] | None = None) -> Figure:
        """Draws each metric against the sparsity, with a line for each method. Losses are calibrated if
        the sweep measured them so. The shaded bands are the 95% intervals of the differences to the unpruned model.

        Models that were measured as they are have no line. Their intervals are bars.

        axes has one for each of metrics. Needs matplotlib.
        """
        import matplotlib.pyplot as plt

        metrics = self._shown()
        if axes is None:
            _, grid = plt.subplots(1, len(metrics), figsize=(4.8 * len(metrics) + 1.6, 3.8), layout="constrained", squeeze=False)
            axes = list(grid[0])
        series: dict[str, list[dict[str, Any]]] = {}  # points by line
        for point in self.document["points"]:
            if point["method"] == "nothing-kept":  # the floor has no place on the axis
                continue
            series.setdefault(self._name(point), []).append(_flat(point))
        for ax, metric in zip(axes, metrics, strict=True):
            unpruned = self.document["unpruned"][metric]
            ax.axhline(unpruned, color="gray", linestyle="--", linewidth=1, label="unpruned")
            drawn: list[str] = []  # methods of the lines
            for name, points in series.items():
                method = str(points[0]["method"])
                number = drawn.count(method)
                drawn.append(method)
                ink = _METHODS.index(method) if method in _METHODS else zlib.crc32(method.encode()) % len(_INKS)
                points = sorted(points, key=lambda point: float(point["sparsity"]))
                at = [point["sparsity"] for point in points]
                joined = "model" not in points[0]
                style: dict[str, Any] = {"linestyle": ("-", "--", ":", "-.")[number % 4] if joined else "none", "marker": "os^Dv"[number % 5], "markersize": 4}
                (line,) = ax.plot(at, [point[metric] for point in points], color=_INKS[ink], **style, label=name)
                if all(point.get(f"{metric}_difference_{end}") is not None for point in points for end in ("low", "high")):
                    low, high = ([unpruned + point[f"{metric}_difference_{end}"] for point in points] for end in ("low", "high"))
                    if joined:
                        ax.fill_between(at, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
                    else:
                        ax.vlines(at, low, high, color=line.get_color(), alpha=0.4, linewidth=1.5)
            ax.set_xlabel("sparsity")
            ax.set_ylabel(metrics[metric])
            ax.spines[["top", "right"]].set_visible(False)
        axes[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")
        return cast("Figure", axes[0].figure)

    def _name(self, point: dict[str, Any]) -> str:
        """Names the line of a point. It has what differs between the points of a method. A model of
        the method model has the name of its file."""
        if point["method"] == "model":
            return str(self.document["models"][point["model"]]["file"])
        points = [other for other in self.document["points"] if other["method"] == point["method"]]
        name = str(point["method"])
        for key in ("baseline", "values", "source"):
            if len({other.get(key) for other in points}) > 1:
                name += f", {'scores ' if key == 'source' else ''}{point.get(key)}"
        return name

    def _repr_html_(self) -> str:
        head, metrics = ["method", "sparsity"], self._shown()
        for name in metrics.values():
            head += [name, "difference", "95% interval"]
        rows = []
        for point in self.document["points"]:
            row: list[object] = [self._name(point), f"{point['sparsity']:.4g}"]
            for metric in metrics:
                row += [point[metric], *_html.difference(point.get("difference", {}).get(metric))]
            rows.append(row)
        unpruned = ", ".join(
            f"{name} {self.document['unpruned'][metric]:.6f}" for metric, name in metrics.items() if self.document["unpruned"][metric] is not None
        )
        facts = f"{len(rows)} points on {self.document['rows']:,} rows of {self.document['split']}; unpruned: {unpruned}. {'. '.join(self.answer)}"
        return _html.page("Sweep", facts, _html.table(head, rows, most=40))

    def __repr__(self) -> str:
        return f"Sweep({len(self.document['points'])} points on {self.document['split']}, {self.document['rows']:,} rows)"


SweepLike = Union[Sweep, str, "os.PathLike[str]"]
"""A Sweep, or the path of its file."""


def _flat(point: dict[str, Any]) -> dict[str, Any]:
    """Returns a point without its curve and slices, and with the differences as columns."""
    row = {name: value for name, value in point.items() if not isinstance(value, (dict, list))}
    for metric, difference in point.get("difference", {}).items():
        if difference is not None:
            row |= {f"{metric}_difference": difference["value"]}
            row |= {f"{metric}_difference_{end}": difference[end] for end in ("low", "high")}
    return row


def sweep(
    model: ModelLike,
    scores: ScoresLike | Sequence[ScoresLike],
    dataset: DatasetLike,
    *,
    within: Sequence[float] | None = None,
    sparsities: Sequence[float] | None = None,
    bytes: Sequence[int] | None = None,
    methods: str | Sequence[str] | None = None,
    aggregate: str | Sequence[str] | None = None,
    values: str | Sequence[str] | None = None,
    protect: Sequence[str] | None = None,
    field_minimum: float | None = None,
    models: Sequence[str | os.PathLike[str]] | None = None,
    calibrate: bool | None = None,
    group: str | None = None,
    split: Literal["train", "val", "test", "fresh"] | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: ProgressOption = None,
    **flags: Flag,
) -> Sweep:
    """Compares pruning methods at several budgets.

    Parameters
    ----------
    model : Model, path, state dict or torch.nn.Module
        Model that was scored.
    scores : Scores, path or sequence of these
        Scores of the model. Several are compared, also those of the model before its training.
    dataset : Dataset or path
        Rows to measure on.
    within : sequence of float, default (0.001, 0.002, 0.005)
        Bounds of AUC and LogLoss for which the smallest tables are found, if there are no budgets.
    sparsities : sequence of float, default (0.5, 0.8, 0.9, 0.95, 0.99)
        Budgets: portions of the entries to drop.
    bytes : sequence of int, optional
        Budgets in bytes of the compact file, instead of ``sparsities``.
    methods : str or sequence of str, default "magnitude"
        Methods to compare with: "all", or some of magnitude, random, frequency, sseds, and ptq4,
        ptq8 and ptq16, also with -field or -row after them.
    aggregate : str or sequence of str, default "rms"
        Aggregates of the scores to compare: rms, sum and abs, or signed alone.
    values : str or sequence of str, default "float32"
        Encodings of the kept entries to compare: float32, float16 and int8.
    protect : sequence of str, optional
        Fields that keep all entries.
    field_minimum : float in [0, 1], optional
        Smallest portion of its entries that each field keeps.
    models : sequence of path, optional
        Files of models to measure as they are.
    calibrate : bool, optional
        Also measure the LogLoss with logits that are calibrated on the split val. By default if its rows
        were not scored.
    group : str, optional
        Field, such as the user: GAUC, the mean AUC within its values, takes the place of AUC, and its
        values are the sample of the intervals.
    split : {"train", "val", "test", "fresh"}, default "test"
        Split to measure on.
    out : path, optional
        File for the result, .json. Without it the file lives as long as the process.
    force : bool, default False
        Replace a file at ``out`` that shaver did not write.
    progress : bool or callable, optional
        Whether to show the progress, or a function that is called with each Progress.
    **flags
        Other flags of ``shaver sweep``. ``python -m shaver sweep --help-all`` prints all of them.

    Returns
    -------
    Sweep
        A row for each method and budget.
    """
    rows = Dataset.of(dataset)
    several = list(scores) if isinstance(scores, Sequence) and not isinstance(scores, str) else [scores]
    path = str(os.fspath(out)) if out is not None else str(fresh("sweep.json", "the sweep"))
    scored = Model.of(model, rows.field_dims)
    settings: dict[str, Flag] = {
        **scored.flags,
        **rows.flags,
        "scores": [Scores.of(each).path for each in several],
        "within": within,
        "sparsities": sparsities,
        "bytes": bytes,
        "methods": methods,
        "aggregate": aggregate,
        "values": values,
        "protect": protect,
        "field_minimum": field_minimum,
        "models": models,
        "calibrate": calibrate,
        "group": group,
        "split": split,
        "out": path,
        "force": force or None,
        **flags,
    }
    document(["sweep"], settings, names=NAMES, progress=progress)
    return Sweep(path)
