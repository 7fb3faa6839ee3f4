"""What the tests share: a planted data set and a model in files, made by the program itself."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import shaver
from shaver._binary import binary

# A shell starts programs in the background with interrupts ignored. Tests send them.
signal.signal(signal.SIGINT, signal.default_int_handler)

FIELDS = ["user", "item", "category", "brand", "device", "hour", "city", "query", "position", "campaign"]


def command(*arguments: str | Path, exit_code: int = 0) -> str:
    """Runs the program as a user would, and returns what it prints."""
    ended = subprocess.run([binary(), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert ended.returncode == exit_code, ended.stderr
    return ended.stdout


def imported(folder: Path, columns: list[str], out: Path, *flags: str) -> list[tuple[str, ...]]:
    """The texts of the rows that an import has, in ascending order."""
    command(
        "dataset", "import", "parquet", folder, "--label", "click", "--columns", ",".join(columns), "--split", "1:0:0", "--min-count", "1", "--out", out, *flags
    )
    data = shaver.Dataset(out)
    table = data.to_arrow("train")
    texts = [["" if (v := data.values(c)[i]) is None else v for i in table.column(c).to_pylist()] for c in columns]
    shutil.rmtree(out)
    return sorted(zip(map(str, table.column("label").to_pylist()), *texts, strict=True))


@dataclass(frozen=True)
class Planted:
    """Files of shaver quickstart: a DCNv2 and 3,000 rows that it generated."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model.safetensors"

    @property
    def dataset(self) -> Path:
        return self.folder / "dataset"

    @property
    def rows(self) -> pa.Table:
        return pyarrow.csv.read_csv(self.folder / "rows.csv")

    @property
    def scores(self) -> Path:
        return self.folder / "scores.arrow"


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    folder = tmp_path_factory.mktemp("planted") / "files"
    command("quickstart", "--rows", "3000", "--out", folder)
    return Planted(folder)


def ids_table(field_dims: Sequence[int], rows: int, seed: int) -> pa.Table:
    """Returns random rows with local ids: the label click, and the fields a, b, c and so on."""
    random = np.random.default_rng(seed)
    ids = np.stack([random.integers(0, size, rows) for size in field_dims], axis=1)
    clicks = (random.random(rows) < 0.2 + 0.6 * (ids[:, 0] % 2)).astype(np.int64)
    columns = {"click": clicks, **{chr(ord("a") + i): ids[:, i] for i in range(len(field_dims))}}
    return pa.table(columns)


def children(pid: int) -> list[int]:
    """Returns the children of a process, as /proc has them."""
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in read(task).split()]


def read(file: Path) -> bytes:
    """Returns the content of a file of /proc, or nothing if its process or thread is over."""
    try:
        return file.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
