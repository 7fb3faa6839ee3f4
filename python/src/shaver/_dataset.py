"""Datasets: rows that shaver has imported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset

from ._command import Flag, document, run
from ._errors import BadInputError
from ._model import Model, ModelLike
from ._progress import ProgressOption
from ._scratch import delete, fresh

if TYPE_CHECKING:
    import pandas
    import polars

Frame = Union["pandas.DataFrame", "polars.DataFrame", pa.Table, str, "os.PathLike[str]"]
"""Rows: a frame of pandas or polars, a table of pyarrow, or the path of a Parquet file or of a
folder of such files. Any other object with __arrow_c_stream__ is a frame too."""

_NAMES = {"columns": "fields", "model-output": "output"}  # parameters of from_frame by flag, where the names differ

_SPLITS = ("train", "val", "test")


class Dataset:
    """A dataset folder, or the folders of a window's days."""

    paths: tuple[str, ...]  # folders or their URLs, the oldest first
    document: dict[str, Any]  # facts, as shaver dataset inspect -o json prints them

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        self.paths = tuple(str(os.fspath(path)) for path in paths)
        self.document = document(["dataset", "inspect"], {}, paths=self.paths)

    @classmethod
    def open(cls, *paths: str | os.PathLike[str]) -> Dataset:
        """Opens a dataset that shaver dataset import made, or the days of a window."""
        return cls(*paths)

    @classmethod
    def of(cls, dataset: DatasetLike) -> Dataset:
        """Returns a dataset as a Dataset."""
        return dataset if isinstance(dataset, Dataset) else cls(dataset)

    @classmethod
    def from_frame(
        cls,
        frame: Frame | Mapping[str, Frame],
        *,
        label: str,
        fields: Sequence[str] | None = None,
        split: str | None = None,
        ids: Literal["local", "global"] | None = None,
        dense: Sequence[str] = (),
        model: ModelLike | None = None,
        out: str | os.PathLike[str] | None = None,
        progress: ProgressOption = None,
        **flags: Flag,
    ) -> Dataset:
        """Imports the rows of a frame.

        ``fields`` are the columns that are fields, in this order. By default they are all
        columns except the label and the dense inputs. ``dense`` are columns of numbers, each
        NAME or NAME:RULE. A column whose cells are lists is a list of ids or values.

        Without ``ids`` the columns have raw values. They get new ids, or with the flag
        ``vocabulary`` the ids of an earlier dataset or of a mapper. With ``ids`` the columns
        have the ids with which the model was trained: ``local`` ids count within their field,
        and ``global`` ids over all fields. The frame may then be a dict of frames with the keys
        train, val and test.

        ``split`` is the ratio in which rows are assigned to splits at random, by default 8:1:1.
        ``model`` is the model whose fields, sizes and lists the dataset must have. ``out`` is a
        new folder; without it the dataset lives as long as the process. Other ``flags`` are
        those of shaver dataset import parquet, or csv with ``ids``, such as min_count=10.
        """
        dense = [dense] if isinstance(dense, str) else list(dense)
        if isinstance(fields, str):
            raise BadInputError(f"fields: expected a list of columns, such as [{fields!r}]")
        folder = str(os.fspath(out)) if out is not None else str(fresh("dataset", "the dataset"))
        common: dict[str, Flag] = {"out": folder, "dense": dense or None, **flags}
        known = None if model is None else Model.of(model)
        if known is not None:
            common |= known.flags
        if ids is None:
            if isinstance(frame, Mapping):
                raise BadInputError("a dict of frames needs ids: raw values are split at random")
            source, temporary = _raw_file(frame, label, fields, dense)
            try:
                run(
                    ["dataset", "import", "parquet"],
                    {"label": label, "columns": fields, "split": split, **common},
                    paths=[source],
                    names=_NAMES,
                    progress=progress,
                )
            finally:
                if temporary is not None:
                    delete(temporary)
            return cls(folder)
        frames = frame if isinstance(frame, Mapping) else {"train": frame}
        unknown = sorted(set(frames) - set(_SPLITS))
        if unknown or "train" not in frames:
            raise BadInputError(f"a dict of frames has the keys {', '.join(frames)}: expected train, val and test, at least train")
        if split is None and not isinstance(frame, Mapping):
            split = "8:1:1"
        files = {}
        try:
            for name, part in frames.items():
                files[name] = _encoded_file(part, label, fields, dense, f"the frame {name}" if isinstance(frame, Mapping) else "the frame")
            run(["dataset", "import", "csv"], {"ids": ids, "split": split, **files, **common}, names=_NAMES, progress=progress)
        finally:
            for path in files.values():
                delete(path)
        return cls(folder)

    @property
    def flags(self) -> dict[str, Flag]:
        """The flag --dataset of a command."""
        return {"dataset": self.paths}

    @property
    def fields(self) -> list[str]:
        """Names of the fields."""
        return [field["name"] for field in self.document["fields"]]

    @property
    def field_dims(self) -> list[int]:
        """Sizes of the fields."""
        return [field["size"] for field in self.document["fields"]]

    @property
    def rows(self) -> int:
        """Number of rows in all splits."""
        return int(self.document["rows"])

    def to_arrow(self, split: str) -> pa.Table:
        """Returns the encoded rows of a split: the label, an id for each field, and the dense
        inputs after their rule."""
        tables = []
        for path in self.paths:
            file = Path(path) / f"{split}.arrow"
            if not file.is_file():
                raise BadInputError(f"{path} has no split {split!r} on this machine")
            with pa.memory_map(str(file)) as source:
                tables.append(pa.ipc.open_file(source).read_all())
        return pa.concat_tables(tables)

    def values(self, field: str) -> list[str | None]:
        """Returns the value of each id of a field. An id without a value of its own has None,
        and so has every id of a dataset that was imported with ids."""
        number = self._field(field)
        files = sorted((Path(self.paths[-1]) / "vocabulary").glob(f"{number}-*.txt"))
        if not files:
            return [None] * self.field_dims[number]
        lines = files[0].read_text(encoding="utf-8").split("\n")[:-1]
        found = [None if line == r"\-" else _unescaped(line) for line in lines]
        return found + [None] * (self.field_dims[number] - len(found))

    def _field(self, name: str) -> int:
        if name not in self.fields:
            raise BadInputError(f"no field {name!r}: the fields are {', '.join(self.fields)}")
        return self.fields.index(name)

    def __repr__(self) -> str:
        return f"Dataset({', '.join(self.paths)}: {self.rows:,} rows, {len(self.fields)} fields)"


DatasetLike = Union[Dataset, str, "os.PathLike[str]"]
"""A Dataset, or the path or URL of a dataset folder."""


def _column(dense: str) -> str:
    """Returns the column of NAME, NAME=INPUT, NAME:RULE or NAME=INPUT:RULE."""
    return dense.partition(":")[0].partition("=")[0]


def _table(frame: object) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    library = type(frame).__module__.partition(".")[0]
    if library == "pandas":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if library == "polars" and hasattr(frame, "to_arrow"):
        return frame.to_arrow()  # its stream has views of strings, which pyarrow casts in part only
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    raise BadInputError(f"the frame is a {type(frame).__name__}, expected a frame of pandas or polars, a table of pyarrow or a path")


def _selected(table: pa.Table, label: str, fields: Sequence[str] | None, dense: Sequence[str]) -> list[str]:
    """Returns the columns to import: the label, the fields and the dense inputs."""
    numbers = [_column(text) for text in dense]
    if fields is None:
        fields = [name for name in table.column_names if name != label and name not in numbers]
    columns = [label, *(name.partition("=")[0] for name in fields)]
    columns += [name for name in numbers if name not in columns]
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise BadInputError(f"no column {missing[0]!r}: the columns are {', '.join(table.column_names)}")
    return columns


def _raw_file(frame: object, label: str, fields: Sequence[str] | None, dense: Sequence[str]) -> tuple[str, str | None]:
    """Returns a file with the rows, and its path again if it is to be deleted."""
    if isinstance(frame, (str, os.PathLike)):
        return str(os.fspath(frame)), None
    table = _table(frame)
    table = table.select(_selected(table, label, fields, dense))
    path = str(fresh("rows.arrow", "the frame"))
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 16)
    return path, path


def _encoded_file(frame: object, label: str, fields: Sequence[str] | None, dense: Sequence[str], content: str) -> str:
    """Writes encoded rows as CSV and returns the path. Messages call the frame content."""
    if isinstance(frame, (str, os.PathLike)):
        rows = pyarrow.dataset.dataset(str(os.fspath(frame)))
        columns = _selected(rows.schema.empty_table(), label, fields, dense)
        batches = rows.to_batches(columns=columns)
    else:
        table = _table(frame)
        table = table.select(_selected(table, label, fields, dense))
        batches = table.to_batches(max_chunksize=1 << 16)
    path = str(fresh("rows.csv", content))
    writer = None
    try:
        for batch in batches:
            cells = pa.table([_cells(column) for column in batch.columns], batch.schema.names)
            if writer is None:
                # The import of ids reads no quotes, and ids need none.
                unquoted = pyarrow.csv.WriteOptions(quoting_style="none")
                writer = pyarrow.csv.CSVWriter(path, cells.schema, write_options=unquoted)
            writer.write_table(cells)
    except pa.ArrowInvalid as error:
        raise BadInputError(f"the frame has columns that are no ids: {error}") from error
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise BadInputError("the frame has no rows")
    return path


def _cells(column: pa.Array) -> pa.Array:
    """Returns a column as CSV holds it: booleans as 0 and 1, and lists as ids with | between them."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _cells(column.dictionary_decode())
    if pa.types.is_boolean(kind):
        return column.cast(pa.uint8())
    if pa.types.is_fixed_size_list(kind):
        return _cells(column.cast(pa.list_(kind.value_type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        texts = pa.large_list(pa.string()) if pa.types.is_large_list(kind) else pa.list_(pa.string())
        return pc.binary_join(column.cast(texts), "|")
    return column


def _unescaped(text: str) -> str:
    """Returns a value as it was before it was written into a vocabulary."""
    if "\\" not in text:
        return text
    parts = text.split("\\\\")
    return "\\".join(part.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r") for part in parts)
