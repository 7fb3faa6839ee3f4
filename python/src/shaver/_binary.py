"""Finds the shaver program."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ._errors import Error


def binary() -> str:
    """Returns the path of the shaver program.

    It is the program in the installed wheel. An installation from source has none, and uses
    the one on PATH. Raises Error if there is neither.
    """
    carried = Path(__file__).parent / "bin" / ("shaver.exe" if os.name == "nt" else "shaver")
    if carried.is_file():
        return str(carried)
    found = shutil.which("shaver")
    if found is None:
        raise Error(
            'the program shaver is neither in this package nor on PATH: install a wheel, or run "go install ./cmd/shaver" in the root of the repository'
        )
    return found
