"""The snapshots of a Delta table are imported with the rows that the library deltalake, or the test itself, says they have."""

from __future__ import annotations

import datetime
import json
import math
import os
import random
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import command, imported

deltalake = pytest.importorskip("deltalake")
pyroaring = pytest.importorskip("pyroaring")

Row = dict[str, Any]

HISTORIES = int(os.environ.get("SHAVER_HISTORIES", "6"))
TYPES = {
    "click": pa.int32(),
    "id": pa.int64(),
    "p": pa.string(),
    "d": pa.date32(),
    "s": pa.string(),
    "x": pa.float64(),
    "f": pa.float32(),
    "b": pa.bool_(),
    "at": pa.timestamp("us", "UTC"),
    "extra": pa.int16(),
    "l": pa.list_(pa.int64()),
}
MAPS = ("partitionValues", "configuration")  # fields of actions
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def text(value: Any) -> str:
    """The text of a value in a dataset."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else repr(value)
    if isinstance(value, datetime.datetime):
        whole = value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
        return whole + "+00:00"
    return str(value)


def holds(row: Row, column: str, operator: str, value: str) -> bool:
    """Whether the value of a row satisfies a condition, by the definition of --where."""
    have = text(row.get(column))
    if operator in ("=", "!=") and (not have or not value):
        return (have == value) == (operator == "=")
    if not have or not value:
        return False
    a: Any = float(have) if column in ("id", "x", "f") else have.encode()
    b: Any = float(value) if column in ("id", "x", "f") else value.encode()
    return bool({"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator])


def z85(data: bytes) -> str:
    words = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(Z85[word // 85**k % 85] for word in words for k in (4, 3, 2, 1, 0))


def structure(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


class History:
    """A random history of a table, first by deltalake and then by hand."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.folder = folder
        self.log = folder / "_delta_log"
        self.ids = 0
        self.columns = [c for c in TYPES if c != "extra"]
        self.versions: dict[int, list[Row]] = {}
        self.names: dict[int, dict[str, str]] = {}  # of columns, by version
        self.oldest = 0  # version that can be read
        self.partition: list[str] = self.draw.choice([[], ["p"], ["d", "p"], ["at"], ["b", "d"]])
        self.write(self.new_rows(40), "error")

    def row(self) -> Row:
        draw = self.draw
        self.ids += 1
        row: Row = {
            "click": draw.randint(0, 1),
            "id": self.ids,
            "p": draw.choice(["a/b", "x y", "é%", "plain", None, "=", "a:b"]),
            "d": draw.choice([None, datetime.date(2026, 1, draw.randint(1, 4))]),
            "s": draw.choice([None, "", f"s{draw.randint(0, 30)}", "long" * 20 + str(draw.randint(0, 3))]),
            "x": draw.choice([None, math.nan, draw.randint(-20, 20) / 4, draw.random()]),
            "f": draw.choice([None, draw.randint(-9, 9) / 8]),
            "b": draw.choice([None, True, False]),
            "at": draw.choice([None, EPOCH + datetime.timedelta(days=20000, microseconds=draw.randint(0, 3) * 1001)]),
            "extra": draw.choice([None, draw.randint(-5, 5)]),
            "l": draw.choice([None, [], [1, 2]]),
        }
        return {c: row[c] for c in self.columns}

    def new_rows(self, most: int) -> list[Row]:
        return [self.row() for _ in range(self.draw.randint(1, most))]

    def arrow(self, rows: Iterable[Row]) -> pa.Table:
        return pa.Table.from_pylist(list(rows), pa.schema([(c, TYPES[c]) for c in self.columns]))

    @property
    def newest(self) -> int:
        return max(self.versions)

    @property
    def table(self) -> Any:
        return deltalake.DeltaTable(self.folder)

    def record(self) -> None:
        table = self.table
        self.versions[table.version()] = table.to_pyarrow_table().to_pylist()
        self.names[table.version()] = {c: c for c in TYPES}

    def write(self, rows: list[Row], mode: str, **options: Any) -> None:
        deltalake.write_deltalake(self.folder, self.arrow(rows), mode=mode, partition_by=self.partition or None, **options)
        self.record()

    def step(self) -> None:
        """Does one thing with deltalake."""
        table, draw = self.table, self.draw
        new = self.new_rows(25)
        k = draw.randint(1, self.ids)
        some = draw.choice([f"id < {k}", f"id % 3 = {k % 3}", "p = 'plain'", "d = '2026-01-02'", "s is null", "b"])

        def overwrite_part() -> None:
            if self.partition[:1] == ["p"]:
                self.write([{**row, "p": "plain"} for row in new], "overwrite", predicate="p = 'plain'")

        def merge() -> None:
            for row in new[:5]:
                row["id"] = draw.randint(1, self.ids)
            source = self.arrow({row["id"]: row for row in new}.values())
            m = table.merge(source, "s.id = t.id", source_alias="s", target_alias="t")
            m.when_matched_update_all().when_not_matched_insert_all().execute()

        def evolve() -> None:
            if "extra" not in self.columns:
                self.columns.append("extra")
                self.write(self.new_rows(5), "append", schema_mode="merge")

        def vacuum() -> None:
            table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
            self.oldest = self.table.version()

        def clean() -> None:
            table.create_checkpoint()
            self.clean()

        appends: list[Callable[[], Any]] = [lambda: self.write(new, "append")] * 4
        steps = [
            *appends,
            lambda: self.write(new, "overwrite"),
            overwrite_part,
            lambda: table.delete(some),
            lambda: table.update(predicate=some, updates={"x": "0.5", "s": "'new'"}),
            merge,
            table.optimize.compact,
            lambda: table.optimize.z_order(["id"]),
            evolve,
            table.create_checkpoint,
            clean,
            vacuum,
        ]
        draw.choice(steps)()
        self.record()

    def clean(self) -> None:
        """Deletes commits before the newest version, which has a checkpoint."""
        for path in self.log.glob("*.json"):
            if path.stem.isdigit() and int(path.stem) < self.newest and self.draw.random() < 0.9:
                path.unlink()
                self.oldest = self.newest

    def by_hand(self) -> None:
        """Does what deltalake cannot do. It cannot read the table from here on."""
        self.live: dict[str, Row] = {}  # the actions add
        self.meta: Row = {}
        self.mode = "none"
        self.deleted: dict[str, list[int]] = {}  # positions of deleted rows, by file
        self.files: dict[str, dict[str, str]] = {}  # names of the columns of files that append wrote
        for action in self.actions():
            self.meta = action.get("metaData") or self.meta
            if action.get("remove"):
                self.live.pop(action["remove"]["path"], None)
            if action.get("add"):
                self.live[action["add"]["path"]] = {k: v for k, v in action["add"].items() if v is not None}
        for _ in range(self.draw.randint(1, 6)):
            self.draw.choice([self.delete_rows, self.delete_rows, self.map_columns, self.append, self.checkpoint])()

    def actions(self) -> Iterable[Row]:
        start = -1
        for path in sorted(self.log.glob("*.checkpoint.parquet"))[-1:]:
            start = int(path.name[:20])
            for row in pq.read_table(path).to_pylist():
                for kind in ("add", "metaData"):
                    if row[kind] is not None:
                        fields = {k: v for k, v in row[kind].items() if k not in ("tags", "format")}
                        yield {kind: {k: dict(v) if k in MAPS else v for k, v in fields.items()}}
        for path in sorted(self.log.glob("*.json")):
            if path.stem.isdigit() and int(path.stem) > start:
                yield from map(json.loads, path.read_text().splitlines())

    def commit(self, rows: list[Row], *actions: Row) -> None:
        version = self.newest + 1
        lines = [{"commitInfo": {"timestamp": 1}}, self.protocol(), *actions]
        (self.log / f"{version:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.versions[version] = rows
        self.names[version] = dict(self.names[version - 1])

    def protocol(self) -> Row:
        features = ["deletionVectors", "columnMapping", "timestampNtz", "v2Checkpoint"]
        return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}}

    def delete_rows(self) -> None:
        """Gives some files deletion vectors with more rows than before."""
        actions: list[Row] = []
        gone = set()
        for path in self.draw.sample(sorted(self.live), min(len(self.live), self.draw.randint(1, 3))):
            add = self.live[path]
            ids = pq.ParquetFile(self.folder / unquote(path)).read().column(self.files.get(path, {}).get("id", "id")).to_pylist()
            positions = set(self.draw.sample(range(len(ids)), self.draw.randint(1, len(ids)))) | set(self.deleted.get(path, ()))
            self.deleted[path] = sorted(positions)
            gone |= {ids[i] for i in positions}
            old = {k: add[k] for k in ("path", "deletionVector") if k in add}
            self.live[path] = {**add, "deletionVector": self.vector(sorted(positions))}
            both: list[Row] = [{"remove": {**old, "dataChange": True}}, {"add": self.live[path]}]
            self.draw.shuffle(both)
            actions += both
        self.commit([row for row in self.versions[self.newest] if row["id"] not in gone], *actions)

    def vector(self, rows: list[int]) -> Row:
        """Stores a deletion vector in one of the three ways, and returns its description."""
        data = struct.pack("<I", 1681511377) + pyroaring.BitMap64(rows).serialize()
        size = {"sizeInBytes": len(data), "cardinality": len(rows)}
        kind = self.draw.choice("iup")
        if kind == "i":
            return {"storageType": "i", "pathOrInlineDv": z85(data + b"\0" * (-len(data) % 4)), **size}
        name, prefix = uuid.UUID(int=self.draw.getrandbits(128)), self.draw.choice(["", "ab"])
        path = self.folder / prefix / f"deletion_vector_{name}.bin"
        path.parent.mkdir(exist_ok=True)
        before = b"\1" + b"x" * self.draw.randint(0, 9)
        path.write_bytes(before + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data)) + b"more")
        where = prefix + z85(name.bytes) if kind == "u" else self.draw.choice([str(path), f"file://{path}"])
        return {"storageType": kind, "pathOrInlineDv": where, "offset": len(before), **size}

    def map_columns(self) -> None:
        """Renames columns by column mapping. Their old names are those in the log and in files."""
        if self.mode == "none":
            self.mode = self.draw.choice(["name", "id"])
        schema = json.loads(self.meta["schemaString"])
        names: dict[str, str] = {}
        for i, field in enumerate(schema["fields"]):
            field["metadata"] = {"delta.columnMapping.id": i + 1, "delta.columnMapping.physicalName": (column := self.physical(field))}
            if column in ("s", "d"):
                field["name"] = f"{column} {self.newest}"
            names[column] = field["name"]
        partition = [names[c] for c in self.partition]
        self.meta = {**self.meta, "schemaString": json.dumps(schema), "partitionColumns": partition, "configuration": {"delta.columnMapping.mode": self.mode}}
        self.commit(self.versions[self.newest], {"metaData": self.meta})
        self.names[self.newest].update(names)

    def physical(self, field: Row) -> str:
        return str(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))

    def append(self) -> None:
        """Appends a file, whose columns have other names if they are found by their ids."""
        rows = self.new_rows(10)
        partition = {c: self.draw.choice(rows)[c] for c in self.partition}
        rows = [{**row, **partition} for row in rows]
        fields = json.loads(self.meta["schemaString"])["fields"]
        columns = [self.physical(f) for f in fields]
        inside = [c for c in columns if c not in partition]
        self.draw.shuffle(inside)
        names = {c: f"other {c}" if self.mode == "id" else c for c in inside}
        schema = pa.schema([pa.field(names[c], TYPES[c], metadata={"PARQUET:field_id": str(columns.index(c) + 1)}) for c in inside])
        path = f"part {len(self.live)}-{self.newest}.parquet"
        pq.write_table(pa.Table.from_pylist([{names[c]: row[c] for c in inside} for row in rows], schema), self.folder / path)
        quoted = quote(path)
        self.files[quoted] = names
        values = {c: None if v is None else str(v) for c, v in partition.items()}
        if values.get("b"):
            values["b"] = str(values["b"]).lower()
        if values.get("at"):
            values["at"] = partition["at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        known = [row["id"] for row in rows]
        stats = {"numRecords": len(rows), "minValues": {"id": min(known)}, "maxValues": {"id": max(known)}, "nullCount": {"id": 0}}
        self.live[quoted] = {"path": quoted, "partitionValues": values, "size": (self.folder / path).stat().st_size, "modificationTime": 1, "dataChange": True}
        self.live[quoted]["stats"] = json.dumps(stats)
        self.commit(self.versions[self.newest] + rows, {"add": self.live[quoted]})

    def checkpoint(self) -> None:
        """Writes a checkpoint in one of its forms."""
        self.commit(self.versions[self.newest])
        head: list[Row] = [self.protocol(), {"metaData": self.meta}]
        adds: list[Row] = [{"add": add} for add in self.live.values()] + [{"remove": {"path": "gone", "dataChange": True, "deletionTimestamp": 1}}]
        name = f"{self.newest:020}.checkpoint"
        form = self.draw.choice(["classic", "parts", "json", "sidecars", "json sidecars"])
        if form == "classic":
            self.parquet(name + ".parquet", head + adds)
        elif form == "parts":
            everything = head + adds
            parts = self.draw.randint(2, 4)
            for i in range(parts):
                self.parquet(f"{name}.{i + 1:010}.{parts:010}.parquet", everything[i::parts])
        else:
            if form != "json":
                (self.log / "_sidecars").mkdir(exist_ok=True)
                for i in range(2):
                    side = f"{uuid.UUID(int=self.draw.getrandbits(128))}.parquet"
                    self.parquet("_sidecars/" + side, adds[i::2])
                    head.append({"sidecar": {"path": side, "sizeInBytes": 1, "modificationTime": 1}})
                adds = []
            head.insert(0, {"checkpointMetadata": {"version": self.newest}})
            name += f".{uuid.UUID(int=self.draw.getrandbits(128))}"
            if form == "sidecars":
                self.parquet(name + ".parquet", head)
            else:
                (self.log / (name + ".json")).write_text("".join(json.dumps(line) + "\n" for line in head + adds))
        self.clean()

    def parquet(self, name: str, actions: list[Row]) -> None:
        """Writes a part of a checkpoint, with statistics as text, as structures or not at all."""
        kept = {c: t for c, t in TYPES.items() if c not in ("click", "b", "l")}
        bounds, integer, string = structure(**kept), pa.int64(), pa.string()
        texts, strings = pa.map_(string, string), pa.list_(string)
        stats = structure(numRecords=integer, minValues=bounds, maxValues=bounds, nullCount=structure(**dict.fromkeys(kept, integer)))
        vector = structure(storageType=string, pathOrInlineDv=string, offset=pa.int32(), sizeInBytes=pa.int32(), cardinality=integer)
        kinds = {
            "add": structure(path=string, partitionValues=texts, size=integer, deletionVector=vector, stats=string, stats_parsed=stats),
            "remove": structure(path=string, deletionTimestamp=integer),
            "metaData": structure(id=string, schemaString=string, partitionColumns=strings, configuration=texts),
            "protocol": structure(minReaderVersion=pa.int32(), minWriterVersion=pa.int32(), readerFeatures=strings, writerFeatures=strings),
            "sidecar": structure(path=string, sizeInBytes=integer),
            "checkpointMetadata": structure(version=integer),
        }
        how = self.draw.choice(["text", "structures", "none"])

        def converted(action: Row) -> Row:
            action = {kind: {k: list(v.items()) if k in MAPS else v for k, v in of.items()} for kind, of in action.items()}
            if "add" in action and how != "text":
                text = action["add"].pop("stats", None)
                if text and how == "structures":
                    action["add"]["stats_parsed"] = parsed(json.loads(text))
            return action

        def parsed(values: Row) -> Row:
            for kind in ("minValues", "maxValues"):
                bound = values.get(kind, {})
                if "d" in bound:
                    bound["d"] = datetime.date.fromisoformat(bound["d"])
                if "at" in bound:
                    bound["at"] = datetime.datetime.fromisoformat(bound["at"].replace("Z", "+00:00"))
            return values

        table = pa.Table.from_pylist([converted(action) for action in actions], pa.schema(kinds))
        pq.write_table(table, self.log / name, row_group_size=self.draw.randint(1, 9))


def check(h: History, version: int, tmp_path: Path, condition: tuple[str, str, str] | None) -> None:
    """Compares the rows of an import with those of a version."""
    rows = [row for row in h.versions[version] if condition is None or holds(row, *condition)]
    names = h.names[version]
    columns = [c for c in TYPES if c not in ("click", "l") and any(c in row for row in h.versions[version])]
    flags = ["--at", str(version)] if version != h.newest or h.draw.random() < 0.5 else []
    if condition is not None:
        flags += ["--where", names[condition[0]] + condition[1] + condition[2]]
    want = sorted((text(row["click"]), *(text(row.get(c)) for c in columns)) for row in rows)
    if want:
        assert imported(h.folder, [names[c] for c in columns], tmp_path / "out", *flags) == want, (version, condition)
    else:
        command("dataset", "import", "parquet", h.folder, "--label", "click", "--out", tmp_path / "none", *flags, exit_code=42)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_history(seed: int, tmp_path: Path) -> None:
    h = History(tmp_path / "table", seed)
    for _ in range(h.draw.randint(1, 10)):
        h.step()
    if h.draw.random() < 0.7:
        h.by_hand()
    for version in h.versions:
        if version < h.oldest:
            continue
        check(h, version, tmp_path, None)
        if h.draw.random() < 0.5 and h.versions[version]:
            column = h.draw.choice(["id", "id", "p", "d", "s", "x", "f", "b", "at"])
            value = text(h.draw.choice(h.versions[version])[column])
            if not value.startswith("="):
                check(h, version, tmp_path, (column, h.draw.choice(["=", "!=", "<", "<=", ">", ">="]), value))
