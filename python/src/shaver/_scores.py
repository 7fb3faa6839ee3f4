"""Scores: the Shapley value of every entry of the embedding table, or an order of the entries."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ._command import Flag, document, run
from ._dataset import Dataset, DatasetLike
from ._errors import BadInputError, IncompleteError, UnconvergedError
from ._model import Model, ModelLike
from ._progress import ProgressOption
from ._scratch import scratch
from ._table import Tabular

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Scores(Tabular):
    """A scores file."""

    path: str  # scores file
    document: dict[str, Any]  # facts, as shaver scores inspect -o json prints them
    report: dict[str, Any] | None  # report of the job that computed the scores, or None
    dataset: Dataset | None  # dataset that was scored, for the values of ids, or None

    def __init__(self, path: str | os.PathLike[str], dataset: DatasetLike | None = None) -> None:
        self.path = str(os.fspath(path))
        self.document = document(["scores", "inspect"], {}, paths=[self.path])
        self.dataset = None if dataset is None else Dataset.of(dataset)
        report = _report_path(self.path)
        self.report = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else None

    @classmethod
    def open(cls, path: str | os.PathLike[str], dataset: DatasetLike | None = None) -> Scores:
        """Opens a scores file. dataset gives the values of ids to top."""
        return cls(path, dataset)

    @classmethod
    def of(cls, scores: ScoresLike) -> Scores:
        """Returns scores as Scores."""
        return scores if isinstance(scores, Scores) else cls(scores)

    @property
    def field_dims(self) -> list[int]:
        """Sizes of the fields of the model."""
        return [field["features"] for field in self.document["fields"]]

    def to_arrow(self) -> pa.Table:
        """Returns the file as a table: a row for each feature, which docs/formats.md describes."""
        with pa.memory_map(self.path) as source:
            return pa.ipc.open_file(source).read_all()

    @property
    def order(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Entries in the order in which a path dropped them, the first one first.

        Entries are numbered along the rows of to_arrow, and within a row by column. The order is
        made for pruning. It is not one of Shapley values, and other scores have several (aggregate
        of prune).
        """
        if "path" not in self.document:
            raise BadInputError(f"{self.path} has values: only scores of the estimator path have one order")
        rank = pc.list_flatten(self.to_arrow()["rank"].combine_chunks()).to_numpy()
        order = np.empty(len(rank), dtype=np.int64)
        order[rank] = np.arange(len(rank))
        return order

    def _check_values(self, what: str) -> None:
        if "path" in self.document:
            raise BadInputError(f"{self.path} has the order of a path and no values: {what} needs scores of an estimator of values, such as debiased")

    def top(self, field: str, n: int = 10) -> pa.Table:
        """Returns the n features of a field that save the most loss, the best first.

        The columns are id, count (rows with the feature), phi (the sum of its Shapley values, in
        nat per row, or with the squared loss its unit), table if the model has several, and value
        if the dataset has the values of ids.
        """
        self._check_values("top")
        names = [each["name"] for each in self.document["fields"]]
        if field not in names:
            raise BadInputError(f"no field {field!r}: the fields are {', '.join(names)}")
        table = self.to_arrow()
        table = table.filter(pc.equal(table["field"], field))
        phi = table["phi"].combine_chunks()
        sums = np.bincount(pc.list_parent_indices(phi), weights=pc.list_flatten(phi), minlength=len(phi))
        order = np.argsort(-sums, kind="stable")[:n]
        found = table.select(["id", "count"]).take(pa.array(order)).append_column("phi", pa.array(sums[order]))
        if "table" in table.column_names:
            found = found.append_column("table", table["table"].take(pa.array(order)))
        if self.dataset is not None:
            values = self.dataset.values(field)
            if any(value is not None for value in values):
                found = found.append_column("value", pa.array([values[i] for i in found["id"].to_pylist()], pa.string()))
        return found

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws what each field is worth: the loss that it saves. Needs matplotlib."""
        self._check_values("plot")
        import matplotlib.pyplot as plt

        fields = sorted(self.document["fields"], key=lambda field: float(field["sum"]))
        if ax is None:
            _, ax = plt.subplots(figsize=(7, 0.8 + 0.32 * len(fields)), layout="constrained")
        ax.barh([field["name"] for field in fields], [field["sum"] for field in fields], color="#2f6db3")
        ax.axvline(0, color="black", linewidth=0.8)
        ax.set_xlabel("loss that the field saves (sum of its Shapley values)")
        ax.set_title("Fields")
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def save(self, path: str | os.PathLike[str]) -> Scores:
        """Copies the file and the report of the job, and returns the scores at path."""
        to = str(os.fspath(path))
        shutil.copyfile(self.path, to)
        if self.report is not None:
            shutil.copyfile(_report_path(self.path), _report_path(to))
        return Scores(to, self.dataset)

    def __repr__(self) -> str:
        spec = self.document["spec"]
        return f"Scores({spec['estimator']}, {self.document['rows']:,} rows, {self.document['features']:,} features)"


ScoresLike = Union[Scores, str, "os.PathLike[str]"]
"""Scores, or the path of a scores file."""


def _report_path(path: str) -> Path:
    return Path(path.removesuffix(".arrow") + ".job.json")


Estimator = Literal["permutation", "antithetic", "multilinear", "debiased", "exact", "taylor", "path"]


def score(
    model: ModelLike,
    dataset: DatasetLike,
    *,
    estimator: Estimator | None = None,
    baseline: Literal["zero", "codebook"] | None = None,
    splits: str | None = None,
    nats: str | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: ProgressOption = None,
    **flags: Flag,
) -> Scores:
    """Computes the Shapley value of every entry of the embedding table.

    The estimator "path" gives only an order of the entries for pruning. It is not a Shapley value.

    ``nats`` is the URL of a NATS server whose workers compute the job; without it, this machine
    does. ``out`` is the scores file; without it the scores live as long as the process. After an
    interrupt the same call continues where it stopped, and once the scores are there it returns
    at once. Other ``flags`` are those of shaver score, such as sample=0.1 or until="overlap".

    Raises UnconvergedError and IncompleteError, which have the scores, if the command ends with
    the exit code 3 or 4.
    """
    rows = Dataset.of(dataset)
    known = Model.of(model, rows.field_dims)
    settings: dict[str, Flag] = {
        **known.flags,
        **rows.flags,
        "estimator": estimator,
        "baseline": baseline,
        "splits": splits,
        "nats": nats,
        **flags,
    }
    if out is None:
        # The name depends on what is computed, so that the same call finds the progress.
        identity = json.dumps([known.digest, rows.document["digest"], {**settings, "model": None}], default=str)
        name = hashlib.sha256(identity.encode()).hexdigest()[:16]
        settings |= {"out": scratch() / f"scores-{name}.arrow", "force": True}
    else:
        settings["out"] = os.fspath(out)
    result = run(["score"], {**settings, "output": "json"}, progress=progress, accept=(3, 4))
    scores = Scores(str(settings["out"]), rows)
    try:
        result.check()
    except (UnconvergedError, IncompleteError) as error:
        error.scores = scores
        raise
    return scores
