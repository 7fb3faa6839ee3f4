"""The values of fields: what the model would lose without each of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from . import _html
from ._command import Flag, document, path_of
from ._dataset import Dataset, DatasetLike
from ._errors import BadInputError
from ._model import ModelLike
from ._progress import ProgressOption
from ._scores import report_of, run_job, written
from ._table import Tabular

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SCHEMA = pa.schema([("field", pa.string()), ("value", pa.float64()), ("low", pa.float64()), ("high", pa.float64()), ("share", pa.float64())])


_PAIRS = pa.schema([("first", pa.string()), ("second", pa.string()), ("value", pa.float64()), ("low", pa.float64()), ("high", pa.float64())])


class FieldValues(Tabular):
    """The Shapley values of the fields and the dense inputs of a model, the most valuable first."""

    path: str  # scores file
    document: dict[str, Any]  # facts, as shaver scores inspect -o json prints them
    report: dict[str, Any] | None  # report of the job that computed the values, or None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path_of(path, "the scores file", "a path")
        self.document = document(["scores", "inspect"], {}, paths=[self.path])
        if "field_values" not in self.document:
            raise BadInputError(f"{self.path} has no values of fields: open it with shaver.Scores")
        self.report = report_of(self.path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> FieldValues:
        """Opens a scores file with the values of fields."""
        return cls(path)

    @property
    def values(self) -> dict[str, float]:
        """The values by field, in nat per row, or with the squared loss its unit."""
        return {each["field"]: float(each["value"]) for each in self.document["field_values"]}

    def to_arrow(self) -> pa.Table:
        """Returns a table with a row for each field: the field, its value, the low and the high end
        of the 95% interval, and its share of what all fields save. What is not known is null."""
        return pa.Table.from_pylist(self.document["field_values"], schema=_SCHEMA)

    @property
    def pairs(self) -> pa.Table:
        """The interactions of the 16 most valuable fields, the largest magnitude first: both fields,
        the value, and the low and the high end of the 95% interval. Needs values with pairs."""
        if "field_pairs" not in self.document:
            raise BadInputError(f"{self.path} has no values of pairs: compute them with shaver.fields(..., pairs=True)")
        pairs = [{**each, "first": each["fields"][0], "second": each["fields"][1]} for each in self.document["field_pairs"]]
        return pa.Table.from_pylist(pairs, schema=_PAIRS)

    def plot_pairs(self, ax: Axes | None = None) -> Axes:
        """Draws the interactions as a matrix. A pair whose 95% interval holds 0 has a dot. Needs matplotlib."""
        import matplotlib.pyplot as plt

        pairs = self.pairs.to_pylist()
        paired = {name for pair in pairs for name in (pair["first"], pair["second"])}
        names = [name for name in self.values if name in paired]
        matrix = np.full((len(names), len(names)), np.nan)
        dots = []
        if ax is None:
            side = 2.5 + 0.35 * len(names)
            _, ax = plt.subplots(figsize=(side + 0.8, side), layout="constrained")
        for pair in pairs:
            i, j = names.index(pair["first"]), names.index(pair["second"])
            matrix[i, j] = matrix[j, i] = pair["value"]
            if pair["low"] is None or pair["low"] <= 0 <= pair["high"]:
                dots += [(i, j), (j, i)]
        most = float(np.nanmax(np.abs(matrix)))
        image = ax.imshow(matrix, cmap="RdBu", vmin=-most, vmax=most)
        ax.figure.colorbar(image, ax=ax, shrink=0.8, label="interaction")
        ax.scatter([j for _, j in dots], [i for i, _ in dots], s=6, color="black")
        ax.set_xticks(range(len(names)), names, rotation=90)
        ax.set_yticks(range(len(names)), names)
        ax.set_title("Pairs of fields")
        return ax

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the value of each field with its 95% interval. Needs matplotlib."""
        import matplotlib.pyplot as plt

        fields = self.document["field_values"][::-1]
        if ax is None:
            _, ax = plt.subplots(figsize=(7, 0.8 + 0.32 * len(fields)), layout="constrained")
        names = [each["field"] for each in fields]
        ax.barh(names, [each["value"] for each in fields], color="#2f6db3")
        known = [each for each in fields if "low" in each]
        ax.hlines([each["field"] for each in known], [each["low"] for each in known], [each["high"] for each in known], color="black", linewidth=1.2)
        ax.axvline(0, color="black", linewidth=0.8)
        ax.set_xlabel(f"loss that the field saves, baseline {self.document['spec']['baseline']}, with its 95% interval")
        ax.set_title("Fields")
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _repr_html_(self) -> str:
        fields = self.document["field_values"]
        ends = [each[name] for each in fields for name in ("value", "low", "high") if name in each]
        bars = _html.Bars(min(0.0, *ends), max(0.0, *ends))
        rows = [(each["field"], *_html.difference(each), _share(each), bars.of(each["value"], each.get("low"), each.get("high"))) for each in fields]
        tables = [_html.table(["field", "value", "95% interval", "share", ""], rows, most=40)]
        if "field_pairs" in self.document:
            pairs = ((", ".join(each["fields"]), *_html.difference(each)) for each in self.document["field_pairs"])
            tables.append(_html.table(["pair", "interaction", "95% interval"], pairs))
        return _html.page("Fields", self._facts(), *tables)

    def _facts(self) -> str:
        spec = self.document["spec"]
        return f"{spec['estimator']}, baseline {spec['baseline']}, {self.document['rows']:,} rows"

    def __repr__(self) -> str:
        return f"FieldValues({len(self.document['field_values'])} fields, {self._facts()})"


def _share(value: dict[str, Any]) -> str:
    return f"{value['share']:.1%}" if "share" in value else ""


def fields(
    model: ModelLike,
    dataset: DatasetLike,
    *,
    task: str | None = None,
    pairs: bool = False,
    baseline: Literal["marginal", "zero", "codebook"] | None = None,
    estimator: Literal["exact", "antithetic", "permutation"] | None = None,
    splits: str | Sequence[str] | None = None,
    sample: float | None = None,
    max_rows: int | None = None,
    loss: Literal["logistic", "squared"] | None = None,
    seed: int | None = None,
    passes: int | None = None,
    until: Literal["paper", "error"] | None = None,
    bound: float | None = None,
    max_time: str | timedelta | None = None,
    workers: int | None = None,
    kernel: str | None = None,
    nats: str | None = None,
    wait: str | timedelta | None = None,
    allow_quarantined: bool = False,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: ProgressOption = None,
    **flags: Flag,
) -> FieldValues:
    """Computes what each field and each dense input of a model is worth.

    The value of a field is the loss that it saves: its Shapley value, averaged over the rows. A field
    whose 95% interval holds 0 may be useless. The values of all fields add up to the loss that the
    model saves with all of them.
    After an interrupt the same call continues where it stopped, and once the values are there it
    returns at once.

    Parameters
    ----------
    model : Model, path, state dict or torch.nn.Module
        Model whose fields are valued.
    dataset : Dataset or path
        Rows on which the loss is measured.
    task : str, optional
        Label of the dataset that the model predicts, by its output of the same name, or LABEL:OUTPUT.
    pairs : bool, default False
        Also give pairs of fields their interaction, which is above 0 if they are worth more together
        and below 0 if they are redundant.
    baseline : {"marginal", "zero", "codebook"}, default "marginal"
        What the model reads in place of an absent field: the value of a random row, 0, or the mean of
        the field's rows of the table.
    estimator : str, optional
        "exact", which tries all sets of fields, or "antithetic" or "permutation", which draw random
        orders. By default it is exact up to 10 fields, else antithetic.
    splits : str or sequence of str, default "fresh", or else "val"
        Splits whose rows are used. On rows that it was trained on, a model also uses what it knows by heart.
    sample : float in (0, 1], default 1
        Portion of the rows to use, drawn without replacement.
    max_rows : int, optional
        Largest number of rows to use, instead of ``sample``.
    loss : {"logistic", "squared"}, optional
        Loss of a row. By default it is squared if the labels are numbers, else logistic. Values
        are in nat per row, or with the squared loss in squared units of the label.
    seed : int, default 1
        Seed of all random numbers.
    passes : int, default 1
        Number of random orders per row, or of pairs of them with antithetic. It is the maximum if
        ``until`` may end the job earlier.
    until : {"paper", "error"}, optional
        Rule that ends the job early. Without it all rows and passes are computed.
    bound : float, default 0.01 for paper, 0.05 for error
        Bound of the rule ``until``.
    max_time : str or timedelta, optional
        Time limit, such as "90m". A round does not start if it would exceed the limit.
    workers : int, default 1, or 0 with nats
        Number of workers in this process, which share its cores.
    kernel : str, default "auto"
        Float32 kernel, such as "avx2". The values of two kernels differ in the last bits.
    nats : str, optional
        URL of a NATS server whose workers compute the job. Without it this machine does.
    wait : str or timedelta, default "10s"
        How long to wait for a server of ``nats``.
    allow_quarantined : bool, default False
        Finish without the shards that cannot be computed, and raise IncompleteError.
    out : path, optional
        Scores file to write, .arrow. Without it the values live as long as the process.
    force : bool, default False
        Replace the scores or the progress of another job at ``out``.
    progress : bool or callable, optional
        Whether to show the progress, or a function that is called with each Progress.
    **flags
        Other flags of ``shaver score``, such as ``rows_per_shard=1000`` for --rows-per-shard.
        ``python -m shaver score --help-all`` prints all of them.

    Returns
    -------
    FieldValues
        A value for each field, with its 95% interval.

    Raises
    ------
    UnconvergedError, IncompleteError
        The values are written, and the exception has them as ``scores``.
    """
    settings: dict[str, Flag] = {
        "players": "pairs" if pairs else "fields",
        "baseline": baseline,
        "estimator": estimator,
        "task": task,
        "splits": splits,
        "sample": sample,
        "max_rows": max_rows,
        "loss": loss,
        "seed": seed,
        "passes": passes,
        "until": until,
        "bound": bound,
        "max_time": max_time,
        "workers": workers,
        "kernel": kernel,
        "nats": nats,
        "wait": wait,
        "allow_quarantined": allow_quarantined or None,
        **flags,
    }
    path, result = run_job(model, Dataset.of(dataset), settings, out=out, force=force, progress=progress)
    values = FieldValues(path)
    with written(values):
        result.check()
    return values
