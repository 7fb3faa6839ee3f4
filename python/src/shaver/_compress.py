"""Makes the smallest file of a model within a bound."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ._command import Flag, run
from ._dataset import Dataset, DatasetLike
from ._evaluate import Report
from ._model import NAMES, Model, ModelLike
from ._progress import ProgressOption
from ._scores import Scores, ScoresLike

FAILED = 7  # exit code if no file is certain to be within the bound


class Compressed:
    """The result of ``compress``. It is true if a file was written."""

    document: dict[str, Any]  # what shaver compress -o json prints

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @property
    def path(self) -> str | None:
        """The file, or None if none is certain to be within the bound."""
        return self.document.get("out")

    @property
    def answer(self) -> list[str]:
        """The lines that say which table to ship, as all programs show them."""
        return list(self.document["answer"]["text"])

    @property
    def page(self) -> Report:
        """The page that says why, which a notebook shows in a frame."""
        return Report(self.document["page"])

    def __bool__(self) -> bool:
        return self.path is not None

    def _repr_html_(self) -> str:
        return self.page._repr_html_()

    def __repr__(self) -> str:
        return f"Compressed({self.path})"


def compress(
    model: ModelLike,
    dataset: DatasetLike,
    out: str | os.PathLike[str],
    *,
    within: float | None = None,
    bytes: int | None = None,
    sparsity: float | None = None,
    group: str | None = None,
    recipe: str | os.PathLike[str] | None = None,
    scores: ScoresLike | None = None,
    force: bool = False,
    progress: ProgressOption = None,
    **flags: Flag,
) -> Compressed:
    """Makes the smallest file of a model that is certain to be within a bound, and a page that says why.

    Parameters
    ----------
    model : Model, path, state dict or torch.nn.Module
        Model to compress.
    dataset : Dataset or path
        Rows that score, choose and judge by their splits.
    out : path
        File to write, .safetensors. The page has its name with .html.
    within : float, default 0.001
        Bound by which the AUC may be lower, and the LogLoss higher, than of the model.
    bytes : int, optional
        Size of the file, in place of a bound.
    sparsity : float, optional
        Portion of the entries to drop, in place of a bound.
    group : str, optional
        Field, such as the user: GAUC, the mean AUC within its values, takes the place of AUC, and its
        values are the sample of the intervals.
    recipe : path, optional
        File of an earlier compress, whose bound, bytes or sparsity is taken again.
    scores : Scores or path, optional
        Scores of the model. Without them they are computed.
    force : bool, default False
        Replace a file at ``out`` that was not pruned, and a page that shaver did not write.
    progress : bool or callable, optional
        Whether to show the progress, or a function that is called with each Progress.
    **flags
        Other flags of ``shaver compress``. ``python -m shaver compress --help-all`` prints all of them.

    Returns
    -------
    Compressed
        The file, if one is certain to be within the bound, and the page.
    """
    rows = Dataset.of(dataset)
    settings: dict[str, Flag] = {
        **Model.of(model, rows.field_dims).flags,
        **rows.flags,
        "out": str(Path(os.fspath(out))),
        "within": within,
        "bytes": bytes,
        "sparsity": sparsity,
        "group": group,
        "recipe": recipe,
        "scores": None if scores is None else Scores.of(scores).path,
        "force": force or None,
        "output": "json",
        **flags,
    }
    return Compressed(run(["compress"], settings, names=NAMES, progress=progress, accept=(FAILED,)).document())
