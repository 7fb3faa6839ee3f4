"""Measures models: evaluate, check and report."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from . import _html
from ._command import Flag, document, run
from ._dataset import Dataset, DatasetLike
from ._fields import FieldValues
from ._model import NAMES, Model, ModelLike
from ._progress import ProgressOption
from ._scores import Scores, ScoresLike
from ._scratch import fresh
from ._sweep import METRICS, Sweep, SweepLike


class Evaluation:
    """The metrics of a model on a split."""

    document: dict[str, Any]  # what shaver evaluate -o json prints

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @property
    def auc(self) -> float | None:
        """AUC, or None if it is not defined."""
        return self._metric("auc")

    @property
    def gauc(self) -> float | None:
        """GAUC, the mean AUC within the groups, or None without groups."""
        return self._metric("gauc")

    @property
    def log_loss(self) -> float | None:
        """LogLoss in nat per row, or None with the squared loss."""
        return self._metric("log_loss")

    @property
    def rmse(self) -> float | None:
        """RMSE, or None with the logistic loss."""
        return self._metric("rmse")

    @property
    def differences(self) -> dict[str, dict[str, float]]:
        """Differences to the model of ``against``, each with value, low and high: the difference
        and its 95% interval. Empty without ``against``."""
        against = self.document.get("against", {})
        return {name.removesuffix("_difference"): value for name, value in against.items() if name.endswith("_difference") and value is not None}

    def _metric(self, name: str) -> float | None:
        value = self.document.get(name)
        return None if value is None else float(value)

    def _repr_html_(self) -> str:
        names = [name for name in METRICS if self._metric(name) is not None]
        rows = [(METRICS[name], self._metric(name), *_html.difference(self.differences.get(name))) for name in names]
        head = ["metric", "value", "difference", "95% interval"] if self.differences else ["metric", "value"]
        facts = f"{self.document['rows']:,} rows of {self.document['split']}"
        return _html.page("Evaluation", facts, _html.table(head, [row[: len(head)] for row in rows]))

    def __repr__(self) -> str:
        metrics = [f"{name} {self._metric(name):.6f}" for name in METRICS if self._metric(name) is not None]
        metrics += [f"{name} {d['value']:+.6f} [{d['low']:+.6f}, {d['high']:+.6f}]" for name, d in self.differences.items()]
        return f"Evaluation({self.document['split']}: {', '.join(metrics)})"


def evaluate(
    model: ModelLike,
    dataset: DatasetLike,
    *,
    against: ModelLike | None = None,
    task: str | None = None,
    split: Literal["train", "val", "test", "fresh"] | None = None,
    group: str | None = None,
    top: int | None = None,
    loss: Literal["logistic", "squared"] | None = None,
    predictions: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: ProgressOption = None,
    **flags: Flag,
) -> Evaluation:
    """Measures a model on a split of a dataset.

    Parameters
    ----------
    model : Model, path, state dict or torch.nn.Module
        Model to measure, pruned or not.
    dataset : Dataset or path
        Rows to measure on.
    against : Model, path, state dict or torch.nn.Module, optional
        Another model that is measured on the same rows, for example the unpruned one.
    task : str, optional
        Label of the dataset that the model predicts, by its output of the same name, or LABEL:OUTPUT.
    split : {"train", "val", "test", "fresh"}, default "test"
        Split to measure on.
    group : str, optional
        Field, such as the user: also measure GAUC, the mean AUC within its values, NDCG and recall, and
        take its values for the sample of all intervals.
    top : int, default 10
        Number of rows at the top of a group by which NDCG and recall are measured.
    loss : {"logistic", "squared"}, optional
        Loss of a row. By default it is squared if the labels are numbers, else logistic.
    predictions : path, optional
        File for the prediction of each row, .parquet or .csv.
    force : bool, default False
        Replace a file at ``predictions`` that shaver did not write.
    progress : bool or callable, optional
        Whether to show the progress, or a function that is called with each Progress.
    **flags
        Other flags of ``shaver evaluate``. ``python -m shaver evaluate --help`` prints all of them.

    Returns
    -------
    Evaluation
        AUC and LogLoss in nat per row, or RMSE in units of the label.
    """
    rows = Dataset.of(dataset)
    measured = Model.of(model, rows.field_dims)  # its file is deleted with it
    other = None if against is None else Model.of(against, rows.field_dims)
    settings: dict[str, Flag] = {
        **measured.flags,
        **rows.flags,
        "against": None if other is None else other.path,
        "task": task,
        "split": split,
        "group": group,
        "top": top,
        "loss": loss,
        "predictions": predictions,
        "force": force or None,
        **flags,
    }
    return Evaluation(document(["evaluate"], settings, names=NAMES, progress=progress))


class Check:
    """Whether a pruned model is as good as its model. It is true if the pruned model passed."""

    document: dict[str, Any]  # document of the schema check.v1.json or check.v2.json

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @property
    def passed(self) -> bool:
        """Whether the pruned model passed."""
        return bool(self.document["passed"])

    @property
    def reason(self) -> str:
        """Why it passed or failed."""
        return str(self.document["reason"])

    @property
    def answer(self) -> list[str]:
        """The lines that say within which bounds the pruned table is, as all programs show them."""
        return list(self.document.get("answer", {}).get("text", []))

    def __bool__(self) -> bool:
        return self.passed

    def _repr_html_(self) -> str:
        metrics = [(name, self.document[name]) for name in METRICS if self.document.get(name) is not None]
        rows = [(METRICS[name], m["model"], m["pruned"], *_html.difference(m["difference"]), m["bound"], m["passed"]) for name, m in metrics]
        head = ["metric", "model", "pruned", "difference", "95% interval", "bound", "passed"]
        return _html.page("Check", f"{'passed' if self.passed else 'failed'}: {self.reason}", _html.table(head, rows))

    def __repr__(self) -> str:
        return f"Check({'passed' if self.passed else 'failed'}: {self.reason})"


def check(
    model: ModelLike,
    dataset: DatasetLike,
    *,
    against: ModelLike,
    task: str | Sequence[str] | None = None,
    max_auc_drop: float | None = None,
    max_logloss_rise: float | None = None,
    max_rmse_rise: float | None = None,
    confident: bool = False,
    split: Literal["train", "val", "test", "fresh"] | None = None,
    group: str | None = None,
    loss: Literal["logistic", "squared"] | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: ProgressOption = None,
    **flags: Flag,
) -> Check:
    """Checks that a pruned model is as good as its model.

    A pruned model that fails is a result and not an error: the Check is false, where the command
    ends with the exit code 7.

    Parameters
    ----------
    model : Model, path, state dict or torch.nn.Module
        The pruned model.
    dataset : Dataset or path
        Rows to measure on.
    against : Model, path, state dict or torch.nn.Module
        Model that was pruned.
    task : str or sequence of str, optional
        Labels of the dataset with their weights, such as "click=1,buy=.5", for a model with an output
        for each.
    max_auc_drop : float in [0, 1], default 0.001
        Largest drop of the AUC.
    max_logloss_rise : float, default 0.001
        Largest rise of the LogLoss, in nat per row.
    max_rmse_rise : float, default 0.001
        Largest rise of the RMSE, in units of the label, with the squared loss.
    confident : bool, default False
        Demand that the whole 95% intervals are within the bounds.
    split : {"train", "val", "test", "fresh"}, default "test"
        Split to measure on.
    group : str, optional
        Field, such as the user: GAUC, the mean AUC within its values, takes the place of AUC, and its
        values are the sample of the intervals.
    loss : {"logistic", "squared"}, optional
        Loss of a row. By default it is squared if the labels are numbers, else logistic.
    out : path, optional
        File for the result, .json.
    force : bool, default False
        Replace a file at ``out`` that shaver did not write.
    progress : bool or callable, optional
        Whether to show the progress, or a function that is called with each Progress.
    **flags
        Other flags of ``shaver check``. ``python -m shaver check --help`` prints all of them.

    Returns
    -------
    Check
        True if the pruned model passed, with the reason.
    """
    rows = Dataset.of(dataset)
    before, after = Model.of(against, rows.field_dims), Model.of(model, rows.field_dims)
    settings: dict[str, Flag] = {
        **before.flags,  # with the output, which check applies to both
        **rows.flags,
        "model": after.path,
        "against": before.path,
        "task": task,
        "max_auc_drop": max_auc_drop,
        "max_logloss_rise": max_logloss_rise,
        "max_rmse_rise": max_rmse_rise,
        "confident": confident or None,
        "split": split,
        "group": group,
        "loss": loss,
        "out": out,
        "force": force or None,
        **flags,
    }
    return Check(run(["check"], {**settings, "output": "json"}, names=NAMES, progress=progress, accept=(7,)).document())


class Report:
    """An HTML page about scores and pruning. A notebook shows it in a frame."""

    path: str  # HTML file

    def __init__(self, path: str) -> None:
        self.path = path

    def _repr_html_(self) -> str:
        page = html.escape(Path(self.path).read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="640" style="border: 1px solid #ccc"></iframe>'

    def __repr__(self) -> str:
        return f"Report({self.path})"


def report(
    model: ModelLike,
    scores: ScoresLike | FieldValues,
    *,
    sweep: SweepLike | None = None,
    path: str | os.PathLike[str] | None = None,
    dataset: DatasetLike | None = None,
    aggregate: Literal["rms", "sum", "abs"] | None = None,
    within: float | None = None,
    pictures: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    **flags: Flag,
) -> Report:
    """Writes an HTML page about scores and, with ``sweep``, about pruning.

    Parameters
    ----------
    model : Model, path, state dict or torch.nn.Module
        Model that was scored.
    scores : Scores, FieldValues or path
        Scores of the model, or the values of its fields.
    sweep : Sweep or path, optional
        Result of ``sweep`` for these scores.
    path : path, optional
        File of ``remove(path=...)`` for this model.
    dataset : Dataset or path, optional
        Dataset whose values name the features, by default the one that was scored.
    aggregate : {"rms", "sum", "abs"}, default that of the recommended table, or rms
        Aggregate of the scores to rank by.
    within : float, default 0.001
        Bound by which the AUC of a recommended table may be lower, and its LogLoss in nat per row higher, than of the model.
    pictures : path, optional
        Folder for the pictures as .svg files.
    out : path, optional
        HTML file to write. Without it the page lives as long as the process.
    force : bool, default False
        Replace files at ``out`` and in ``pictures`` that shaver did not write.
    **flags
        Other flags of ``shaver report``. ``python -m shaver report --help`` prints all of them.

    Returns
    -------
    Report
        The page, which a notebook shows in a frame.
    """
    known = scores if isinstance(scores, FieldValues) else Scores.of(scores)
    rows = Dataset.of(dataset) if dataset is not None else known.dataset if isinstance(known, Scores) else None
    scored = Model.of(model, known.field_dims if isinstance(known, Scores) else None if rows is None else rows.field_dims)
    target = str(os.fspath(out)) if out is not None else str(fresh("report.html", "the report"))
    settings: dict[str, Flag] = {
        **scored.flags,
        **({} if rows is None else rows.flags),
        "scores": known.path,
        "sweep": None if sweep is None else sweep.path if isinstance(sweep, Sweep) else sweep,
        "path": path,
        "aggregate": aggregate,
        "within": within,
        "pictures": pictures,
        "out": target,
        "force": force or None,
        **flags,
    }
    document(["report"], settings, names=NAMES)
    return Report(target)
