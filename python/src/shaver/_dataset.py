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

from . import _html
from ._command import Flag, document, path_of, run
from ._errors import BadInputError
from ._model import Model, ModelLike
from ._progress import ProgressOption
from ._scratch import delete, fresh, shown

if TYPE_CHECKING:
    import pandas
    import polars

Frame = Union["pandas.DataFrame", "polars.DataFrame", pa.Table, str, "os.PathLike[str]"]
"""Rows: a frame of pandas or polars, a table of pyarrow, or the path of a Parquet file or of a
folder of such files. Any other object with __arrow_c_stream__ is a frame too."""

_NAMES = {"columns": "fields", "model-output": "output"}  # parameters of from_frame by flag, where the names differ

_SPLITS = ("train", "val", "test", "fresh")


class Dataset:
    """A dataset folder, or the folders of a window's days."""

    paths: tuple[str, ...]  # folders or their URLs, the oldest first
    document: dict[str, Any]  # facts, as shaver dataset inspect -o json prints them

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        self.paths = tuple(path_of(path, "the dataset", "a Dataset or the path of a folder; several folders are Dataset(first, second)") for path in paths)
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
        weight: str | None = None,
        fields: Sequence[str] | None = None,
        dense: Sequence[str] = (),
        dense_missing: float | Literal["mean"] | None = None,
        ids: Literal["local", "global"] | None = None,
        field_sizes: Sequence[int] | None = None,
        split: str | None = None,
        seed: int | None = None,
        labels: Literal["binary", "numbers"] | None = None,
        label_from: float | None = None,
        list: str | Mapping[str, int] | None = None,
        pad: str | Mapping[str, int] | None = None,
        list_pads: Literal["front", "end"] | None = None,
        long_lists: Literal["fail", "first", "last"] | None = None,
        min_count: int | None = None,
        vocabulary: DatasetLike | None = None,
        grow: bool = False,
        oov: str | int | None = None,
        share: str | Mapping[str, str] | None = None,
        on_bad_row: Literal["fail", "skip"] | None = None,
        model: ModelLike | None = None,
        out: str | os.PathLike[str] | None = None,
        progress: ProgressOption = None,
        **flags: Flag,
    ) -> Dataset:
        """Imports the rows of a frame.

        Without ``ids`` the columns have raw values, which get new ids or those of ``vocabulary``.
        With ``ids`` they have the ids with which the model was trained.

        Parameters
        ----------
        frame : pandas.DataFrame, polars.DataFrame, pyarrow.Table, path, or dict of these
            Rows, also as a Parquet file, a folder of such files, or any object with
            __arrow_c_stream__. A column whose cells are lists is a list of ids or values. A
            dict with the keys train, val, test and fresh has the rows of these splits.
        label : str
            Column of the label, or columns of several, separated by commas. The first label is always there.
        weight : str, optional
            Column that says how much a row counts, a number above 0.
        fields : sequence of str, optional
            Columns that are fields, in this order. By default they are all columns except the
            label and the dense inputs.
        dense : sequence of str, optional
            Columns of numbers, each NAME or NAME:RULE, such as "price:log1p".
        dense_missing : float or "mean", optional
            Number that replaces a missing number before the rule, or the mean of the split train.
        ids : {"local", "global"}, optional
            Scope of the ids in the columns: from 0 within their field, or from 0 over all fields.
        field_sizes : sequence of int, optional
            With ``ids``: numbers of features, one for each field. By default one more than the
            largest local id, if that is plausible.
        split : str, default "8:1:1" without val, test and fresh
            Ratio train:val:test[:fresh] in which rows are assigned to splits at random. A dict of
            frames has no default.
        seed : int, default 1
            Seed of the draw for ``split``.
        labels : {"binary", "numbers"}, default "binary"
            Form of the labels: 0 and 1, or numbers such as ratings.
        label_from : float, optional
            Smallest count that makes the label 1.
        list : dict of str to int, optional
            Lengths of the columns that are lists, such as {"history": 50}. By default those of
            ``model``.
        pad : dict of str to int, optional
            Local id that fills a list, by field. By default that of ``model``, or 0.
        list_pads : {"front", "end"}, optional
            Side on which lists are filled. By default that of ``model`` or ``vocabulary``, or the end.
        long_lists : {"fail", "first", "last"}, default "fail"
            What to do with a list that is too long: fail, or keep its first or its last values.
        min_count : int, default 2
            Raw values: number of rows in which a value must occur to get an id of its own.
        vocabulary : Dataset or path, optional
            Raw values: dataset whose ids to use, or a mapper as .csv, .json, .parquet or .arrow.
        grow : bool, default False
            With ``vocabulary``: values that it lacks get the next ids.
        oov : int or str, optional
            Id of values that a mapper lacks. By default the last one, or __OOV__ of FuxiCTR.
        share : dict of str to str, optional
            Raw values: fields that have the values and ids of another field, such as
            {"history": "item"}. By default those that read one table of ``model``.
        on_bad_row : {"fail", "skip"}, default "fail"
            What to do with a malformed row: fail, or skip it and count it.
        model : Model, path, state dict or torch.nn.Module, optional
            Model whose fields, sizes and lists the dataset must have.
        out : path, optional
            New folder. Without it the dataset lives as long as the process.
        progress : bool or callable, optional
            Whether to show the progress, or a function that is called with each Progress.
        **flags
            Other flags of ``shaver dataset import parquet``, or ``csv`` with ``ids``, such as
            memory="8GiB". ``python -m shaver dataset import parquet --help-all`` prints all of them.

        Returns
        -------
        Dataset
            Encoded rows in the splits train, val and test.
        """
        dense = [dense] if isinstance(dense, str) else [*dense]
        if isinstance(fields, str):
            raise BadInputError(f"fields: expected a list of columns, such as {fields.split(',')}")
        if ids is None and field_sizes is not None:
            raise BadInputError("field_sizes needs ids: raw values get new ids")
        if isinstance(vocabulary, Mapping):
            raise BadInputError("vocabulary is a dict: expected a Dataset or the path of a file, such as a JSON file with this dict")
        words: str | None = None
        if vocabulary is not None:
            words = vocabulary.paths[-1] if isinstance(vocabulary, Dataset) else path_of(vocabulary, "vocabulary", "a Dataset or the path of a file")
        frames = frame if isinstance(frame, Mapping) else {"train": frame}
        unknown = sorted(set(frames) - set(_SPLITS))
        if unknown or "train" not in frames:
            raise BadInputError(f"a dict of frames has the keys {', '.join(frames)}: expected train, val, test and fresh, at least train")
        folder = str(os.fspath(out)) if out is not None else str(fresh("dataset", "the dataset"))
        common: dict[str, Flag] = {
            "out": folder,
            "dense": dense or None,
            "dense_missing": dense_missing,
            "field_sizes": field_sizes,
            "seed": seed,
            "labels": labels,
            "label_from": label_from,
            "list": list,
            "pad": pad,
            "list_pads": list_pads,
            "long_lists": long_lists,
            "min_count": min_count,
            "vocabulary": words,
            "grow": grow or None,
            "oov": oov,
            "share": share,
            "on_bad_row": on_bad_row,
            **flags,
        }
        more = [*label.split(",")[1:], *([weight] if weight else [])]  # columns that are neither fields nor dense inputs
        known = None if model is None else Model.of(model)
        if known is not None:
            common |= known.flags
        if ids is None:
            if split is None and isinstance(frame, Mapping) and len(frames) == 1:
                split = "1:0:0"
            temporary = []
            parts = {}
            earlier = [] if dense or vocabulary is None else _dense_inputs(vocabulary)
            try:
                for name, part in frames.items():
                    parts[name], made = _raw_file(part, [label.split(",")[0], *more], fields, dense, earlier)
                    temporary += made
                run(
                    ["dataset", "import", "parquet"],
                    {"label": label, "weight": weight, "columns": fields, "split": split, **{name: parts.get(name) for name in _SPLITS[1:]}, **common},
                    paths=[parts["train"]],
                    names=_NAMES,
                    progress=progress,
                )
            finally:
                for path in temporary:
                    delete(path)
            return cls(folder)
        if split is None and not isinstance(frame, Mapping):
            split = "8:1:1"
        files = {}
        try:
            for name, part in frames.items():
                files[name] = _encoded_file(
                    part, [label.split(",")[0], *more], fields, dense, f"the frame {name}" if isinstance(frame, Mapping) else "the frame"
                )
            several = {"label": label if "," in label else None, "weight": weight}
            run(["dataset", "import", "csv"], {"ids": ids, "split": split, **several, **files, **common}, names=_NAMES, progress=progress)
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

    def _repr_html_(self) -> str:
        splits = [(split["name"], split["rows"], split.get("label_rate")) for split in self.document["splits"]]
        fields = [(field["name"], field["size"], field["seen"]) for field in self.document["fields"]]
        with_labels = all(rate is not None for _, _, rate in splits)
        head = ["split", "rows", "portion of label 1"] if with_labels else ["split", "rows"]
        return _html.page(
            "Dataset",
            f"{', '.join(map(shown, self.paths))}: {self.rows:,} rows, {len(self.fields)} fields",
            _html.table(head, [row[: len(head)] for row in splits]),
            _html.table(["field", "features", "features seen"], fields),
        )

    def __repr__(self) -> str:
        return f"Dataset({', '.join(map(shown, self.paths))}: {self.rows:,} rows, {len(self.fields)} fields)"


DatasetLike = Union[Dataset, str, "os.PathLike[str]"]
"""A Dataset, or the path or URL of a dataset folder."""


def _column(dense: str) -> str:
    """Returns the column of NAME, NAME=INPUT, NAME:RULE or NAME=INPUT:RULE."""
    return dense.partition(":")[0].partition("=")[0]


def _table(frame: object) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    library, kind = type(frame).__module__.partition(".")[0], type(frame).__name__
    if kind == "Series" and library in ("pandas", "polars"):
        raise BadInputError("the frame is a Series, expected a DataFrame: to_frame() makes one of a Series")
    if library == "pandas":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if library == "polars" and hasattr(frame, "to_arrow"):
        return frame.to_arrow()  # its stream has views of strings, which pyarrow casts in part only
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    raise BadInputError(f"the frame is a {kind}, expected a frame of pandas or polars, a table of pyarrow or a path")


def _selected(table: pa.Table, labels: Sequence[str], fields: Sequence[str] | None, dense: Sequence[str]) -> list[str]:
    """Returns the columns to import: the label, the fields, the dense inputs, and the others of labels."""
    numbers = [_column(text) for text in dense]
    if fields is None:
        fields = [name for name in table.column_names if name not in labels and name not in numbers]
    columns = [labels[0], *(name.partition("=")[0] for name in fields)]
    columns += [name for name in [*numbers, *labels[1:]] if name not in columns]
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise BadInputError(f"no column {missing[0]!r}: the columns are {', '.join(table.column_names)}")
    return columns


def _dense_inputs(vocabulary: DatasetLike) -> list[str]:
    """Returns the names of the dense inputs of an earlier dataset. A mapper has none."""
    if not isinstance(vocabulary, Dataset) and not Path(vocabulary).is_dir():
        return []
    return [each["name"] for each in Dataset.of(vocabulary).document.get("dense", [])]


def _raw_file(frame: object, labels: Sequence[str], fields: Sequence[str] | None, dense: Sequence[str], earlier: Sequence[str]) -> tuple[str, list[str]]:
    """Returns a file with the rows, and the files to be deleted. The file has those columns of
    earlier that the frame has."""
    if isinstance(frame, (str, os.PathLike)):
        return str(os.fspath(frame)), []
    table = _table(frame)
    columns = _selected(table, labels, fields, dense)
    columns += [name for name in earlier if name in table.column_names and name not in columns]
    table = table.select(columns)
    path = str(fresh("rows.arrow", "the frame"))
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 16)
    return path, [path]


def _encoded_file(frame: object, labels: Sequence[str], fields: Sequence[str] | None, dense: Sequence[str], content: str) -> str:
    """Writes encoded rows as CSV and returns the path. Messages call the frame content."""
    if isinstance(frame, (str, os.PathLike)):
        rows = pyarrow.dataset.dataset(str(os.fspath(frame)))
        columns = _selected(rows.schema.empty_table(), labels, fields, dense)
        batches = rows.to_batches(columns=columns)
    else:
        table = _table(frame)
        table = table.select(_selected(table, labels, fields, dense))
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
