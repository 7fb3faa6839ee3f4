#!/usr/bin/env python3
"""Writes mapper/: rows of values, FuxiCTR's feature_map.json and feature_vocab.json for them, and the ids it gives.

    mapper.py

train.csv and valid.csv hold a label and three columns of values, with empty ones and values that only valid.csv has.
ids.csv holds FuxiCTR's ids of the rows of both, in this order. Its README.md is ../README.md.
"""

import csv
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from packages import np, quiet  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent / "mapper"
COLUMNS = ["click", "site", "color", "hour"]


def values(r, count, colors):
    for _ in range(count):
        yield [int(r.integers(0, 2)), "site-%d" % r.zipf(1.5) if r.random() > 0.1 else "", colors[r.integers(0, len(colors))], int(r.integers(0, 5))]


def main():
    HERE.mkdir(exist_ok=True)
    r = np.random.default_rng(4)
    files = {"train": list(values(r, 60, ["red", "green", "blå", "a \"b\", c"])), "valid": list(values(r, 20, ["red", "violet"]))}
    for name, lines in files.items():
        with open(HERE / f"{name}.csv", "w", newline="") as f:
            csv.writer(f, lineterminator="\n").writerows([COLUMNS] + lines)
    with quiet():
        import polars as pl
        from fuxictr.preprocess import FeatureProcessor

        folder = pathlib.Path(tempfile.mkdtemp())
        p = FeatureProcessor(
            feature_cols=[{"name": name, "active": True, "dtype": "str", "type": "categorical"} for name in COLUMNS[1:]],
            label_col={"name": "click", "dtype": "float"}, dataset_id="tiny", data_root=str(folder))

        def read(name):  # p.read_data uses an argument that Polars no longer has
            return p.preprocess(pl.scan_csv(HERE / f"{name}.csv", schema_overrides=p.dtype_dict))

        train = read("train")
        p.fit(train, min_categr_count=2)
        ids = [p.transform(read(name).collect().to_dict(as_series=False)) for name in files]
    for name in ("feature_map.json", "feature_vocab.json"):
        shutil.copyfile(folder / "tiny" / name, HERE / name)
    with open(HERE / "ids.csv", "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(COLUMNS)
        for part in ids:
            w.writerows([[int(v) for v in row] for row in zip(*[part[c] for c in COLUMNS])])


main()
