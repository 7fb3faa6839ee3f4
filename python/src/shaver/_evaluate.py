"""Measures models: evaluate, check and report."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

from ._command import Flag, document, run
from ._dataset import Dataset, DatasetLike
from ._model import Model, ModelLike
from ._progress import ProgressOption
from ._scores import Scores, ScoresLike
from ._sweep import Sweep, SweepLike


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

    def __repr__(self) -> str:
        metrics = [f"{name} {self._metric(name):.6f}" for name in ("auc", "log_loss", "rmse") if self._metric(name) is not None]
        metrics += [f"{name} {d['value']:+.6f} [{d['low']:+.6f}, {d['high']:+.6f}]" for name, d in self.differences.items()]
        return f"Evaluation({self.document['split']}: {', '.join(metrics)})"


def evaluate(
    model: ModelLike,
    dataset: DatasetLike,
    *,
    against: ModelLike | None = None,
    split: str | None = None,
    predictions: str | os.PathLike[str] | None = None,
    progress: ProgressOption = None,
    **flags: Flag,
) -> Evaluation:
    """Measures a model on a split of a dataset, by default test.

    ``against`` is another model that is measured on the same rows, for example the unpruned one.
    ``predictions`` is a .parquet or .csv file for the prediction of each row. Other ``flags`` are
    those of shaver evaluate.
    """
    rows = Dataset.of(dataset)
    measured = Model.of(model, rows.field_dims)  # its file is deleted with it
    other = None if against is None else Model.of(against, rows.field_dims)
    settings: dict[str, Flag] = {
        **measured.flags,
        **rows.flags,
        "against": None if other is None else other.path,
        "split": split,
        "predictions": predictions,
        **flags,
    }
    return Evaluation(document(["evaluate"], settings, progress=progress))


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

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"Check({'passed' if self.passed else 'failed'}: {self.reason})"


def check(
    model: ModelLike,
    pruned: ModelLike,
    dataset: DatasetLike,
    *,
    split: str | None = None,
    confident: bool = False,
    progress: ProgressOption = None,
    **flags: Flag,
) -> Check:
    """Checks that a pruned model is as good as its model, by default on the split val.

    A pruned model that fails is a result and not an error: the Check is false, where the command
    ends with the exit code 7. Other ``flags`` are those of shaver check, such as
    max_auc_drop=0.002.
    """
    rows = Dataset.of(dataset)
    before, after = Model.of(model, rows.field_dims), Model.of(pruned, rows.field_dims)
    settings: dict[str, Flag] = {
        **before.flags,
        **rows.flags,
        "pruned": after.path,
        "split": split,
        "confident": confident,
        **flags,
    }
    return Check(run(["check"], {**settings, "output": "json"}, progress=progress, accept=(7,)).document())


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
    scores: ScoresLike,
    *,
    out: str | os.PathLike[str],
    sweep: SweepLike | None = None,
    dataset: DatasetLike | None = None,
    **flags: Flag,
) -> Report:
    """Writes an HTML page about scores and, with ``sweep``, about pruning, to ``out``.

    ``dataset`` names features by their values; by default it is the dataset of the scores.
    Other ``flags`` are those of shaver report, such as auc_tolerance=0.002.
    """
    known = Scores.of(scores)
    rows = known.dataset if dataset is None else Dataset.of(dataset)
    scored = Model.of(model, known.field_dims)
    settings: dict[str, Flag] = {
        **scored.flags,
        **({} if rows is None else rows.flags),
        "scores": known.path,
        "sweep": None if sweep is None else sweep.path if isinstance(sweep, Sweep) else sweep,
        "out": os.fspath(out),
        **flags,
    }
    document(["report"], settings)
    return Report(str(os.fspath(out)))
