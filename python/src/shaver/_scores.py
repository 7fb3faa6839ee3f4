"""Scores: the Shapley value of every entry of the embedding table, or an order of the entries."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import _html
from ._command import Flag, Result, document, path_of, run
from ._dataset import Dataset, DatasetLike
from ._errors import BadInputError, IncompleteError, UnconvergedError, UsageError
from ._model import NAMES, Model, ModelLike
from ._progress import ProgressOption
from ._scratch import scratch
from ._table import Tabular

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ._fields import FieldValues


class Scores(Tabular):
    """A scores file."""

    path: str  # scores file
    document: dict[str, Any]  # facts, as shaver scores inspect -o json prints them
    report: dict[str, Any] | None  # report of the job that computed the scores, or None
    dataset: Dataset | None  # dataset that was scored, for the values of ids, or None

    def __init__(self, path: str | os.PathLike[str], dataset: DatasetLike | None = None) -> None:
        self.path = path_of(path, "the scores file", "Scores or a path")
        self.document = document(["scores", "inspect"], {}, paths=[self.path])
        if "field_values" in self.document:
            raise BadInputError(f"{self.path} has the values of fields: open it with shaver.FieldValues")
        self.dataset = None if dataset is None else Dataset.of(dataset)
        if self.dataset is not None:
            self._check_dataset(self.dataset)
        self.report = report_of(self.path)

    @classmethod
    def open(cls, path: str | os.PathLike[str], dataset: DatasetLike | None = None) -> Scores:
        """Opens a scores file. dataset, which must be that of the scores, gives the values of ids to top."""
        return cls(path, dataset)

    def _check_dataset(self, dataset: Dataset) -> None:
        """Raises BadInputError for another dataset than that of the scores, in which ids may stand for other values."""
        spec, found = self.document["spec"], dataset.document["digest"]
        want = spec["dataset"]
        if want != found and spec.get("days") != [found]:  # a night scores a window, which may have one day
            raise BadInputError(
                f"{self.path}: the scores were computed from another dataset, with digest {want[:12]}; the digest of this dataset is {found[:12]}"
            )

    @classmethod
    def of(cls, scores: ScoresLike) -> Scores:
        """Returns scores as Scores."""
        return scores if isinstance(scores, Scores) else cls(scores)

    @property
    def field_dims(self) -> list[int]:
        """Sizes of the fields of the model."""
        return [field["features"] for field in self.document["fields"]]

    def to_arrow(self) -> pa.Table:
        """Returns the file as a table: a row for each feature, which docs/reference/formats.md describes."""
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
        ax.set_xlabel(f"loss that the field saves (sum of its Shapley values, baseline {self.document['spec']['baseline']})")
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

    def _repr_html_(self) -> str:
        spec = self.document["spec"]
        facts = f"{spec['estimator']}, baseline {spec['baseline']}, {self.document['rows']:,} rows, {self.document['features']:,} features"
        if "path" in self.document:
            rounds = self.document["path"]["rounds"]
            return _html.page("Scores", facts, _html.table(["round", "rows", "entries kept"], ((i, r["rows"], r["kept"]) for i, r in enumerate(rounds))))
        fields = sorted(self.document["fields"], key=lambda field: -float(field["sum"]))
        rows = ((field["name"], field["features"], field["seen"], field["sum"]) for field in fields)
        return _html.page("Scores", facts, _html.table(["field", "features", "features seen", "loss that the field saves"], rows))

    def __repr__(self) -> str:
        spec = self.document["spec"]
        return f"Scores({spec['estimator']}, {self.document['rows']:,} rows, {self.document['features']:,} features)"


ScoresLike = Union[Scores, str, "os.PathLike[str]"]
"""Scores, or the path of a scores file."""


def _report_path(path: str) -> Path:
    return Path(path.removesuffix(".arrow") + ".job.json")


def report_of(path: str) -> dict[str, Any] | None:
    """Returns the report of the job that computed a scores file, or None."""
    report = _report_path(path)
    return json.loads(report.read_text(encoding="utf-8")) if report.is_file() else None


Estimator = Literal["permutation", "antithetic", "multilinear", "debiased", "exact", "taylor", "path"]


# The flags that shaver nightly score has and shaver score has not.
_NIGHTLY = frozenset(
    ["checkpoint_every", "full_every", "lease", "max_inherited_error", "previous", "previous_model", "ranges", "replicas", "run", "state", "wait_inputs"]
)


def score(
    model: ModelLike,
    dataset: DatasetLike,
    *,
    task: str | Sequence[str] | None = None,
    estimator: Estimator | None = None,
    baseline: Literal["zero", "codebook", "words"] | None = None,
    freeze: str | Sequence[str] | None = None,
    splits: str | Sequence[str] | None = None,
    fresh_weight: int | None = None,
    fresh_days: int | None = None,
    sample: float | None = None,
    max_rows: int | None = None,
    loss: Literal["logistic", "squared"] | None = None,
    seed: int | None = None,
    passes: int | None = None,
    draws: int | None = None,
    endpoints: Literal["plain", "balanced"] | None = None,
    flips: int | None = None,
    parts: int | None = None,
    sparsity: float | None = None,
    audit: float | None = None,
    until: Literal["paper", "overlap", "error"] | None = None,
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
) -> Scores:
    """Finds the order in which entries are dropped, or computes their Shapley values.

    The estimator "path" gives only an order of the entries for pruning. It is not a Shapley value.
    After an interrupt the same call continues where it stopped, and once the scores are there it
    returns at once.

    Parameters
    ----------
    model : Model, path, state dict or torch.nn.Module
        Model whose table is scored. A module of no kind that shaver has needs
        ``Model(module, example_inputs=...)``.
    dataset : Dataset or path
        Rows to score.
    task : str or sequence of str, optional
        Labels of the dataset with their weights, such as "click=1,buy=.5", for a model with an output
        for each.
    estimator : str, default "path", or "multilinear" below 30000 rows unless parts, sparsity or max_time is given
        "path" to prune, "debiased" to quote values, or "permutation", "antithetic",
        "multilinear", "exact" or "taylor".
    baseline : {"zero", "codebook", "words"}, default "words" for path, else "codebook"
        What a dropped entry reads: 0, the mean of its column of the field, or that of a
        cluster of ids.
    freeze : str or sequence of str, optional
        Fields whose entries are no players and keep their values.
    splits : str or sequence of str, default "train", and "fresh" if the dataset has it
        Splits whose rows are scored. Other splits judge the pruning.
    fresh_weight : int, optional
        How often a row of "fresh" or ``fresh_days`` counts. By default once or, if the model
        memorises, the square root of the number of other rows for each.
    fresh_days : int, optional
        Number of the newest days of a window that the model was not trained on.
    sample : float in (0, 1], default 1
        Portion of the rows to score, drawn without replacement.
    max_rows : int, optional
        Largest number of rows to score, instead of ``sample``.
    loss : {"logistic", "squared"}, optional
        Loss of a row. By default it is squared if the labels are numbers, else logistic. Values
        are in nat per row, or with the squared loss in squared units of the label.
    seed : int, default 1
        Seed of all random numbers.
    passes : int, default 1
        Number of random orders per row. It is the maximum if ``until`` may end the job earlier.
    draws : int, default 2
        For multilinear and debiased: number of random sets of players per row, even.
    endpoints : {"plain", "balanced"}, default "plain"
        For multilinear: weights of the draws. Balanced weights have less bias and more noise, and
        need 4 draws.
    flips : int, default 8
        For debiased: expected number of true flips of single players per row and pass.
    parts : int, default 6
        For path: number of parts of the rows. More parts take less time and are less exact.
    sparsity : float in (0, 1), default 0.999 for path, 0.9 for until="overlap"
        Portion of the entries that pruning will drop. For path it is the largest one, and for
        ``until="overlap"`` that at which halves are compared.
    audit : float in (0, 1], optional
        For multilinear: portion of the scored rows on which the values are compared with debiased
        ones. The result is in ``Scores.document``.
    until : {"paper", "overlap", "error"}, optional
        Rule that ends the job early. Without it all rows and passes are computed.
    bound : float, default 0.01 for paper, 0.8 for overlap, 0.05 for error
        Bound of the rule ``until``.
    max_time : str or timedelta, optional
        Time limit, such as "90m". A round does not start if it would exceed the limit.
    workers : int, default 1, or 0 with nats
        Number of workers in this process, which share its cores.
    kernel : str, default "auto"
        Float32 kernel, such as "avx2". The scores of two kernels differ in the last bits.
    nats : str, optional
        URL of a NATS server whose workers compute the job. Without it this machine does.
    wait : str or timedelta, default "10s"
        How long to wait for a server of ``nats``.
    allow_quarantined : bool, default False
        Finish without the shards that cannot be computed, and raise IncompleteError.
    out : path, optional
        Scores file to write, .arrow. Without it the scores live as long as the process.
    force : bool, default False
        Replace the scores or the progress of another job at ``out``.
    progress : bool or callable, optional
        Whether to show the progress, or a function that is called with each Progress.
    **flags
        Other flags of ``shaver score``, such as ``rows_per_shard=1000`` for --rows-per-shard.
        ``python -m shaver score --help-all`` prints all of them.

    Returns
    -------
    Scores
        A row for each feature and a value for each of its columns.

    Raises
    ------
    UnconvergedError, IncompleteError
        The scores are written, and the exception has them as ``scores``.
    """
    if "players" in flags:
        raise UsageError("players: expected embedding entries, and shaver.fields gives the values of fields")
    settings: dict[str, Flag] = {
        "estimator": estimator,
        "baseline": baseline,
        "freeze": freeze,
        "task": task,
        "splits": splits,
        "fresh_weight": fresh_weight,
        "fresh_days": fresh_days,
        "sample": sample,
        "max_rows": max_rows,
        "loss": loss,
        "seed": seed,
        "passes": passes,
        "draws": draws,
        "endpoints": endpoints,
        "flips": flips,
        "parts": parts,
        "sparsity": sparsity,
        "audit": audit,
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
    rows = Dataset.of(dataset)
    path, result = run_job(model, rows, settings, out=out, force=force, progress=progress)
    scores = Scores(path, rows)
    with written(scores):
        result.check()
    return scores


def run_job(
    model: ModelLike, rows: Dataset, flags: dict[str, Flag], *, out: str | os.PathLike[str] | None, force: bool, progress: ProgressOption
) -> tuple[str, Result]:
    """Runs a job, and returns the path of its scores and how it ended.

    flags are those of the job, and the other parameters are those of score. The caller checks the
    result, which is that of a job without errors, or of one whose scores have not converged or
    lack rows.
    """
    known = Model.of(model, rows.field_dims)  # its file is deleted with it
    settings: dict[str, Flag] = {**known.flags, **rows.flags, **flags}
    if out is None:
        # The name depends on what is computed, so that the same call finds the progress.
        identity = json.dumps([known.digest, rows.document["digest"], {**settings, "model": None}], default=str)
        name = hashlib.sha256(identity.encode()).hexdigest()[:16]
        settings |= {"out": scratch() / f"scores-{name}.arrow", "force": True}
    else:
        settings |= {"out": os.fspath(out), "force": force or None}
    command = ["nightly", "score"] if _NIGHTLY & flags.keys() else ["score"]
    return str(settings["out"]), run(command, {**settings, "output": "json"}, names=NAMES, progress=progress, accept=(3, 4))


@contextmanager
def written(scores: Scores | FieldValues) -> Iterator[None]:
    """Adds scores that a job has written to the errors about them."""
    try:
        yield
    except (UnconvergedError, IncompleteError) as error:
        error.scores = scores
        raise
