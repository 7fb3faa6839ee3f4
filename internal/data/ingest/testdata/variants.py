#!/usr/bin/env python3
"""Writes small files with pandas, polars, pyarrow and DuckDB, and what an import must make of each.

The files are in the folder variants, and variants.json has an entry for each: the files to
import, and either the fields and rows or a part of the error. variants_test.go imports them.
An entry without "columns" imports all columns.

    pip install pandas polars pyarrow duckdb && python3 variants.py
"""

import datetime as dt
import decimal
import json
import os
import shutil
import warnings
import zipfile

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq

warnings.simplefilter("ignore")
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "variants")
entries = []

LABEL = [0, 1, 0, 1, 1, 0]
WORD = ["red", "blue", "red", "grün, hell", 'a "b" c', "a value of more than twelve bytes"]
NUMBER = [3, None, 0, -7, 12, 3]
TEXT = ["3", "", "0", "-7", "12", "3"]  # of NUMBER


def path(name):
    out = os.path.join(FOLDER, name)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    return out


def good(name, fields, *columns, files=None, label=LABEL, **more):
    """The import of name gives the fields with these columns of strings."""
    rows = [[str(y), *values] for y, *values in zip(label, *columns, strict=True)]
    entries.append({"name": name, "files": files or [name], "fields": fields, "rows": rows, **more})


def bad(name, error, files=None, **more):
    """The import of name is refused, and the error has this part."""
    entries.append({"name": name, "files": files or [name], "error": error, **more})


def frame(**columns):
    return pd.DataFrame({"label": LABEL, "word": WORD, **columns})


def table(**columns):
    return pa.table({"label": LABEL, "word": WORD, **columns})


def polar(**columns):
    return pl.DataFrame({"label": LABEL, "word": WORD, **columns})


def text(name, content):
    with open(path(name), "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())


def csv_of_pandas():
    numbers = frame(number=NUMBER)  # NUMBER becomes 3.0, NaN, 0.0, ...
    words = ["word", "number"]
    numbers.to_csv(path("pandas.csv"), index=False)
    good("pandas.csv", words, WORD, TEXT)
    numbers.astype({"number": "Int64"}).to_csv(path("pandas-nullable.csv"), index=False)
    good("pandas-nullable.csv", words, WORD, TEXT)
    numbers.to_csv(path("pandas-crlf.csv"), index=False, lineterminator="\r\n")
    good("pandas-crlf.csv", words, WORD, TEXT)
    numbers.to_csv(path("pandas-cr.csv"), index=False, lineterminator="\r")
    bad("pandas-cr.csv", 'pandas-cr.csv:1: the lines end with carriage returns only, expected "\\n" or "\\r\\n"')
    numbers.to_csv(path("pandas-bom.csv"), index=False, encoding="utf-8-sig")
    good("pandas-bom.csv", words, WORD, TEXT)
    numbers.to_csv(path("pandas-utf16.csv"), index=False, encoding="utf-16")
    bad("pandas-utf16.csv", "pandas-utf16.csv:1: NUL byte (is this text in UTF-8?)")
    numbers.to_csv(path("pandas-latin1.csv"), index=False, encoding="latin-1")
    bad("pandas-latin1.csv", r'pandas-latin1.csv:5: column 1 (word): "gr\xfcn, hell" is not UTF-8')
    numbers.to_csv(path("pandas-quoted.csv"), index=False, quoting=1)
    good("pandas-quoted.csv", words, WORD, TEXT)
    numbers.to_csv(path("pandas-escaped.csv"), index=False, doublequote=False, escapechar="\\")
    bad("pandas-escaped.csv", "pandas-escaped.csv:6: ")
    numbers.to_csv(path("pandas-semicolon.csv"), index=False, sep=";")
    bad("pandas-semicolon.csv", "pandas-semicolon.csv:1: 1 column, expected a label and at least one field, separated by commas or tabs")
    numbers.to_csv(path("pandas-pipe.csv"), index=False, sep="|")
    bad("pandas-pipe.csv", "pandas-pipe.csv:1: 1 column, expected")
    numbers.to_csv(path("pandas.tsv"), index=False, sep="\t")
    bad("pandas.tsv", 'pandas.tsv:6: column 1 (word): "\\"a \\"\\"b\\"\\" c\\"" is quoted as in CSV, but values separated by tabs have no quotes')
    numbers[["label", "number"]].to_csv(path("pandas-numbers.tsv"), index=False, sep="\t")
    good("pandas-numbers.tsv", ["number"], TEXT)
    numbers.to_csv(path("pandas-quoted.tsv"), index=False, sep="\t", quoting=1)
    bad("pandas-quoted.tsv", "pandas-quoted.tsv:1: the header is quoted as in CSV")
    numbers.to_csv(path("pandas-index.csv"))
    bad("pandas-index.csv", "pandas-index.csv:1: column 1 of 4 has no name: name it, or choose the columns that are fields")
    good("pandas-index-chosen.csv", ["word"], WORD, files=["pandas-index.csv"], columns=["word"])
    good("pandas-index-named.csv", ["index", "word"], list("012345"), WORD, files=["pandas-index.csv"], columns=["=index", "word"])
    numbers.to_csv(path("pandas.csv.gz"), index=False, compression={"method": "gzip", "mtime": 0})
    good("pandas.csv.gz", words, WORD, TEXT)
    with pa.output_stream(path("pandas.csv.zst"), compression="zstd") as out:
        numbers.to_csv(out, index=False)
    good("pandas.csv.zst", words, WORD, TEXT)
    numbers.to_csv(path("pandas.csv.bz2"), index=False)
    bad("pandas.csv.bz2", "pandas.csv.bz2: the file is compressed with bzip2, expected text, gzip or zstd")
    numbers.to_csv(path("pandas.csv.xz"), index=False)
    bad("pandas.csv.xz", "pandas.csv.xz: the file is compressed with xz, expected text, gzip or zstd")
    with zipfile.ZipFile(path("pandas.csv.zip"), "w") as out:
        out.writestr(zipfile.ZipInfo("pandas.csv"), numbers.to_csv(index=False))
    bad("pandas.csv.zip", "pandas.csv.zip: the file is compressed with zip, expected text, gzip or zstd")
    numbers.to_csv(path("pandas-na.csv"), index=False, na_rep="NA")  # only an empty cell is a missing value
    good("pandas-na.csv", words, WORD, ["3", "NA", "0", "-7", "12", "3"])
    numbers.astype({"label": "float"}).to_csv(path("pandas-float-label.csv"), index=False)
    good("pandas-float-label.csv", words, WORD, TEXT)
    numbers.astype({"label": "bool"}).to_csv(path("pandas-bool-label.csv"), index=False)
    good("pandas-bool-label.csv", words, WORD, TEXT)
    numbers.assign(label=[0, 1, None, 1, 1, 0]).to_csv(path("pandas-missing-label.csv"), index=False)
    bad("pandas-missing-label.csv", 'pandas-missing-label.csv:4: the label is missing, expected 0 or 1')
    numbers.assign(label=[0, 1, .5, 1, 1, 0]).to_csv(path("pandas-half-label.csv"), index=False)
    bad("pandas-half-label.csv", 'pandas-half-label.csv:4: label is "0.5", expected 0 or 1')
    times = frame(day=pd.to_datetime(["2024-01-02"] * 5 + [None]), at=pd.to_datetime(["2024-01-02 03:04:05"] * 5 + [None]), rating=[.5, 4, None, 3.5, -0.0, 2])
    times.to_csv(path("pandas-times.csv"), index=False)
    good("pandas-times.csv", ["word", "day", "at", "rating"], WORD, ["2024-01-02"] * 5 + [""], ["2024-01-02 03:04:05"] * 5 + [""], ["0.5", "4", "", "3.5", "0", "2"])
    lines = frame(number=NUMBER).assign(word=["a\nb"] + WORD[1:])
    lines.to_csv(path("pandas-lines.csv"), index=False)
    good("pandas-lines.csv", words, ["a\r\nb".replace("\r", "")] + WORD[1:], TEXT)
    numbers.head(0).to_csv(path("pandas-empty.csv"), index=False)
    bad("pandas-empty.csv", "pandas-empty.csv: the file has a header and no rows")


def csv_of_others():
    words = ["word", "number"]
    polar(number=NUMBER).write_csv(path("polars.csv"))
    good("polars.csv", words, WORD, TEXT)
    polar(number=pl.Series(NUMBER, dtype=pl.Float64), flag=[True, False, None] * 2).write_csv(path("polars-float.csv"), include_bom=True)
    good("polars-float.csv", words + ["flag"], WORD, TEXT, ["true", "false", ""] * 2)
    polar(number=NUMBER).with_columns(word=pl.Series(["", None, "x", "y", "z", ""])).write_csv(path("polars-empty.tsv"), separator="\t")
    bad("polars-empty.tsv", 'polars-empty.tsv:2: column 1 (word): "\\"\\"" is quoted as in CSV')
    pa.csv.write_csv(table(number=pa.array(NUMBER)), path("pyarrow.csv"))
    good("pyarrow.csv", words, WORD, TEXT)
    con.execute(f"COPY (SELECT * FROM d) TO '{path('duckdb.csv')}'")
    good("duckdb.csv", words, WORD, TEXT)
    con.execute(f"COPY (SELECT label = 1 AS label, word, number::DOUBLE AS number FROM d) TO '{path('duckdb-quoted.csv.gz')}' (FORCE_QUOTE *)")
    good("duckdb-quoted.csv.gz", words, WORD, TEXT)
    con.execute(f"COPY (SELECT * FROM d) TO '{path('duckdb-noheader.csv')}' (HEADER false)")
    bad("duckdb-noheader.csv", 'duckdb-noheader.csv:1: no column "label" for the label')
    con.execute(f"COPY (SELECT * FROM d) TO '{path('duckdb-semicolon.csv')}' (DELIMITER ';')")
    bad("duckdb-semicolon.csv", "duckdb-semicolon.csv:1: 1 column, expected")


INSTANT = ["2024-01-02 03:04:05", "1969-12-31 23:59:59.5", "", "2024-01-02 03:04:05.25", "2024-01-02 00:00:00", "2024-01-02 03:04:05"]


def times(unit, zone=None):
    values = [dt.datetime.fromisoformat(x) if x else None for x in INSTANT]
    if unit == "s":
        values = [x and x.replace(microsecond=0) for x in values]
    if zone:
        values = [x and x.replace(tzinfo=dt.timezone.utc) for x in values]
    return pa.array(values, pa.timestamp(unit, zone))


def whole(texts):
    """The texts without fractions of a second."""
    return [x.split(".")[0] for x in texts]


def utc(texts):
    return [x and x + "+00:00" for x in texts]


INTEGERS = {"i8": ("int8", -100), "i16": ("int16", -30000), "i32": ("int32", -2**31), "i64": ("int64", -2**63),
            "u8": ("uint8", 200), "u16": ("uint16", 60000), "u32": ("uint32", 2**32 - 1), "u64": ("uint64", 2**64 - 1)}


def integers():
    columns = {name: pa.array([most, 0, None, 1, 2, 3], kind) for name, (kind, most) in INTEGERS.items()}
    return table(**columns), ["word", *columns], [WORD, *[[str(most), "0", "", "1", "2", "3"] for _, most in INTEGERS.values()]]


def clock_table():
    return table(
        s=times("s"), ms=times("ms"), us=times("us"), ns=times("ns"), utc=times("ms", "UTC"), berlin=times("us", "Europe/Berlin"),
        day=pa.array([19724, -1, None, 0, 19723, 19724], pa.date32()),
        day64=pa.array([86400000 * 19724, -86400000, None, 0, 86400000 * 19723, 86400000 * 19724], pa.date64()),
        t_s=pa.array([3661, 0, None, 1, 2, 86399], pa.time32("s")), t_ms=pa.array([3661500, 0, None, 1, 2000, 86399000], pa.time32("ms")),
        t_us=pa.array([3661500000, 0, None, 1, 2000000, 86399000000], pa.time64("us")),
        t_ns=pa.array([3661500000000, 0, None, 1, 2000000000, 86399000000000], pa.time64("ns")))


DAYS = ["2024-01-02", "1969-12-31", "", "1970-01-01", "2024-01-01", "2024-01-02"]
CLOCK = ["word", "s", "ms", "us", "ns", "utc", "berlin", "day", "day64", "t_s", "t_ms", "t_us", "t_ns"]
CLOCK_TEXTS = [
    WORD, whole(INSTANT), INSTANT, INSTANT, INSTANT, utc(INSTANT), utc(INSTANT), DAYS, DAYS,
    ["01:01:01", "00:00:00", "", "00:00:01", "00:00:02", "23:59:59"], ["01:01:01.5", "00:00:00", "", "00:00:00.001", "00:00:02", "23:59:59"],
    ["01:01:01.5", "00:00:00", "", "00:00:00.000001", "00:00:02", "23:59:59"], ["01:01:01.5", "00:00:00", "", "00:00:00.000000001", "00:00:02", "23:59:59"]]


FLOATS = [3.0, None, 0.1, -7.5, 1e20, float("nan")]
FLOAT_TEXTS = ["3", "", "0.1", "-7.5", "1e+20", ""]


def parquet_of_pyarrow():
    def write(name, t, **options):
        pq.write_table(t, path(name), **options)

    words = ["word", "number"]
    plain = table(number=pa.array(NUMBER))
    for codec in ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]:
        write(f"pyarrow-{codec}.parquet", plain, compression=codec)
        if codec == "lz4":
            bad(f"pyarrow-{codec}.parquet", 'is compressed with LZ4_RAW')
        else:
            good(f"pyarrow-{codec}.parquet", words, WORD, TEXT)
    write("pyarrow-v2.parquet", plain, data_page_version="2.0", version="2.6")
    good("pyarrow-v2.parquet", words, WORD, TEXT)
    write("pyarrow-checksum.parquet", plain, write_page_checksum=True, write_page_index=True)
    good("pyarrow-checksum.parquet", words, WORD, TEXT)
    write("pyarrow-delta.parquet", plain, use_dictionary=False, column_encoding={"label": "DELTA_BINARY_PACKED", "word": "DELTA_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED"})
    good("pyarrow-delta.parquet", words, WORD, TEXT)
    write("pyarrow-delta-length.parquet", plain, use_dictionary=False, column_encoding={"label": "PLAIN", "word": "DELTA_LENGTH_BYTE_ARRAY", "number": "PLAIN"})
    good("pyarrow-delta-length.parquet", words, WORD, TEXT)
    write("pyarrow-split.parquet", table(number=pa.array(FLOATS, pa.float64())), use_dictionary=["word"], use_byte_stream_split=["number"])
    bad("pyarrow-split.parquet", 'column "number": parquet: unsupported data encoding BYTE_STREAM_SPLIT')
    write("pyarrow-groups.parquet", plain, row_group_size=2)
    good("pyarrow-groups.parquet", words, WORD, TEXT)
    write("pyarrow-empty.parquet", plain.slice(0, 0))
    bad("pyarrow-empty.parquet", "pyarrow-empty.parquet: the file has no rows")
    write("pyarrow-dictionary.parquet", table(number=pa.array(NUMBER)).set_column(1, "word", pa.array(WORD).dictionary_encode()))
    good("pyarrow-dictionary.parquet", words, WORD, TEXT)
    for kind in ["large_string", "string_view", "binary", "large_binary", "binary_view"]:
        write(f"pyarrow-{kind}.parquet", plain.set_column(1, "word", pa.array([x.encode() if "binary" in kind else x for x in WORD], getattr(pa, kind)())))
        good(f"pyarrow-{kind}.parquet", words, WORD, TEXT)
    t, names, columns = integers()
    write("pyarrow-integers.parquet", t)
    good("pyarrow-integers.parquet", names, *columns)
    write("pyarrow-integers-v1.parquet", t, version="1.0")
    good("pyarrow-integers-v1.parquet", names, *columns)
    write("pyarrow-floats.parquet", table(f64=pa.array(FLOATS, pa.float64()), f32=pa.array(FLOATS, pa.float32()), whole=pa.array(NUMBER, pa.float64())))
    good("pyarrow-floats.parquet", ["word", "f64", "f32", "whole"], WORD, FLOAT_TEXTS, FLOAT_TEXTS, TEXT)
    write("pyarrow-half.parquet", table(f16=pa.array(np.array([1, 2, 3, 4, 5, 6], np.float16))))
    bad("pyarrow-half.parquet", 'column "f16" is of Float16, expected')
    write("pyarrow-bool.parquet", table(flag=pa.array([True, False, None] * 2)), data_page_version="2.0")
    good("pyarrow-bool.parquet", ["word", "flag"], WORD, ["1", "0", ""] * 2)
    write("pyarrow-decimal.parquet", table(price=pa.array([decimal.Decimal("1.50")] * 6)))
    bad("pyarrow-decimal.parquet", 'column "price" is of decimals, expected')
    write("pyarrow-decimal-int.parquet", table(price=pa.array([decimal.Decimal("1.50")] * 6, pa.decimal128(5, 2))), store_decimal_as_integer=True)
    bad("pyarrow-decimal-int.parquet", 'column "price" is of decimals, expected')
    for version in ["2.6", "2.4", "1.0"]:
        write(f"pyarrow-times-{version}.parquet", clock_table(), version=version, coerce_timestamps="us" if version == "1.0" else None)
        good(f"pyarrow-times-{version}.parquet", CLOCK, *CLOCK_TEXTS)
    write("pyarrow-int96.parquet", table(at=times("ns")), use_deprecated_int96_timestamps=True)
    good("pyarrow-int96.parquet", ["word", "at"], WORD, INSTANT)
    write("pyarrow-duration.parquet", table(wait=pa.array([1, 2, 3, 4, 5, None], pa.duration("ms"))))
    bad("pyarrow-duration.parquet", 'column "wait" is of durations, expected')
    write("pyarrow-year.parquet", table(at=pa.array([0, 1, 2, 3, 4, 10**15], pa.timestamp("ms"))))
    bad("pyarrow-year.parquet", 'column "at": the year is 33658, expected 1 to 9999')
    write("pyarrow-list.parquet", table(tags=pa.array([["a"], [], None, ["b", "c"], ["d"], ["e"]])))
    bad("pyarrow-list.parquet", "has lists, but it is not named as a list")
    good("pyarrow-list-chosen.parquet", ["word"], WORD, files=["pyarrow-list.parquet"], columns=["word"])
    write("pyarrow-struct.parquet", table(place=pa.array([{"x": 1}] * 6)))
    bad("pyarrow-struct.parquet", 'column "place.x" is of maps, lists of lists or structures, expected')
    write("pyarrow-null.parquet", table(nothing=pa.nulls(6)))
    good("pyarrow-null.parquet", ["word", "nothing"], WORD, [""] * 6)
    write("pyarrow-uuid.parquet", table(id=pa.array([bytes(16)] * 6, pa.uuid())))
    bad("pyarrow-uuid.parquet", 'column "id" is of UUID, expected')
    write("pyarrow-fixed.parquet", table(id=pa.array([b"abcd"] * 6, pa.binary(4))))
    bad("pyarrow-fixed.parquet", 'column "id" is of FIXED_LEN_BYTE_ARRAY, expected')
    write("pyarrow-bytes.parquet", table(raw=pa.array([b"\xff\xfe"] * 6)))
    bad("pyarrow-bytes.parquet", r'row 0: column 2 (raw): "\xff\xfe" is not UTF-8')


def parquet_of_others():
    words = ["word", "number"]
    numbers = frame(number=NUMBER)
    numbers.to_parquet(path("pandas.parquet"))
    good("pandas.parquet", words, WORD, TEXT)
    numbers.astype({"number": "Int64", "word": "category", "label": "boolean"}).to_parquet(path("pandas-nullable.parquet"))
    good("pandas-nullable.parquet", words, WORD, TEXT)
    numbers.astype({"label": "float"}).to_parquet(path("pandas-float-label.parquet"))
    good("pandas-float-label.parquet", words, WORD, TEXT)
    numbers.assign(label=[0, 1, .5, 1, 1, 0]).to_parquet(path("pandas-half-label.parquet"))
    bad("pandas-half-label.parquet", 'pandas-half-label.parquet: row 2: label is "0.5", expected 0 or 1')
    numbers.iloc[::-1].iloc[::-1][[True] * 6].set_index(pd.Index(list("abcdef"))).to_parquet(path("pandas-index.parquet"))
    bad("pandas-index.parquet", 'pandas-index.parquet: column 4 of 4 is "__index_level_0__", the unnamed index of a pandas frame: name it, or choose the columns that are fields')
    frame(month=pd.period_range("2024-01", periods=6, freq="M")).to_parquet(path("pandas-period.parquet"))
    bad("pandas-period.parquet", 'column "month" is of the extension type "pandas.period", expected')
    frame(wait=pd.to_timedelta([1, 2, 3, 4, 5, 6], unit="s")).to_parquet(path("pandas-timedelta.parquet"))
    bad("pandas-timedelta.parquet", 'column "wait" is of durations, expected')
    frame(at=pd.to_datetime([x or None for x in INSTANT], format="ISO8601")).to_parquet(path("pandas-times.parquet"))
    good("pandas-times.parquet", ["word", "at"], WORD, INSTANT)

    at = pl.Series([dt.datetime.fromisoformat(x) if x else None for x in INSTANT])
    polar(number=NUMBER, kind=pl.Series(WORD, dtype=pl.Categorical), flag=[True, False, None] * 2).write_parquet(path("polars.parquet"))
    good("polars.parquet", words + ["kind", "flag"], WORD, TEXT, WORD, ["1", "0", ""] * 2)
    polar(ms=at.cast(pl.Datetime("ms")), ns=at.cast(pl.Datetime("ns", "Asia/Tokyo")), day=at.cast(pl.Date), t=at.dt.time()).write_parquet(path("polars-times.parquet"))
    good("polars-times.parquet", ["word", "ms", "ns", "day", "t"], WORD, INSTANT, utc(INSTANT), [x[:10] for x in INSTANT], [x[11:] for x in INSTANT])
    polar(wait=pl.Series([dt.timedelta(seconds=1)] * 6)).write_parquet(path("polars-duration.parquet"))
    bad("polars-duration.parquet", 'column "wait" is of durations, expected')
    polar(number=pl.Series(NUMBER, dtype=pl.Float64)).write_parquet(path("polars-lz4.parquet"), compression="lz4")
    bad("polars-lz4.parquet", "is compressed with LZ4_RAW")

    def duck(name, query, options=""):
        con.execute(f"COPY ({query}) TO '{path(name)}' (FORMAT parquet{options})")

    duck("duckdb.parquet", "SELECT * FROM d")
    good("duckdb.parquet", words, WORD, TEXT)
    duck("duckdb-v2.parquet", "SELECT * FROM d", ", PARQUET_VERSION v2, COMPRESSION zstd")
    good("duckdb-v2.parquet", words, WORD, TEXT)
    duck("duckdb-many-v2.parquet", "SELECT i % 2 AS label, i AS number, 'value ' || i AS word, i % 3 = 0 AS flag FROM range(200) t(i)", ", PARQUET_VERSION v2")
    good("duckdb-many-v2.parquet", ["number", "word", "flag"], [str(i) for i in range(200)], [f"value {i}" for i in range(200)],
         [str(int(i % 3 == 0)) for i in range(200)], label=[i % 2 for i in range(200)])
    duck("duckdb-types.parquet", "SELECT label = 1 AS label, word, number::DOUBLE AS number, number::UBIGINT % 5 AS u, (word = 'red') AS flag, "
         "word::ENUM ('red', 'blue', 'grün, hell', 'a \"b\" c', 'a value of more than twelve bytes') AS kind FROM (SELECT label, word, abs(number) AS number FROM d)")
    good("duckdb-types.parquet", ["word", "number", "u", "flag", "kind"], WORD, ["3", "", "0", "7", "12", "3"], ["3", "", "0", "2", "2", "3"], list("101000"), WORD)
    duck("duckdb-times.parquet", "SELECT label, word, TIMESTAMP_S '2024-01-02 03:04:05' AS s, TIMESTAMP_MS '2024-01-02 03:04:05.5' AS ms, TIMESTAMP '2024-01-02 03:04:05.5' AS us, "
         "TIMESTAMP_NS '2024-01-02 03:04:05.5' AS ns, TIMESTAMPTZ '2024-01-02 03:04:05+02' AS tz, DATE '2024-01-02' AS day, TIME '03:04:05' AS t FROM d")
    good("duckdb-times.parquet", ["word", "s", "ms", "us", "ns", "tz", "day", "t"], WORD, *[[x] * 6 for x in [
        "2024-01-02 03:04:05", "2024-01-02 03:04:05.5", "2024-01-02 03:04:05.5", "2024-01-02 03:04:05.5", "2024-01-02 01:04:05+00:00", "2024-01-02", "03:04:05"]])
    duck("duckdb-decimal.parquet", "SELECT label, word, 1.5 AS price FROM d")
    bad("duckdb-decimal.parquet", 'column "price" is of decimals, expected')
    duck("duckdb-uuid.parquet", "SELECT label, word, '00000000-0000-0000-0000-000000000001'::UUID AS id FROM d")
    bad("duckdb-uuid.parquet", 'column "id" is of UUID, expected')
    duck("duckdb-interval.parquet", "SELECT label, word, INTERVAL 1 DAY AS wait FROM d")
    bad("duckdb-interval.parquet", 'column "wait" is of')


def arrow():
    words = ["word", "number"]

    def write(name, t, stream=False, batch=None, **options):
        options = pa.ipc.IpcWriteOptions(**options)
        new = pa.ipc.new_stream if stream else pa.ipc.new_file
        with new(path(name), t.schema, options=options) as w:
            w.write_table(t, max_chunksize=batch)

    plain = table(number=pa.array(NUMBER)).replace_schema_metadata({"made": "by hand"})
    for codec in [None, "lz4", "zstd"]:
        write(f"pyarrow-{codec}.arrow", plain, compression=codec)
        good(f"pyarrow-{codec}.arrow", words, WORD, TEXT)
        write(f"pyarrow-{codec}.arrows", plain, stream=True, compression=codec, batch=4)
        good(f"pyarrow-{codec}.arrows", words, WORD, TEXT)
    write("pyarrow-legacy.arrow", plain, use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    good("pyarrow-legacy.arrow", words, WORD, TEXT)
    write("pyarrow-legacy.arrows", plain, stream=True, use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    good("pyarrow-legacy.arrows", words, WORD, TEXT)
    write("pyarrow-empty.arrow", plain.slice(0, 0))
    bad("pyarrow-empty.arrow", "pyarrow-empty.arrow: the file has no rows")
    for kind in ["large_string", "string_view", "binary", "large_binary", "binary_view"]:
        t = plain.set_column(1, "word", pa.array([x.encode() if "binary" in kind else x for x in WORD], getattr(pa, kind)()))
        for end in ["arrow", "arrows"]:
            write(f"pyarrow-{kind}.{end}", t, stream=end == "arrows", compression="zstd" if end == "arrows" else None)
            good(f"pyarrow-{kind}.{end}", words, WORD, TEXT)
    t, names, columns = integers()
    write("pyarrow-integers.arrow", t, batch=2)
    good("pyarrow-integers.arrow", names, *columns)
    write("pyarrow-floats.arrow", table(f64=pa.array(FLOATS, pa.float64()), f32=pa.array(FLOATS, pa.float32()), whole=pa.array(NUMBER, pa.float64()), flag=pa.array([True, False, None] * 2), nothing=pa.nulls(6)))
    good("pyarrow-floats.arrow", ["word", "f64", "f32", "whole", "flag", "nothing"], WORD, FLOAT_TEXTS, FLOAT_TEXTS, TEXT, ["1", "0", ""] * 2, [""] * 6)
    write("pyarrow-half.arrow", table(f16=pa.array(np.array([1, 2, 3, 4, 5, 6], np.float16))))
    bad("pyarrow-half.arrow", 'column "f16" is of float16, expected')
    write("pyarrow-times.arrow", clock_table())
    good("pyarrow-times.arrow", CLOCK, *CLOCK_TEXTS)
    write("pyarrow-year.arrow", table(at=pa.array([0, 1, 2, 3, 4, 10**15], pa.timestamp("ms"))))
    bad("pyarrow-year.arrow", 'column "at", row 5 of the batch: the year is 33658, expected 1 to 9999')
    write("pyarrow-duration.arrow", table(wait=pa.array([1, 2, 3, 4, 5, None], pa.duration("ms"))))
    bad("pyarrow-duration.arrow", 'column "wait" is of duration')
    write("pyarrow-decimal.arrow", table(price=pa.array([decimal.Decimal("1.50")] * 6)))
    bad("pyarrow-decimal.arrow", 'column "price" is of decimal')
    write("pyarrow-list.arrow", table(tags=pa.array([["a"], [], None, ["b", "c"], ["d"], ["e"]])))
    bad("pyarrow-list.arrow", 'column "tags" has lists, but it is not named as a list')
    write("pyarrow-struct.arrow", table(place=pa.array([{"x": 1}] * 6)))
    bad("pyarrow-struct.arrow", 'column 2 ("place") is nested')
    write("pyarrow-runs.arrow", table(run=pa.compute.run_end_encode(pa.array([1, 1, 1, 2, 2, 2]))))
    bad("pyarrow-runs.arrow", 'column 2 ("run") is run-end encoded')
    write("pyarrow-uuid.arrow", table(id=pa.array([bytes(16)] * 6, pa.uuid())))
    bad("pyarrow-uuid.arrow", 'column "id" is of')
    write("pandas-period.arrow", pa.Table.from_pandas(frame(month=pd.period_range("2024-01", periods=6, freq="M")), preserve_index=False))
    bad("pandas-period.arrow", 'column "month" is of the extension type "pandas.period", expected')

    def batches(*dictionaries):
        schema = pa.schema([("label", pa.int64()), ("word", pa.dictionary(pa.int32(), pa.string()))])
        return schema, [pa.record_batch([pa.array(LABEL[:3]), pa.DictionaryArray.from_arrays(pa.array([0, None, len(d) - 1], pa.int32()), d)], schema=schema) for d in dictionaries]

    schema, parts = batches(["a", "b"], ["a", "b", "c"])
    for name, new, options in [("delta.arrows", pa.ipc.new_stream, {"emit_dictionary_deltas": True}), ("delta.arrow", pa.ipc.new_file, {"emit_dictionary_deltas": True}),
                               ("replaced.arrows", pa.ipc.new_stream, {})]:
        with new(path("pyarrow-" + name), schema, options=pa.ipc.IpcWriteOptions(**options)) as w:
            for part in parts:
                w.write_batch(part)
        good("pyarrow-" + name, ["word"], ["a", "", "b", "a", "", "c"], label=LABEL[:3] * 2)
    kinds = table(number=pa.array(NUMBER).dictionary_encode(), at=times("ms").dictionary_encode(), view=pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1, None, 1]), pa.array(["a", WORD[5]], pa.string_view())))
    write("pyarrow-dictionaries.arrow", kinds, compression="lz4")
    good("pyarrow-dictionaries.arrow", ["word", "number", "at", "view"], WORD, TEXT, INSTANT, ["a", WORD[5], "a", WORD[5], "", WORD[5]])

    pa.feather.write_feather(plain, path("pyarrow.feather"))
    good("pyarrow.feather", words, WORD, TEXT)
    frame(number=NUMBER).to_feather(path("pandas.feather"))
    good("pandas.feather", words, WORD, TEXT)
    try:
        pa.feather.write_feather(plain, path("pyarrow-1.feather"), version=1)
        bad("pyarrow-1.feather", "a Feather file of version 1, expected version 2, which is an Arrow file")
    except Exception as e:  # new releases may refuse
        print("feather 1:", e)

    p = polar(number=NUMBER, kind=pl.Series(WORD, dtype=pl.Categorical), rank=pl.Series(["lo", "hi", None] * 2, dtype=pl.Enum(["lo", "hi"])), flag=[True, False, None] * 2)
    fields, columns = words + ["kind", "rank", "flag"], [WORD, TEXT, WORD, ["lo", "hi", ""] * 2, ["1", "0", ""] * 2]
    for level in ["oldest", "newest"]:
        for codec in ["uncompressed", "lz4", "zstd"]:
            p.write_ipc(path(f"polars-{level}-{codec}.arrow"), compression=codec, compat_level=getattr(pl.CompatLevel, level)())
            good(f"polars-{level}-{codec}.arrow", fields, *columns)
            p.write_ipc_stream(path(f"polars-{level}-{codec}.arrows"), compression=codec, compat_level=getattr(pl.CompatLevel, level)())
            good(f"polars-{level}-{codec}.arrows", fields, *columns)
    p.write_ipc(path("polars-batches.arrow"), record_batch_size=2)
    good("polars-batches.arrow", fields, *columns)
    p.lazy().sink_ipc(path("polars-sink.arrow"))
    good("polars-sink.arrow", fields, *columns)
    at = pl.Series([dt.datetime.fromisoformat(x) if x else None for x in INSTANT])
    polar(ms=at.cast(pl.Datetime("ms")), ns=at.cast(pl.Datetime("ns", "Asia/Tokyo")), day=at.cast(pl.Date), t=at.dt.time()).write_ipc(path("polars-times.arrow"))
    good("polars-times.arrow", ["word", "ms", "ns", "day", "t"], WORD, INSTANT, utc(INSTANT), [x[:10] for x in INSTANT], [x[11:] for x in INSTANT])
    polar(wait=pl.Series([dt.timedelta(seconds=1)] * 6)).write_ipc(path("polars-duration.arrow"))
    bad("polars-duration.arrow", 'column "wait" is of duration')
    big = polar(big=pl.Series([2**100, 1, 2, 3, 4, None], dtype=pl.Int128))
    big.write_ipc(path("polars-int128.arrow"))
    bad("polars-int128.arrow", 'column 2 ("big") has integers of 128 bits, expected at most 64')
    big.write_parquet(path("polars-int128.parquet"))
    bad("polars-int128.parquet", 'column "big" is of')
    polar(raw=pl.Series([x.encode() for x in WORD])).write_ipc(path("polars-binary.arrow"))
    good("polars-binary.arrow", ["word", "raw"], WORD, WORD)
    polar(price=pl.Series([decimal.Decimal("1.5")] * 6, dtype=pl.Decimal(10, 2))).write_ipc(path("polars-decimal.arrow"))
    bad("polars-decimal.arrow", 'column "price" is of decimal')
    polar(tags=[["a"], [], None, ["b"], ["c"], ["d"]]).write_ipc(path("polars-list.arrow"))
    bad("polars-list.arrow", 'column "tags" has lists, but it is not named as a list')
    p.head(0).write_ipc(path("polars-empty.arrow"))
    bad("polars-empty.arrow", "polars-empty.arrow: the file has no rows")


def folders():
    """Datasets of several files, whose folders have the values of some columns."""
    t = pa.table({"label": [0, 1, 0, 1], "word": list("abcd"), "color": ["red/1", "blue", "red/1", None], "day": [1, 10, 2, 10]})

    def check(name, order, **more):
        label, word, color, day = (list(x) for x in zip(*order))
        good(name, ["word", "color", "day"], word, color, day, label=label, **more)

    rows = [(0, "a", "red/1", "1"), (1, "b", "blue", "10"), (0, "c", "red/1", "2"), (1, "d", "", "10")]
    a, b, c, d = rows
    for kind in ["parquet", "arrow", "csv"]:
        pa.dataset.write_dataset(t, path(f"pyarrow-hive-{kind}"), format=kind, partitioning=["color", "day"], partitioning_flavor="hive", use_threads=False)
        check(f"pyarrow-hive-{kind}", [d, b, a, c])
    check("pyarrow-hive-glob", [b, a, c], files=["pyarrow-hive-parquet/color=[br]*/day=*/*.parquet"])
    text("pyarrow-hive-parquet/_SUCCESS", "")
    text("pyarrow-hive-parquet/.hidden.crc", "x")
    text("pyarrow-hive-parquet/_old/0/part-0.parquet", "x")
    pl.from_arrow(t).write_parquet(path("polars-hive"), partition_by=["color", "day"])
    check("polars-hive", [d, b, a, c])
    con.register("h", t)
    con.execute(f"COPY (SELECT * FROM h) TO '{path('duckdb-hive')}' (FORMAT parquet, PARTITION_BY (color, day))")
    check("duckdb-hive", [d, b, a, c] if os.path.exists(path("duckdb-hive/color=__HIVE_DEFAULT_PARTITION__")) else [b, a, c, d])
    con.execute(f"COPY (SELECT * FROM h) TO '{path('duckdb-hive-both')}' (FORMAT csv, PARTITION_BY (day), WRITE_PARTITION_COLUMNS true)")
    good("duckdb-hive-both", ["word", "color", "day"], list("abdc"), ["red/1", "blue", "", "red/1"], ["1", "10", "10", "2"], label=[0, 1, 1, 0])
    t.to_pandas().assign(day=[1, 2, None, 2]).to_parquet(path("pandas-hive"), partition_cols=["day"], basename_template="part-{i}.parquet")
    good("pandas-hive", ["word", "color", "day"], list("abdc"), ["red/1", "blue", "", "red/1"], ["1", "2", "2", ""], label=[0, 1, 1, 0])
    text("hive-disagrees/day=3/part.csv", "label,word,day\n0,a,3\n1,b,4\n")
    bad("hive-disagrees", 'part.csv:3: column 2 (day) is "4", but the name of the folder has "3"')
    text("hive-mixed/day=3/part.csv", "label,word\n0,a\n")
    text("hive-mixed/part.csv", "label,word\n0,a\n")
    bad("hive-mixed", 'the columns are ["label" "word"], but the earlier files have ["label" "word" "day"]', table=False)
    text("mixed/a.csv", "label,word\n0,a\n")
    text("mixed/b.tsv", "label\tword\n0\ta\n")
    bad("mixed", "a.csv and b.tsv have different extensions: give the files of one format", table=False)
    text("flat/b.csv", "label,word\n1,b\n")
    text("flat/a.csv", "label,word\n0,a\n")
    good("flat", ["word"], ["a", "b"], label=[0, 1])
    text("hollow/_SUCCESS", "")
    bad("hollow", "the folder has no files with rows", table=False)


def mappers():
    """Vocabularies, which variants_test.go reads without an entry in variants.json."""
    m = pl.DataFrame({"field": ["word"] * 6 + ["number"] * 5, "value": sorted(set(WORD)) + [""] + sorted(set(TEXT)), "id": [*range(6), *range(5)]})
    m.write_ipc(path("mappers/polars.arrow"))
    m.write_ipc(path("mappers/polars-lz4.arrow"), compression="lz4", compat_level=pl.CompatLevel.oldest())
    m.write_ipc_stream(path("mappers/polars-stream.arrow"))
    m.write_parquet(path("mappers/polars.parquet"))
    m.to_pandas().assign(id=m["id"].cast(pl.Float64).to_numpy()).to_parquet(path("mappers/pandas.parquet"))
    m.write_csv(path("mappers/polars.csv"))


def kind_of(files):
    """Whether the files are tables: Parquet or Arrow."""
    name = files[0].rstrip("*")
    if os.path.isdir(path(name)):
        name = next((f for _, _, names in os.walk(path(name)) for f in names if not f.startswith(("_", "."))), "")
    return name.endswith((".parquet", ".arrow", ".arrows", ".feather"))


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'; SET threads = 1")
    con.register("d0", table(number=pa.array(NUMBER)))
    con.execute("CREATE TABLE d AS SELECT * FROM d0")
    for make in [csv_of_pandas, csv_of_others, parquet_of_pyarrow, parquet_of_others, arrow, folders, mappers]:
        make()
    for e in entries:
        e.setdefault("table", kind_of(e["files"]))
    with open(os.path.join(FOLDER, "..", "variants.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(e, ensure_ascii=False) for e in entries) + "\n]\n")
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, names in os.walk(FOLDER) for f in names)
    print(len(entries), "variants,", size, "bytes")
