"""Datasets from frames are those that the command makes from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from conftest import FIELDS, Planted, command, ids_table

import shaver

RAW = pa.table(
    {
        "click": [0, 1] * 50,
        "user": [f"u{i % 7}" for i in range(100)],
        "item": [i % 3 for i in range(100)],
        "age": [float(i) for i in range(100)],
    }
)


def files(folder: str | Path) -> dict[str, bytes]:
    """Returns the files of a dataset, without the manifest, which names the sources."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file() and path.name != "dataset.json"
    }


def frames(table: pa.Table, folder: Path) -> dict[str, Any]:
    pq.write_table(table, folder / "rows.parquet")
    return {
        "pandas": table.to_pandas(),
        "polars": pl.from_arrow(table),
        "pyarrow": table,
        "path": folder / "rows.parquet",
        "stream": Stream(table),
    }


class Stream:
    """A frame of a library that shaver does not know."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "path", "stream"])
def test_raw_values(kind: str, tmp_path: Path) -> None:
    source = frames(RAW, tmp_path)
    command(
        *("dataset", "import", "parquet", source["path"], "--label", "click", "--columns", "user,item"),
        *("--dense", "age:zscore", "--split", "6:2:2", "--seed", "7", "--out", tmp_path / "want"),
    )
    options: dict[str, Any] = {"label": "click", "fields": ["user", "item"], "dense": ["age:zscore"], "split": "6:2:2", "seed": 7}
    ds = shaver.Dataset.from_frame(source[kind], **options)
    assert files(ds.paths[0]) == files(tmp_path / "want")
    assert ds.fields == ["user", "item"] and ds.field_dims == [8, 4] and ds.rows == 100
    assert ds.values("user") == [f"u{i}" for i in range(7)] + [None]
    again = shaver.Dataset.from_frame(source[kind], vocabulary=ds.paths[0], **options)
    assert again.values("item") == ["0", "1", "2", None]


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "path", "stream"])
def test_ids(kind: str, planted: Planted, tmp_path: Path) -> None:
    ds = shaver.Dataset.from_frame(frames(planted.rows, tmp_path)[kind], label="label", ids="local", model=planted.model, out=tmp_path / "data")
    assert ds.paths == (str(tmp_path / "data"),)
    assert files(ds.paths[0]) == files(planted.dataset)
    table = ds.to_arrow("train")
    assert table.column_names == ["label", *FIELDS] and table.num_rows == ds.document["splits"][0]["rows"]
    assert ds.values("device") == [None] * 6


def test_frame_for_each_split(tmp_path: Path) -> None:
    parts = {name: ids_table([3, 5], rows, seed=rows) for name, rows in (("train", 60), ("val", 20), ("test", 10))}
    flags: list[str | Path] = []
    for name, part in parts.items():
        pyarrow.csv.write_csv(part, tmp_path / f"{name}.csv")
        flags += [f"--{name}", tmp_path / f"{name}.csv"]
    command("dataset", "import", "csv", *flags, "--field-sizes", "3,5", "--out", tmp_path / "want")
    ds = shaver.Dataset.from_frame({name: part.to_pandas() for name, part in parts.items()}, label="click", ids="local", field_sizes=[3, 5])
    assert files(ds.paths[0]) == files(tmp_path / "want")
    assert [split["rows"] for split in ds.document["splits"]] == [60, 20, 10]


def test_lists_and_types(tmp_path: Path) -> None:
    history = [[1, 2], [], [3], [0, 1]] * 10
    frame = pd.DataFrame(
        {
            "click": [True, False, True, False] * 10,
            "hour": np.arange(40, dtype=np.int8) % 4,
            "device": pd.Categorical(["1", "0"] * 20),
            "history": history,
        }
    )
    texts = pa.table({**{name: frame[name].astype(int) for name in ("click", "hour", "device")}, "history": ["|".join(map(str, ids)) for ids in history]})
    pyarrow.csv.write_csv(texts, tmp_path / "rows.csv", pyarrow.csv.WriteOptions(quoting_style="none"))
    options = ("--list", "history=3", "--pad", "history=4", "--field-sizes", "4,2,5")
    command("dataset", "import", "csv", "--train", tmp_path / "rows.csv", "--split", "8:1:1", *options, "--out", tmp_path / "want")
    flags: dict[str, Any] = {"list": "history=3", "pad": "history=4", "field_sizes": [4, 2, 5]}
    for kind in (frame, pl.from_pandas(frame)):
        ds = shaver.Dataset.from_frame(kind, label="click", ids="local", **flags)
        assert files(ds.paths[0]) == files(tmp_path / "want")
    raw = shaver.Dataset.from_frame(frame, label="click", list="history=3", min_count=1)
    assert raw.document["rows"] == 40 and raw.fields == ["hour", "device", "history"]


def test_values_with_escapes(tmp_path: Path) -> None:
    values = ["a\tb", "c\\d", "e\nf", "g\\\\t", "\\-", "plain"]
    table = pa.table({"click": [0, 1] * 30, "text": values * 10})
    ds = shaver.Dataset.from_frame(table, label="click", min_count=1)
    assert ds.values("text") == [*sorted(values, key=str.encode), None]


def test_raw_values_of_given_splits() -> None:
    ds = shaver.Dataset.from_frame({"train": RAW.slice(0, 60), "val": RAW.slice(60, 5), "test": RAW.slice(65)}, label="click")
    assert {split: ds.to_arrow(split).num_rows for split in ("train", "val", "test")} == {"train": 60, "val": 5, "test": 35}
    assert shaver.Dataset.from_frame({"train": RAW}, label="click").to_arrow("train").num_rows == 100


@pytest.mark.parametrize("of", ["dataset", "folder"])
def test_dense_inputs_of_an_earlier_dataset(of: str, tmp_path: Path) -> None:
    earlier = shaver.Dataset.from_frame(RAW, label="click", fields=["user", "item"], dense=["age:zscore"], out=tmp_path / "earlier")
    frame = RAW.append_column("note", RAW["item"])
    options: dict[str, Any] = {"label": "click", "fields": ["user", "item"], "vocabulary": earlier if of == "dataset" else tmp_path / "earlier"}
    ds = shaver.Dataset.from_frame(frame, **options)
    assert ds.to_arrow("train") == earlier.to_arrow("train") and "age" in ds.to_arrow("train").column_names
    with pytest.raises(shaver.BadInputError, match='no column "age" for a dense input'):
        shaver.Dataset.from_frame(frame.drop_columns(["age"]), **options)


def test_window_of_days() -> None:
    days = [shaver.Dataset.from_frame(RAW.slice(0, 60), label="click", fields=["user", "item"])]
    days.append(shaver.Dataset.from_frame(RAW.slice(60), label="click", vocabulary=days[0].paths[0]))
    window = shaver.Dataset.open(*(day.paths[0] for day in days))
    assert window.rows == 100 and window.to_arrow("train").num_rows == sum(day.to_arrow("train").num_rows for day in days)
    assert window.values("user")[0] == "u0"


def test_bad_frames(tmp_path: Path) -> None:
    for match, frame, options in [
        ("the columns are click, user, item, age", RAW, {"label": "clack"}),
        ("no column 'cat'", RAW, {"label": "click", "fields": ["cat"]}),
        ("no column 'price'", RAW, {"label": "click", "dense": ["price:log1p"]}),
        (r"expected a list of columns, such as \['user', 'item'\]", RAW, {"label": "click", "fields": "user,item"}),
        ("the frame is a list", [1, 2], {"label": "click"}),
        (r"the frame is a Series, expected a DataFrame: to_frame\(\)", RAW.to_pandas()["user"], {"label": "click"}),
        (r"the frame is a Series, expected a DataFrame: to_frame\(\)", pl.Series("user", ["a"]), {"label": "click", "ids": "local"}),
        ("expected train, val, test and fresh", {"training": RAW}, {"label": "click", "ids": "local"}),
        ("the frame has no rows", RAW.slice(0, 0), {"label": "click", "ids": "local"}),
        ("no ids", pa.table({"click": [1], "user": ['1,"2"']}), {"label": "click", "ids": "local"}),
        ("the frame: row 0: field 0", RAW, {"label": "click", "fields": ["user"], "ids": "local"}),
    ]:
        with pytest.raises(shaver.BadInputError, match=match):
            shaver.Dataset.from_frame(frame, **options)  # type: ignore[arg-type]
    with pytest.raises(shaver.BadInputError, match=r"dataset\.json"):
        shaver.Dataset.open(tmp_path)
    ds = shaver.Dataset.from_frame(RAW, label="click", fields=["user"])
    with pytest.raises(shaver.BadInputError, match="no split 'nightly'"):
        ds.to_arrow("nightly")
    with pytest.raises(shaver.BadInputError, match="the fields are user"):
        ds.values("item")


@pytest.mark.parametrize("ids", [None, "local"])
def test_weights_and_labels(ids: Any, tmp_path: Path) -> None:
    """A frame may have a weight and several labels, all but the first of which may be missing."""
    frame = pd.DataFrame({"click": [1, 0, 1, 1], "user": [0, 1, 1, 0], "buy": [1, None, 0, 1], "times": [1, 0.5, 2, 1]})
    rows = shaver.Dataset.from_frame({"train": frame}, label="click,buy", weight="times", ids=ids, out=tmp_path / "rows")
    table = rows.to_arrow("train")
    assert rows.fields == ["user"]
    assert table["weight"].to_pylist() == [1000, 500, 2000, 1000] and table["buy"].to_pylist() == [1, -1, 0, 1]
