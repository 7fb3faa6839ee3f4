"""Imports of tables with a log, by the command and by nights."""

from __future__ import annotations

import http.server
import json
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from conftest import command

from shaver._binary import binary

deltalake = pytest.importorskip("deltalake")

FLAGS = ["--label", "click", "--columns", "user,item", "--split", "6:2:2", "--min-count", "2"]
CONFIG = """
model: model.safetensors
days: days
window: 4
out: nightly
source:
  table: lake
  where: day={date}
  label: click
  columns: [user, item]
  split: 6:2:2
  min-count: 2
score: {estimator: permutation, passes: 1}
prune: {sparsity: 0.5}
check: {max-auc-drop: 1, max-logloss-rise: 9}
"""


def rows(day: int, seed: int) -> pa.Table:
    """The rows of a day, with some users and items that no earlier day had."""
    draw = np.random.default_rng(seed)
    n = 400
    user, item = draw.integers(0, 20 + 3 * day, n), draw.integers(0, 15 + 2 * day, n)
    click = draw.random(n) < 1 / (1 + np.exp(np.sin(user) + np.cos(item)))
    return pa.table({"day": [f"2026-11-{day:02}"] * n, "user": [f"u{u}" for u in user], "item": item, "click": click.astype(np.int32)})


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_nights(tmp_path: Path) -> None:
    """Ten nights, with a late day, a day that is written again, and nights that are killed."""
    draw = random.Random(1)
    table, days, by_hand = tmp_path / "lake", tmp_path / "days", tmp_path / "by-hand"
    (tmp_path / "nightly.yaml").write_text(CONFIG)
    by_hand.mkdir()
    kills = 0
    for night in range(1, 11):
        new = [night] if night != 4 else []
        if night == 6:
            new.insert(0, 4)  # late
        for day in new:
            deltalake.write_deltalake(table, rows(day, day), partition_by=["day"], mode="append")
        if night == 8:
            deltalake.write_deltalake(table, rows(6, 60), mode="overwrite", predicate="day = '2026-11-06'")
            new.insert(0, 6)
        version = str(deltalake.DeltaTable(table).version())
        for day in new:  # in the order of their names
            name = f"2026-11-{day:02}"
            there = sorted(path.name for path in by_hand.iterdir())
            flags = FLAGS
            if there:
                flags = (
                    [*FLAGS, "--vocabulary", str(by_hand / there[-1]), "--grow"]
                    if name > there[-1]
                    else [*FLAGS[:-2], "--vocabulary", str(by_hand / there[-1])]
                )
            made = tmp_path / "made"
            command("dataset", "import", "parquet", table, "--where", f"day={name}", "--at", version, *flags, "--out", made)
            shutil.rmtree(by_hand / name, ignore_errors=True)
            made.rename(by_hand / name)
        while kills < 12 and draw.random() < 0.6:
            started = subprocess.Popen(
                [binary(), "nightly", "--import", "--config", tmp_path / "nightly.yaml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(draw.random() * 0.15)
            started.kill()
            started.wait()
            kills += 1
        if night == 10:  # as if an import was killed after the day was complete, before its counts were deleted
            last = days / "2026-11-08"
            (days / ".2026-11-08" / ".new.counts").mkdir(parents=True)
            last.rename(days / ".2026-11-08" / "new")
        days.mkdir(exist_ok=True)
        (days / "README").touch()  # not a day
        command("nightly", "--import", "--config", tmp_path / "nightly.yaml")
        (days / "README").unlink()
        assert not list(days.glob(".*")), "an import leaves hidden folders"
        before = {path: path.stat().st_mtime_ns for path in days.rglob("*.arrow")}
        command("train", "--dataset", days / max(path.name for path in days.iterdir()), "--epochs", "1", "--out", tmp_path / "new.safetensors")
        (tmp_path / "new.safetensors").rename(tmp_path / "model.safetensors")
        command("nightly", "--config", tmp_path / "nightly.yaml")
        assert before == {path: path.stat().st_mtime_ns for path in days.rglob("*.arrow")}, "a day was imported twice"
    assert kills >= 3
    assert content(days) == content(by_hand)
    assert len((tmp_path / "nightly" / "history.jsonl").read_text().splitlines()) == 9  # the fourth had nothing new


def test_nights_of_lists(tmp_path: Path) -> None:
    """Days with lists, dense inputs and fields that share values are one window, also after a late day; a day without rows is left out."""
    for day in (1, 3, 4, 2):
        table = rows(day, day)
        n = table.num_rows
        history = [[str(v) for v in range(k % 4)] for k in range(n)]
        table = table.append_column("history", pa.array(history)).append_column("price", pa.array(np.arange(n) / 7 + day))
        if day == 4:
            table = table.set_column(table.schema.get_field_index("item"), "item", pa.array(np.full(n, 3)))
        deltalake.write_deltalake(tmp_path / "lake", table, partition_by=["day"], mode="append")
        source = "columns: [user, item, history]\n  list: [history=3]\n  share: [history=item]\n  dense: [price:zscore]"
        where = '["day={date}", "item!=3"]'
        (tmp_path / "nightly.yaml").write_text(CONFIG.replace("columns: [user, item]", source).replace("day={date}", where))
        ended = subprocess.run([binary(), "nightly", "--import", "--config", tmp_path / "nightly.yaml"], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert ("leaving the day 2026-11-04 out" in ended.stderr) == (day in (4, 2)), ended.stderr
    days = sorted((tmp_path / "days").iterdir())
    assert [path.name for path in days] == ["2026-11-01", "2026-11-02", "2026-11-03"]
    command("dataset", "inspect", *days)


def test_missing_day(tmp_path: Path) -> None:
    """A day that the table does not have is an error of --import."""
    deltalake.write_deltalake(tmp_path / "lake", rows(1, 1), partition_by=["day"])
    (tmp_path / "nightly.yaml").write_text(CONFIG)
    flags = ["nightly", "--import", "--config", str(tmp_path / "nightly.yaml"), "--date"]
    command(*flags, "2026-11-01")
    ended = subprocess.run([binary(), *flags, "2026-11-02"], capture_output=True, text=True, check=False)
    assert ended.returncode == 42 and "the table has no day 2026-11-02" in ended.stderr, ended.stderr


def test_source_is_refused(tmp_path: Path) -> None:
    """Without a condition that names the day, and by a column by which the table is not partitioned."""
    deltalake.write_deltalake(tmp_path / "lake", rows(1, 1))
    config = tmp_path / "nightly.yaml"
    for where, expected in [("day=2026-11-01", "expected a condition that names the day"), ("day={date}", "not partitioned by")]:
        config.write_text(CONFIG.replace("day={date}", where))
        ended = subprocess.run([binary(), "nightly", "--import", "--config", config], capture_output=True, text=True, check=False)
        assert ended.returncode != 0 and expected in ended.stderr, ended.stderr


def test_catalogue(tmp_path: Path) -> None:
    """A night waits for a day of a table in a REST catalogue."""
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    transforms = pytest.importorskip("pyiceberg.transforms")
    catalog = sql.SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.clicks", rows(1, 1).schema)
    with table.update_spec() as update:
        update.add_field("day", transforms.IdentityTransform(), "day")
    table.append(rows(1, 1))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            newest = Path(max((tmp_path / "shop" / "clicks" / "metadata").glob("*.metadata.json")))
            known = {"/v1/config": {}, "/v1/namespaces/shop/tables/clicks": {"metadata-location": str(newest), "metadata": json.loads(newest.read_text())}}
            self.send_response(200 if self.path in known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(known.get(self.path)).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        text = CONFIG.replace("table: lake", f"table: shop.clicks\n  catalog: http://127.0.0.1:{server.server_port}")
        (tmp_path / "nightly.yaml").write_text("wait-inputs: 30s" + text)
        with subprocess.Popen(
            [binary(), "nightly", "--import", "--date", "2026-11-02", "--config", tmp_path / "nightly.yaml"], stderr=subprocess.PIPE, text=True
        ) as started:
            assert started.stderr
            assert "waiting for inputs" in started.stderr.readline()
            table.append(rows(2, 2))
            errors = started.stderr.read()
        server.shutdown()
    assert started.returncode == 0, errors
    assert sorted(path.name for path in (tmp_path / "days").iterdir()) == ["2026-11-01", "2026-11-02"]


def test_url(tmp_path: Path) -> None:
    """A table in an object store gives the same files as in a folder; only the files that are needed are copied."""
    for day in (1, 2, 3):
        deltalake.write_deltalake(tmp_path / "lake", rows(day, day), partition_by=["day"], mode="append")
    for out, table in [("local", str(tmp_path / "lake")), ("url", f"file://{tmp_path}/lake")]:
        command("dataset", "import", "parquet", table, "--where", "day>=2026-11-02", *FLAGS, "--scratch", tmp_path / "scratch", "--out", tmp_path / out)
    local, url = content(tmp_path / "local"), content(tmp_path / "url")
    name = json.loads(url["dataset.json"])["tables"][0]["table"]
    assert name == f"file://{tmp_path}/lake"
    assert url.pop("dataset.json").replace(name.encode(), b"lake") == local.pop("dataset.json")
    assert url == local

    def copies() -> list[str]:
        return sorted({part for path in (tmp_path / "scratch").rglob("*.parquet") if ".versions" not in path.parts for part in path.parts if "=" in part})

    assert copies() == ["day=2026-11-02", "day=2026-11-03"]
    command(
        "dataset",
        "import",
        "parquet",
        f"file://{tmp_path}/lake",
        "--where",
        "day=2026-11-01",
        *FLAGS,
        "--scratch",
        tmp_path / "scratch",
        "--out",
        tmp_path / "other",
    )
    assert copies() == ["day=2026-11-01"]


def test_files_of_jobs(tmp_path: Path) -> None:
    """The log of a table says which files are current, so several jobs in a folder and the same rows twice are no reason for a warning."""
    for _ in range(2):
        deltalake.write_deltalake(tmp_path / "lake", rows(1, 1), mode="append")
    found = {}
    for name in ("table", "files"):
        if name == "files":
            shutil.rmtree(tmp_path / "lake" / "_delta_log")
            (tmp_path / "lake" / "_SUCCESS").touch()
        ended = subprocess.run(
            [binary(), "dataset", "import", "parquet", tmp_path / "lake", *FLAGS, "--out", tmp_path / name], capture_output=True, text=True, check=True
        )
        found[name] = [text in ended.stderr for text in ("same content", "several jobs")]
    assert found == {"table": [False, False], "files": [True, True]}


@pytest.mark.parametrize("prefix", ["file://", ""])
def test_absolute_names_and_empty_files(prefix: str, tmp_path: Path) -> None:
    """A log may name files by their URLs or absolute paths, and files may have no rows."""
    table = tmp_path / "lake"
    deltalake.write_deltalake(table, rows(1, 1).drop_columns(["day"]))
    command("dataset", "import", "parquet", table, *FLAGS, "--out", tmp_path / "data")
    pyarrow.parquet.write_table(rows(1, 1).drop_columns(["day"]).slice(0, 0), table / "a.parquet")
    log = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    add = next(action["add"] for action in actions if "add" in action)
    actions.append({"add": {**add, "path": "a.parquet", "size": (table / "a.parquet").stat().st_size, "stats": None}})
    add["path"] = f"{prefix}{table}/{add['path']}"
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for given in (str(table), f"file://{table}"):
        command("dataset", "import", "parquet", given, *FLAGS, "--out", tmp_path / "other")
        assert (tmp_path / "other" / "train.arrow").read_bytes() == (tmp_path / "data" / "train.arrow").read_bytes()
        shutil.rmtree(tmp_path / "other")


def test_where(tmp_path: Path) -> None:
    """Conditions choose rows of Parquet files, by their columns and by those of folders."""
    table = pa.concat_tables([rows(day, day) for day in (1, 2, 3)])
    for day in (1, 2, 3):
        folder = tmp_path / "log" / f"day=2026-11-0{day}"
        folder.mkdir(parents=True)
        pyarrow.parquet.write_table(rows(day, day).drop_columns(["day"]), folder / "part.parquet", row_group_size=150)
    conditions = ["day!=2026-11-02", "item>=9", "item<20", "user!=u7"]
    flags = [word for text in conditions for word in ("--where", text)]
    command("dataset", "import", "parquet", tmp_path / "log", *FLAGS, *flags, "--out", tmp_path / "data")
    ds = pyarrow.dataset
    kept = table.filter((ds.field("day") != "2026-11-02") & (ds.field("item") >= 9) & (ds.field("item") < 20) & (ds.field("user") != "u7"))
    splits = json.loads((tmp_path / "data" / "dataset.json").read_text())["splits"]
    assert sum(split["rows"] for split in splits) == kept.num_rows
    assert sum(split["positives"] for split in splits) == sum(kept["click"].to_pylist())
    for text, expected in [
        ("day=2026-11-09", "no row in the files for which day=2026-11-09 holds"),
        ("hour>3", 'no column "hour" for the condition hour>3'),
        ("item>x", "the condition item>x: the column has numbers: expected a number"),
        ("user=u", "no row in the split train for which user=u holds"),
    ]:
        ended = subprocess.run(
            [binary(), "dataset", "import", "parquet", tmp_path / "log", *FLAGS, "--where", text, "--out", tmp_path / "other"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 42 and expected in ended.stderr, ended.stderr
