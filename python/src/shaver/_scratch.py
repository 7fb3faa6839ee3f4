"""The folder for files that the caller did not name."""

from __future__ import annotations

import functools
import itertools
import shutil
import tempfile
import weakref
from pathlib import Path

_numbers = itertools.count()

_contents: dict[str, str] = {}  # what the files in a folder of fresh hold, by the folder's name


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


def used() -> bool:
    """Reports whether the process has such a folder."""
    return _folder.cache_info().currsize > 0


def fresh(name: str, content: str) -> Path:
    """Returns a path in a new folder of scratch, whose last part is name. Error messages call the
    file content, such as "the model"."""
    folder = scratch() / str(next(_numbers))
    folder.mkdir()
    _contents[folder.name] = content
    return folder / name


def content(folder: str) -> str:
    """Returns what messages call the files in a folder that fresh made, also a deleted one."""
    return _contents.get(folder, "a temporary file")


def shown(path: str) -> str:
    """Returns a path as representations show it, which do not name temporary files."""
    return "in a temporary folder" if used() and scratch() in Path(path).parents else path


def delete(path: str | Path) -> None:
    """Deletes the folder of a path that fresh returned, with all files in it."""
    shutil.rmtree(Path(path).parent, ignore_errors=True)


def delete_with(owner: object, path: str | Path) -> None:
    """Deletes the folder of a path that fresh returned when owner is garbage."""
    weakref.finalize(owner, delete, path)
