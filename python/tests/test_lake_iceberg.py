"""The rows of Iceberg tables with random histories are those that pyiceberg reads. It does not read equality deletes, so after
these the rows are those that it read before, without the deleted ones."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import random
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import command, imported

pytest.importorskip("pyiceberg")
pytest.importorskip("pyiceberg_core")
pytest.importorskip("sqlalchemy")
pyroaring = pytest.importorskip("pyroaring")

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile, ManifestWriterV2
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform, MonthTransform, TruncateTransform, YearTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, DateType, DoubleType, FloatType, IntegerType, LongType, StringType, TimestampType, TimestamptzType

HISTORIES = int(os.environ.get("SHAVER_HISTORIES", "6"))
NUMBERS = (IntegerType, LongType, FloatType, DoubleType)
MISSING = "\x00"  # the text of a missing value, where it differs from an empty one
PATH, POSITION = 2147483546, 2147483545  # field IDs of position deletes

Row = tuple[str, ...]
Column = tuple[str, Any]


def text(value: Any, single: bool = False) -> str:
    """Returns the text of a value. single says whether it is a float of 32 bits."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        if value != value or value == int(value):
            return "" if value != value else str(int(value))
        return np.format_float_positional(np.float32(value) if single else np.float64(value), trim="-")
    if isinstance(value, dt.datetime):
        fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
        return value.strftime("%Y-%m-%d %H:%M:%S") + fraction + ("+00:00" if value.tzinfo else "")
    return str(value)


def texts(table: pa.Table) -> list[Row]:
    """Returns the rows of a table."""
    columns = [[text(v, c.type == pa.float32()) for v in c.to_pylist()] for c in table.columns]
    return sorted(zip(*columns, strict=True))


def seen(rows: Iterable[Row]) -> list[Row]:
    """Returns rows as an import gives them."""
    return sorted(tuple(v.replace(MISSING, "") for v in row) for row in rows)


def holds(value: str, operator: str, constant: str, numeric: bool) -> bool:
    """Says whether a condition holds for a value, by the definition of --where."""
    if operator in ("=", "!=") and not (value and constant):
        return (value == constant) == (operator == "=")
    if not (value and constant):
        return False
    a: Any = float(value) if numeric else value.encode()
    b: Any = float(constant) if numeric else constant.encode()
    return {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]


def part_text(value: Any, transform: Any) -> str:
    """Returns the text of the value of a partition field."""
    if value is None:
        return ""
    if isinstance(transform, YearTransform):
        return str(1970 + value)
    if isinstance(transform, MonthTransform):
        return f"{1970 + value // 12}-{value % 12 + 1:02}"
    if isinstance(transform, DayTransform):
        return str(value if isinstance(value, dt.date) else dt.date(1970, 1, 1) + dt.timedelta(value))
    if isinstance(transform, HourTransform):
        return (dt.datetime(1970, 1, 1) + dt.timedelta(hours=value)).strftime("%Y-%m-%d-%H")
    return str(value)


class Deletes(_FastAppendFiles):
    """A commit of delete files, and of data files with them."""

    deletes: list[DataFile]

    def _manifests(self) -> list[ManifestFile]:
        manifests = super()._manifests()
        for spec, files in itertools.groupby(sorted(self.deletes, key=lambda f: f.spec_id), key=lambda f: f.spec_id):
            with DeleteManifest(self.spec(spec), self.schema(), self.new_manifest_output(), self._snapshot_id, "deflate") as writer:
                for file in files:
                    writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, sequence_number=None, data_file=file))
            manifests.append(writer.to_manifest_file())
        return manifests


class DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(3)  # has the fields of deletion vectors
        return AvroOutputFile[ManifestEntry](self._output_file, schema, "manifest_entry", schema, self._meta)

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class History:
    """A table with a random history."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder / f"history{seed}"
        self.folder.mkdir()
        self.catalog = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=f"file://{self.folder}")
        self.catalog.create_namespace("n")
        self.version = self.random.choice([1, 2, 2, 2])
        start = self.frame(
            [("click", IntegerType()), ("id", LongType()), ("user", StringType()), ("price", FloatType()), ("day", DateType()), ("time", TimestampType())], 0
        )
        properties = {"format-version": str(self.version)}
        if self.random.random() < 0.3:
            properties["write.manifest.compression-codec"] = self.random.choice(["deflate", "zstandard", "null"])
        if self.random.random() < 0.5:
            properties["write.parquet.row-group-limit"] = "3"
        self.table = self.catalog.create_table("n.t", start.schema, properties=properties)
        self.names = itertools.count()
        self.log: list[str] = []
        self.before: pa.Table | None = None  # an earlier state of the table
        if self.random.random() < 0.5:
            for _ in range(2):
                self.partition()

    @property
    def location(self) -> Path:
        return Path(self.table.location().removeprefix("file://"))

    def frame(self, columns: list[tuple[str, Any]], rows: int) -> pa.Table:
        """Returns random rows."""
        r = self.random
        makers: dict[type, tuple[pa.DataType, Callable[[], Any]]] = {
            IntegerType: (pa.int32(), lambda: r.randint(-3, 3)),
            LongType: (pa.int64(), lambda: r.choice([r.randint(-5, 5), 2**40 + r.randint(0, 2), -(2**55)])),
            StringType: (pa.string(), lambda: r.choice(["", "a", "ab", "b", "ä", "zebra" * 5, "zebra" * 5 + "!", "中文", "x y/z", "𐀀"])),
            FloatType: (pa.float32(), lambda: r.choice([0.1, 1.5, -2.0, 3.25, float("nan")])),
            DoubleType: (pa.float64(), lambda: r.choice([0.1, 1e-3, -2.0, 1 / 3, float("nan")])),
            BooleanType: (pa.bool_(), lambda: r.random() < 0.5),
            DateType: (pa.date32(), lambda: dt.date(2026, 11, 29) + dt.timedelta(r.choice([-800, -31, -1, 0, 1]))),
            TimestampType: (
                pa.timestamp("us"),
                lambda: dt.datetime(2026, 11, 29, 22, 59, 59, r.choice([0, 120, 500000])) + dt.timedelta(hours=r.randint(0, 30)),
            ),
            TimestamptzType: (
                pa.timestamp("us", "UTC"),
                lambda: dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone.utc) - dt.timedelta(hours=r.randint(0, 3), microseconds=r.randint(0, 1)),
            ),
        }
        arrays, names = [], []
        for name, kind in columns:
            arrow, make = makers[type(kind)]
            missing = 0.15 if name != "click" else 0
            values: list[Any] = [None if r.random() < missing else make() for _ in range(rows)]
            arrays.append(pa.array([v % 2 for v in values] if name == "click" else values, arrow))
            names.append(name)
        return pa.table(arrays, names)

    def columns(self) -> list[tuple[str, Any]]:
        return [(f.name, f.field_type) for f in self.table.schema().fields]

    def rows(self, snapshot: int | None = None) -> tuple[list[str], list[Row]]:
        """Returns the columns and the rows as pyiceberg reads them."""
        found = self.table.scan(snapshot_id=snapshot).to_arrow()
        return found.column_names, texts(found)

    def read(self, task: FileScanTask) -> list[Row]:
        """Returns the rows of one file as pyiceberg reads them."""
        return texts(ArrowScan(self.table.metadata, self.table.io, self.table.schema(), AlwaysTrue()).to_table([task]))

    # The steps of a history.

    def append(self) -> None:
        self.table.append(self.frame(self.columns(), self.random.randint(1, 12)))

    def add_files(self) -> None:
        """Adds a file without field IDs, whose columns are found by their names, now and after they are renamed."""
        path = self.location / "data" / f"{uuid.uuid4()}-added.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(self.frame(self.columns(), 1), path)
        self.table.add_files([f"file://{path}"])

    def condition(self) -> str:
        columns = [c for c in self.columns() if isinstance(c[1], (IntegerType, LongType, DateType, StringType))]
        name, kind = self.random.choice(columns)
        value = next(v for v in self.frame([("x", kind)], 100).column(0).to_pylist() if v is not None)
        literal = repr(value) if isinstance(value, int) else f"'{value}'"
        return f"{name} {self.random.choice(['==', '<', '>=', '!='])} {literal}"

    def delete(self) -> None:
        self.table.delete(self.condition())

    def overwrite(self) -> None:
        self.table.overwrite(self.frame(self.columns(), self.random.randint(1, 6)), overwrite_filter=self.condition())

    def upsert(self) -> None:
        frame = self.frame(self.columns(), 5)
        base = self.random.randint(0, 10**6)
        frame = frame.set_column(frame.column_names.index("id"), "id", pa.array([base + i for i in range(5)], pa.int64()))
        self.table.append(frame)
        changed = self.frame(self.columns(), 6)
        changed = changed.set_column(changed.column_names.index("id"), "id", pa.array([base + i + 2 for i in range(6)], pa.int64()))
        self.table.upsert(changed, join_cols=["id"])

    def add_column(self) -> None:
        kind = self.random.choice([IntegerType, LongType, StringType, FloatType, DoubleType, BooleanType, DateType, TimestampType, TimestamptzType])()
        with self.table.update_schema() as update:
            update.add_column(f"c{next(self.names)}", kind)

    def rename(self) -> None:
        name = self.random.choice([n for n, _ in self.columns() if n not in ("click", "id")])
        with self.table.update_schema() as update:
            update.rename_column(name, f"r{next(self.names)}")

    def drop(self) -> None:
        used = {f.source_id for spec in self.table.specs().values() for f in spec.fields}
        names = [f.name for f in self.table.schema().fields if f.name not in ("click", "id") and f.field_id not in used]
        if len(names) > 1:
            with self.table.update_schema() as update:
                update.delete_column(self.random.choice(names))

    def reuse(self) -> None:
        """Drops a column and adds one of its name, which has other values."""
        used = {f.source_id for spec in self.table.specs().values() for f in spec.fields}
        names = [f.name for f in self.table.schema().fields if f.name[0] in "cr" and f.name != "click" and f.field_id not in used]
        if names and "add_files" not in self.log:
            name = self.random.choice(names)
            with self.table.update_schema(allow_incompatible_changes=True) as update:
                update.delete_column(name)
            with self.table.update_schema() as update:
                update.add_column(name, StringType())

    def reorder(self) -> None:
        with self.table.update_schema() as update:
            update.move_first(self.random.choice(self.columns())[0])

    def widen(self) -> None:
        wider: dict[Any, Any] = {IntegerType: LongType, FloatType: DoubleType}
        names = [(n, wider[type(k)]()) for n, k in self.columns() if type(k) in wider and n != "click"]
        if names:
            with self.table.update_schema() as update:
                update.update_column(*self.random.choice(names))

    def partition(self) -> None:
        spec = self.table.spec()
        used = {f.source_id for f in spec.fields}
        name, kind = self.random.choice([(f.name, f.field_type) for f in self.table.schema().fields if f.field_id not in used])
        transforms: list[Any] = [IdentityTransform()] if not isinstance(kind, (FloatType, DoubleType)) else []
        if isinstance(kind, (IntegerType, LongType, StringType)):
            transforms += [BucketTransform(3), TruncateTransform(2)]
        if isinstance(kind, (DateType, TimestampType, TimestamptzType)):
            transforms += [DayTransform(), MonthTransform(), YearTransform(), BucketTransform(2)]
        if isinstance(kind, (TimestampType, TimestamptzType)):
            transforms += [HourTransform()]
        with self.table.update_spec() as update:
            if spec.fields and self.random.random() < 0.4:
                update.remove_field(self.random.choice(spec.fields).name)
            elif transforms:
                update.add_field(name, self.random.choice(transforms), f"p{next(self.names)}")

    def expire(self) -> None:
        ids = [s.snapshot_id for s in self.table.snapshots()][:-1]
        if len(ids) > 2:
            self.table.maintenance.expire_snapshots().by_ids(ids[:2]).commit()

    def tasks(self) -> list[FileScanTask]:
        return list(self.table.scan().plan_files())

    def commit(self, deletes: list[DataFile], data: pa.Table | None = None) -> None:
        """Adds delete files, and in the same snapshot data files."""
        with self.table.transaction() as transaction:
            producer = Deletes(operation=Operation.OVERWRITE, transaction=transaction, io=self.table.io)
            producer.deletes = deletes
            if data is not None:
                for file in _dataframe_to_data_files(table_metadata=self.table.metadata, df=data, io=self.table.io):
                    producer.append_data_file(file)
            producer.commit()
        self.table = self.catalog.load_table("n.t")

    def delete_file(self, content: DataFileContent, rows: pa.Table, partition: Any, spec: int, **more: Any) -> DataFile:
        path = self.location / "data" / f"{uuid.uuid4()}-deletes.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(rows, path)
        return self.file(content, FileFormat.PARQUET, path, rows.num_rows, partition, spec, **more)

    def file(self, content: DataFileContent, form: FileFormat, path: Path, rows: int, partition: Any, spec: int, **more: Any) -> DataFile:
        made = DataFile.from_args(
            _table_format_version=3,
            content=content,
            file_path=f"file://{path}",
            file_format=form,
            partition=partition,
            record_count=rows,
            file_size_in_bytes=path.stat().st_size,
            **more,
        )
        made.spec_id = spec
        return made

    def delete_positions(self) -> None:
        """Deletes rows by position, in one file for each partition, or by deletion vectors."""
        if self.version == 1:
            return
        tasks = [t for t in self.tasks() if t.file.record_count > 0 and self.random.random() < 0.7]
        files: list[DataFile] = []
        vectors = self.random.random() < 0.4
        groups: dict[Any, list[Any]] = {}
        for task in tasks:
            data = task.file
            chosen = sorted(self.random.sample(range(data.record_count), self.random.randint(1, data.record_count)))
            if any(d.file_format == FileFormat.PUFFIN for d in task.delete_files):
                continue  # a file has one vector, and no position deletes after it
            if vectors:
                files.append(self.vector(data, set(chosen) | self.deleted(task)))
            else:
                key = (data.spec_id, repr(data.partition))
                groups.setdefault(key, [data]).extend((data.file_path, i) for i in chosen)
        for data, *positions in groups.values():
            names = pa.schema([with_id("file_path", pa.string(), PATH), with_id("pos", pa.int64(), POSITION)])
            frame = pa.table([[p for p, _ in sorted(positions)], [i for _, i in sorted(positions)]], schema=names)
            files.append(self.delete_file(DataFileContent.POSITION_DELETES, frame, data.partition, data.spec_id))
        if files:
            self.commit(files)

    def deleted(self, task: FileScanTask) -> set[int]:
        """Returns the positions that position delete files delete of a data file. A vector has them too."""
        found: set[int] = set()
        for file in task.delete_files:
            if file.file_format == FileFormat.PARQUET:
                frame = pq.read_table(file.file_path.removeprefix("file://"))
                found |= {i for p, i in zip(*frame.to_pydict().values(), strict=True) if p == task.file.file_path}
        return found

    def vector(self, data: DataFile, positions: set[int]) -> DataFile:
        """Writes a deletion vector in a Puffin file."""
        bitmap = pyroaring.BitMap(positions)
        if self.random.random() < 0.5:
            bitmap.run_optimize()
        body = b"\xd1\xd3\x39\x64" + struct.pack("<QI", 1, 0) + bitmap.serialize()
        blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        properties = {"referenced-data-file": data.file_path, "cardinality": str(len(positions))}
        described = {
            "type": "deletion-vector-v1",
            "fields": [],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": 4,
            "length": len(blob),
            "properties": properties,
        }
        payload = json.dumps({"blobs": [described]}).encode()
        path = self.location / "data" / f"{uuid.uuid4()}.puffin"
        path.write_bytes(b"PFA1" + blob + b"PFA1" + payload + struct.pack("<iI", len(payload), 0) + b"PFA1")
        return self.file(
            DataFileContent.POSITION_DELETES,
            FileFormat.PUFFIN,
            path,
            len(positions),
            data.partition,
            data.spec_id,
            referenced_data_file=data.file_path,
            content_offset=4,
            content_size_in_bytes=len(blob),
            # pyiceberg finds the data file by these.
            lower_bounds={PATH: data.file_path.encode()},
            upper_bounds={PATH: data.file_path.encode()},
        )

    def delete_equal(self, expected: list[Row] | None) -> list[Row]:
        """Deletes rows by their values, and returns those that are left. expected has the rows before if pyiceberg cannot read them."""
        everywhere = [s.spec_id for s in self.table.specs().values() if not s.fields]
        tasks = self.tasks() if expected is None else []
        fields = [f for f in self.table.schema().fields if f.name != "click"]
        keys = self.random.sample(fields, min(len(fields), self.random.choice([1, 1, 2])))
        if tasks and (not everywhere or self.random.random() < 0.5):
            target = self.random.choice(tasks).file
            spec, partition = target.spec_id, target.partition
        elif everywhere:
            spec, partition = everywhere[0], Record()
        else:
            return self.rows()[1] if expected is None else expected
        some = self.frame([(f.name, f.field_type) for f in keys], 3)
        if self.before is not None and self.before.num_rows > 0 and all(f in self.before.schema for f in some.schema):
            chosen = [self.random.randrange(self.before.num_rows) for _ in range(3)]
            some = pa.concat_tables([some, self.before.select(some.column_names).take(chosen)])
        gone = set(texts(some))
        names = [f.name for f in self.table.schema().fields]
        at = [names.index(f.name) for f in keys]
        left: list[Row] = []
        for rows, there in (
            [(expected, True)]
            if expected is not None
            else [(self.read(t), spec in everywhere or (t.file.spec_id, t.file.partition) == (spec, partition)) for t in tasks]
        ):
            left += [row for row in rows if not (there and tuple(row[i] for i in at) in gone)]
        data = None
        if self.random.random() < 0.5:  # as an upsert of Flink
            data = self.frame(self.columns(), 3)
            left += texts(data)
        schema = pa.schema([with_id(f.name, some.schema.field(f.name).type, f.field_id) for f in keys])
        file = self.delete_file(
            DataFileContent.EQUALITY_DELETES, pa.table(some.columns, schema=schema), partition, spec, equality_ids=[f.field_id for f in keys]
        )
        self.commit([file], data)
        return sorted(left)

    def step(self) -> None:
        steps = (
            [self.append] * 4
            + [self.add_files] * 2
            + [self.delete_positions] * 3
            + [self.delete, self.overwrite, self.upsert, self.add_column, self.rename, self.drop, self.reuse]
        )
        steps += [self.reorder, self.widen, self.partition, self.partition, self.expire]
        step = self.random.choice(steps)
        try:
            step()
            self.log.append(step.__name__)
        except (NotImplementedError, ValueError, TypeError, OSError, pa.ArrowException) as e:  # pyiceberg refuses some combinations
            self.log.append(f"{step.__name__}: {type(e).__name__} {str(e)[:200]}")
        self.table = self.catalog.load_table("n.t")


def with_id(name: str, kind: pa.DataType, field: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(field)})


def compare(h: History, names: list[str], want: list[Row], out: Path, at: int | None = None, where: Iterable[tuple[str, str, str]] = ()) -> None:
    """Compares the rows of an import with those that it should have."""
    columns = [n for n in names if n != "click"]
    order = [names.index("click"), *map(names.index, columns)]
    flags = [*(["--at", str(at)] if at is not None else []), *(flag for c in where for flag in ("--where", "".join(c)))]
    if not want:
        command("dataset", "import", "parquet", h.location, "--label", "click", "--out", out, *flags, exit_code=42)
        return
    rows = imported(h.location, columns, out, *flags)
    assert rows == seen(tuple(row[i] for i in order) for row in want), (at, where, h.log)


def conditions(h: History, names: list[str], rows: list[Row], out: Path) -> None:
    """Compares the rows for which random conditions hold."""
    kinds = dict(h.columns())
    for _ in range(3):
        chosen = [
            (n, h.random.choice(["=", "!=", "<", "<=", ">", ">="]), h.random.choice(seen(rows))[names.index(n)])
            for n in h.random.sample(names, h.random.choice([1, 2]))
        ]
        left = [row for row in seen(rows) if all(holds(row[names.index(n)], o, v, isinstance(kinds[n], NUMBERS)) for n, o, v in chosen)]
        compare(h, names, left, out, where=chosen)


def parts(h: History, names: list[str], out: Path) -> None:
    """Compares the rows of files that conditions on partition fields choose."""
    tasks = h.tasks()
    for i, field in enumerate(h.table.spec().fields):
        transform = field.transform
        if isinstance(transform, IdentityTransform) or any(t.file.spec_id != h.table.spec().spec_id for t in tasks):
            continue
        value = part_text(h.random.choice(tasks).file.partition[i], transform)
        if value != value.strip() or str(transform) == "void":
            continue
        left = [row for t in tasks if part_text(t.file.partition[i], transform) == value for row in h.read(t)]
        compare(h, names, left, out, where=[(field.name, "=", value)])


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_history(seed: int, tmp_path: Path) -> None:
    h, out = History(seed, tmp_path), tmp_path / "out"
    h.append()
    for _ in range(h.random.randint(4, 20)):
        h.step()
        if h.random.random() < 0.3:
            h.before = h.table.scan().to_arrow()
    names, rows = h.rows()
    compare(h, names, rows, out)
    for snapshot in h.random.sample(h.table.snapshots(), min(2, len(h.table.snapshots()))):
        compare(h, *h.rows(snapshot.snapshot_id), out, at=snapshot.snapshot_id)
    if rows:
        conditions(h, names, rows, out)
        parts(h, names, out)
    if h.version == 1:
        return
    left: list[Row] | None = None
    for _ in range(h.random.randint(1, 3)):
        left = h.delete_equal(left)
        compare(h, names, left, out)
        if h.random.random() < 0.5:
            frame = h.frame(h.columns(), 4)
            h.table.append(frame)
            left = sorted(left + texts(frame))
    if left:
        conditions(h, names, left, out)
