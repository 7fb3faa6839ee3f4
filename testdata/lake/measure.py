"""Compares imports of Delta and Iceberg tables with imports of their files as a plain folder.

    pip install deltalake 'pyiceberg[pyiceberg-core,sql-sqlite]' numpy
    python3 testdata/lake/measure.py WORK [--rows 5000000] [--rounds 3] [--store FOLDER=URL]

WORK gets the tables, of Criteo's shape, in ten files each. In each round the imports take turns, and the order changes from round to round.
FOLDER is where the server of an object store has the objects of URL; the tables are copied there.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa

SIZES = [
    1460,
    583,
    200_000,
    100_000,
    305,
    24,
    12517,
    633,
    3,
    93145,
    5683,
    200_000,
    3194,
    27,
    14992,
    150_000,
    10,
    5652,
    2173,
    4,
    180_000,
    18,
    15,
    120_000,
    105,
    90_000,
]


def batch(seed: int, n: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    columns = {"label": pa.array((draw.random(n) < 0.25).astype(np.int32)), "day": pa.array([f"day-{seed}"] * n)}
    for k in range(13):
        columns[f"i{k}"] = pa.array(draw.geometric(1 / (5 + 50 * k), n).astype(np.int32), mask=draw.random(n) < 0.1)
    for k, size in enumerate(SIZES):
        words = pa.array([f"{(j * 2654435761 + k) % 2**32:08x}" for j in range(size)])
        columns[f"c{k}"] = words.take(pa.array(np.minimum(draw.zipf(1.2, n), 10**9) % size))
    return pa.table(columns)


def make(work: Path, rows: int) -> None:
    import deltalake
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri=f"sqlite:///{work}/catalog.db", warehouse=f"file://{work}/warehouse")
    catalog.create_namespace("x")
    table = None
    for seed in range(10):
        data = batch(seed, rows // 10)
        deltalake.write_deltalake(work / "delta", data, mode="append")
        table = table or catalog.create_table("x.t", data.schema)
        table.append(data)
    shutil.move(work / "warehouse" / "x" / "t", work / "iceberg")
    for name, files in ("delta", work / "delta"), ("iceberg", work / "iceberg" / "data"):
        folder = work / f"{name}-files"
        folder.mkdir()
        (folder / "_SUCCESS").touch()
        for path in files.glob("*.parquet"):
            shutil.copy(path, folder)


def seconds(source: str, work: Path) -> float:
    """The processor time of an import."""
    shutil.rmtree(work / "out", ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["shaver", "dataset", "import", "parquet", source, "--memory", "1GiB", "--out", work / "out"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store")
    o = parser.parse_args()
    work = o.work.resolve()
    if not work.exists():
        work.mkdir(parents=True)
        make(work, o.rows)
    places = {"local": f"{work}/"}
    if o.store:
        folder, url = o.store.split("=", 1)
        for name in ("delta", "delta-files", "iceberg", "iceberg-files"):
            shutil.copytree(work / name, Path(folder) / name, dirs_exist_ok=True)
        places["store"] = url.rstrip("/") + "/"
    ratios: dict[str, list[float]] = {}
    for k in range(o.rounds):
        for place, prefix in places.items():
            for name in ("delta", "iceberg"):
                order = [name, f"{name}-files"][:: 1 if k % 2 else -1]
                took = {source: seconds(prefix + source, work) for source in order}
                ratios.setdefault(f"{place} {name}", []).append(took[name] / took[f"{name}-files"])
                print(place, name, "table %.1f s, files %.1f s" % (took[name], took[f"{name}-files"]), flush=True)
    for name, found in ratios.items():
        print(name, "ratios", " ".join(f"{r:.3f}" for r in found), "median", f"{statistics.median(found):.3f}")
    print("memory of the largest import:", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, "MiB")


if __name__ == "__main__":
    assert os.name == "posix"
    main()
