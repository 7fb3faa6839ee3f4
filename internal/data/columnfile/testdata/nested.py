"""Writes nested.parquet, whose row i nested_test.go computes in the same way. Usage: nested.py, with pyarrow."""
import datetime
import decimal
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

structure = pa.struct([
    ("path", pa.string()), ("size", pa.int64()), ("amount", pa.decimal128(20, 2)), ("values", pa.map_(pa.string(), pa.string())),
    ("parsed", pa.struct([("day", pa.date32()), ("price", pa.float64()), ("at", pa.timestamp("us", "UTC"))])),
])
pair = pa.struct([("x", pa.bool_()), ("y", pa.list_(pa.int32()))])
schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("add", structure), ("names", pa.list_(pa.string())), ("pairs", pa.list_(pair)), ("other", pa.string())])


def row(i):
    add = None
    if i % 3:
        add = {"path": f"p{i % 5}", "size": i, "amount": decimal.Decimal(i), "values": None if i % 4 == 0 else {f"k{k}": None if k == 2 else str(k) for k in range(i % 4)}}
        add["parsed"] = None if i % 5 == 0 else {"day": datetime.date(2026, 1, 1) + datetime.timedelta(i % 7), "price": i / 2, "at": None if i % 2 else datetime.datetime(2026, 1, 1, 0, 0, i % 60, 5000)}
    names = None if i % 7 == 0 else [None if k == 1 else f"n{k}" for k in range(i % 7 - 1)]
    pairs = [None if k == 3 else {"x": bool(k % 2), "y": None if k == 1 else list(range(k))} for k in range(i % 5)]
    return {"id": i, "add": add, "names": names, "pairs": pairs, "other": "x"}


table = pa.Table.from_pylist([row(i) for i in range(1300)], schema)
pq.write_table(table, pathlib.Path(__file__).with_name("nested.parquet"), row_group_size=1200, compression="zstd", store_schema=False)
