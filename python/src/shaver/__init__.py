"""Scores every embedding parameter of a click model by Shapley values, and prunes the table.

The package runs the program shaver, which computes everything, and reads the files that it
writes. docs/guide/python.md in the repository describes every call.
"""

from ._compress import Compressed, compress
from ._dataset import Dataset
from ._errors import (
    BadInputError,
    CancelledError,
    Error,
    IncompleteError,
    OvertakenError,
    UnconvergedError,
    UsageError,
)
from ._evaluate import Check, Evaluation, Report, check, evaluate, report
from ._explain import Explanation, explain
from ._fields import FieldValues, fields
from ._model import Model
from ._progress import Progress
from ._prune import prune
from ._remove import Removal, remove
from ._scores import Scores, score
from ._sweep import Sweep, sweep

__version__ = "0.2.0"

__all__ = [
    "BadInputError",
    "CancelledError",
    "Check",
    "Compressed",
    "Dataset",
    "Error",
    "Evaluation",
    "Explanation",
    "FieldValues",
    "IncompleteError",
    "Model",
    "OvertakenError",
    "Progress",
    "Removal",
    "Report",
    "Scores",
    "Sweep",
    "UnconvergedError",
    "UsageError",
    "check",
    "compress",
    "evaluate",
    "explain",
    "fields",
    "prune",
    "remove",
    "report",
    "score",
    "sweep",
]
