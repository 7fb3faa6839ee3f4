"""The folder for files that the caller did not name."""

from __future__ import annotations

import functools
import itertools
import shutil
import tempfile
import weakref
from pathlib import Path

_numbers = itertools.count()


class _Folder:
    """A temporary folder that is deleted when the interpreter exits."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="shaver-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@functools.cache
def _folder() -> _Folder:
    return _Folder()


def scratch() -> Path:
    """Returns the process's folder for files that live as long as the process."""
    return _folder().path


def fresh(name: str) -> Path:
    """Returns a path in a new folder of scratch, whose last part is name."""
    folder = scratch() / str(next(_numbers))
    folder.mkdir()
    return folder / name


def delete(path: str | Path) -> None:
    """Deletes the folder of a path that fresh returned, with all files in it."""
    shutil.rmtree(Path(path).parent, ignore_errors=True)


def delete_with(owner: object, path: str | Path) -> None:
    """Deletes the folder of a path that fresh returned when owner is garbage."""
    weakref.finalize(owner, delete, path)
