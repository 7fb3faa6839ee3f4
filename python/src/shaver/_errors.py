"""The exceptions of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._fields import FieldValues
    from ._scores import Scores


class Error(Exception):
    """A command failed, or could not be run.

    ``message`` is what the command printed, and ``exit_code`` its exit code. The classes below
    are for the codes that a program may want to handle. An error that Python found itself has
    the code that the command would have had.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message, exit_code)
        self.message = message
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message


class UsageError(Error):
    """The arguments are wrong (exit code 2)."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message, exit_code)


class UnconvergedError(Error):
    """The scores are written, but they have not converged (exit code 3)."""

    scores: Scores | FieldValues  # the scores that were written


class IncompleteError(Error):
    """The scores are written, but they lack the rows of some shards (exit code 4)."""

    scores: Scores | FieldValues  # the scores that were written


class OvertakenError(Error):
    """Another process leads the job, has ended it or has written the output (exit code 5)."""


class CancelledError(Error):
    """Somebody cancelled the job with ``shaver job cancel`` (exit code 6)."""


class BadInputError(Error):
    """A file, a frame or a model is wrong, so that a retry would fail too (exit code 42)."""

    def __init__(self, message: str, exit_code: int = 42) -> None:
        super().__init__(message, exit_code)


BY_EXIT_CODE: dict[int, type[Error]] = {
    2: UsageError,
    3: UnconvergedError,
    4: IncompleteError,
    5: OvertakenError,
    6: CancelledError,
    42: BadInputError,
}
