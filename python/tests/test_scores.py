"""Scores, sweeps, pruned files, metrics and reports are those of the commands."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import FIELDS, Planted, command

import shaver
from shaver import _tensors
from shaver._scratch import scratch


@pytest.fixture(scope="module")
def scores(planted: Planted) -> shaver.Scores:
    return shaver.score(planted.model, planted.dataset, estimator="multilinear", baseline="codebook", splits="train")


@pytest.fixture(scope="module")
def state(planted: Planted) -> dict[str, Any]:
    return {name: np.array(array) for name, array in _tensors.read(planted.model)}


def test_scores_are_those_of_the_command(planted: Planted, scores: shaver.Scores, state: dict[str, Any], tmp_path: Path) -> None:
    flags = ("--estimator", "multilinear", "--baseline", "codebook", "--splits", "train")
    command("score", "--model", planted.model, "--dataset", planted.dataset, *flags, "--out", tmp_path / "want.arrow")
    want = (tmp_path / "want.arrow").read_bytes()
    assert Path(scores.path).read_bytes() == want
    assert scores.report is not None and scores.report["rows"] == scores.document["rows"]
    assert scores.field_dims == [1200, 1000, 40, 300, 6, 24, 180, 600, 10, 240]
    # A state dict in memory is the same model. Its field sizes are those of the dataset.
    in_memory = shaver.score(state, planted.dataset, estimator="multilinear", baseline="codebook", splits="train", out=tmp_path / "memory.arrow")
    assert Path(in_memory.path).read_bytes() == want


def test_frozen_fields_have_no_values(planted: Planted) -> None:
    frozen = shaver.score(planted.model, planted.dataset, estimator="multilinear", splits="train", freeze=["item", "city"])
    table = frozen.to_pandas()
    values = np.abs(np.stack(table["phi"].to_list())).sum(axis=1) + table["count"]
    assert set(FIELDS) - set(table["field"][values > 0]) == {"item", "city"}
    with pytest.raises(shaver.UsageError, match=r"no field 'nobody'|no field \"nobody\""):
        shaver.score(planted.model, planted.dataset, freeze="nobody")


def test_same_call_returns_at_once(planted: Planted) -> None:
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        last = shaver.score(planted.model, planted.dataset, estimator="permutation", passes=30)
        seconds.append(time.perf_counter() - start)
    assert seconds[1] < seconds[0] / 2
    assert shaver.score(planted.model, planted.dataset, estimator="permutation", passes=1).path != last.path


def test_tables(planted: Planted, scores: shaver.Scores) -> None:
    table = scores.to_arrow()
    assert table.column_names[:4] == ["field", "id", "count", "phi"] and table.num_rows == 3600
    for frame in (scores.to_pandas(), scores.to_polars()):
        assert isinstance(frame, (pd.DataFrame, pl.DataFrame)) and len(frame) == 3600
        assert np.stack(list(frame["phi"])).tobytes() == np.array(table["phi"].to_pylist()).tobytes()
    sums = {field["name"]: field["sum"] for field in scores.document["fields"]}
    for field in FIELDS:
        everything = scores.top(field, 10_000)
        assert sum(everything["phi"].to_pylist()) == pytest.approx(sums[field], abs=1e-12)
    top = scores.top("user", 5)
    assert top.column_names == ["id", "count", "phi"] and top.num_rows == 5
    assert top["phi"].to_pylist() == sorted(scores.top("user", 10_000)["phi"].to_pylist(), reverse=True)[:5]
    with pytest.raises(shaver.BadInputError, match="the fields are user, item"):
        scores.top("users")


def test_path_has_an_order_and_no_values(planted: Planted, scores: shaver.Scores, tmp_path: Path) -> None:
    # A scores file as a job with the estimator path writes it, except its digest, which Python does not check.
    path = shaver.Scores(scores.path)
    table = scores.to_arrow()
    dim = len(table["phi"][0])
    order = np.random.default_rng(1).permutation(table.num_rows * dim)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order))
    ranks = pa.FixedSizeListArray.from_arrays(pa.array(rank), dim)
    path.path = str(tmp_path / "path.arrow")
    with pa.ipc.new_file(path.path, (written := table.select(["field", "id", "count"]).append_column("rank", ranks)).schema) as file:
        file.write_table(written)
    path.document = {**scores.document, "path": {"rounds": [], "reach": 0.999}}
    assert path.order.tolist() == order.tolist()
    with pytest.raises(shaver.BadInputError, match=r"path\.arrow has the order of a path and no values: top needs"):
        path.top("user")
    with pytest.raises(shaver.BadInputError, match="plot needs scores of an estimator of values"):
        path.plot()
    with pytest.raises(shaver.BadInputError, match="only scores of the estimator path have one order"):
        _ = scores.order


def test_top_names_values(tmp_path: Path) -> None:
    rows = 400
    random = np.random.default_rng(1)
    kinds = random.integers(0, 3, rows)
    table = pa.table(
        {
            "click": (random.random(rows) < 0.1 + 0.4 * kinds).astype(np.int64),
            "kind": [f"k{i}" for i in kinds],
            "page": [f"p{i}" for i in random.integers(0, 5, rows)],
        }
    )
    ds = shaver.Dataset.from_frame(table, label="click")
    state = {
        "embedding.weight": random.normal(size=(sum(ds.field_dims), 2)).astype(np.float32),
        "fc.weight": np.zeros((sum(ds.field_dims), 1), np.float32),
        "_bias": np.zeros(1, np.float32),
    }
    top = shaver.score(state, ds, estimator="permutation", baseline="zero", splits=["train", "val"]).top("kind")
    assert dict(zip(top["id"].to_pylist(), top["value"].to_pylist(), strict=True)) == {0: "k0", 1: "k1", 2: "k2", 3: None}


def test_other_dataset(planted: Planted, scores: shaver.Scores, tmp_path: Path) -> None:
    other = shaver.Dataset.from_frame(pa.table({"click": [0, 1] * 20, "user": ["a", "b"] * 20}), label="click")
    with pytest.raises(shaver.BadInputError, match=r"the scores were computed from another dataset, with digest [0-9a-f]{12}; the digest of this dataset is"):
        shaver.Scores.open(scores.path, other)
    # A night scores a window, also one of a single day.
    command("nightly", "score", "--model", planted.model, "--dataset", planted.dataset, "--run", "n", "--splits", "val", "--out", tmp_path / "n.arrow")
    assert shaver.Scores.open(tmp_path / "n.arrow", planted.dataset).dataset is not None


def test_swapped_arguments(planted: Planted, scores: shaver.Scores) -> None:
    model, ds = shaver.Model(planted.model), shaver.Dataset.open(planted.dataset)
    calls: list[tuple[Any, str]] = [
        (lambda: shaver.score(ds, model), "the dataset is a Model, expected a Dataset or the path of a folder"),  # type: ignore[arg-type]
        (lambda: shaver.evaluate(ds, model), "the dataset is a Model, expected"),  # type: ignore[arg-type]
        (lambda: shaver.prune(scores, model), "the scores file is a Model, expected Scores or a path"),  # type: ignore[arg-type]
        (lambda: shaver.sweep(model, ds, scores), "the dataset is a Scores, expected"),  # type: ignore[arg-type]
        (lambda: shaver.sweep(model, ds, ds), "the scores file is a Dataset, expected Scores or a path"),  # type: ignore[arg-type]
        (lambda: shaver.Dataset.open([planted.dataset]), r"the dataset is a list, expected .*Dataset\(first, second\)"),  # type: ignore[arg-type]
        (lambda: shaver.FieldValues(scores), "the scores file is a Scores, expected a path"),  # type: ignore[arg-type]
        (lambda: shaver.Sweep(ds), "the file of the sweep is a Dataset, expected a path"),  # type: ignore[arg-type]
    ]
    for call, message in calls:
        with pytest.raises(shaver.BadInputError, match=message):
            call()


def test_saved_scores(planted: Planted, scores: shaver.Scores, tmp_path: Path) -> None:
    saved = scores.save(tmp_path / "saved.arrow")
    assert Path(saved.path).read_bytes() == Path(scores.path).read_bytes() and saved.report == scores.report
    opened = shaver.Scores.open(tmp_path / "saved.arrow", planted.dataset)
    assert opened.document == scores.document and opened.dataset is not None


def test_sweep_prune_evaluate_check_report(planted: Planted, scores: shaver.Scores, tmp_path: Path) -> None:
    model = planted.model
    common = ("--model", model, "--scores", scores.path)
    data = ("--dataset", planted.dataset)
    command("sweep", *common, *data, "--sparsities", "0.5,0.9", "--methods", "magnitude,frequency", "--calibrate", "--out", tmp_path / "want.json")
    sweep = shaver.sweep(model, scores, planted.dataset, sparsities=[0.5, 0.9], methods=["magnitude", "frequency"], calibrate=True)
    assert Path(sweep.path).read_bytes() == (tmp_path / "want.json").read_bytes()
    assert shaver.Sweep.open(tmp_path / "want.json").document == sweep.document
    table = sweep.to_arrow()
    assert table.num_rows == 7 and {"method", "sparsity", "auc", "log_loss", "auc_difference_low"} <= set(table.column_names)
    assert sweep.to_pandas()["auc"].tolist() == sweep.to_polars()["auc"].to_list() == [point["auc"] for point in sweep.document["points"]]

    command("prune", *common, "--sparsity", "0.9", "--out", tmp_path / "want.safetensors")
    pruned = shaver.prune(model, scores, sparsity=0.9, out=tmp_path / "pruned.safetensors")
    assert pruned == tmp_path / "pruned.safetensors"
    assert pruned.read_bytes() == (tmp_path / "want.safetensors").read_bytes()
    text = shaver.prune(str(model), scores, parameters=5000, calibrate=True, values="int8", out=str(tmp_path / "int8.safetensors"))
    command("prune", *common, *data, "--parameters", "5000", "--calibrate", "--values", "int8", "--out", tmp_path / "want8.safetensors")
    assert Path(text).read_bytes() == (tmp_path / "want8.safetensors").read_bytes()

    want = json.loads(command("evaluate", "--model", pruned, "--against", model, *data, "-o", "json"))
    measured = shaver.evaluate(pruned, planted.dataset, against=model, predictions=tmp_path / "p.parquet")
    assert measured.document == want and measured.auc == want["auc"] and measured.log_loss == want["log_loss"] and measured.rmse is None
    assert measured.differences == {"auc": want["against"]["auc_difference"], "log_loss": want["against"]["log_loss_difference"]}
    assert (tmp_path / "p.parquet").is_file()

    want = json.loads(command("check", "--model", pruned, "--against", model, *data, "-o", "json", exit_code=7))
    failed = shaver.check(pruned, planted.dataset, against=model)
    assert failed.document == want and not failed and not failed.passed and failed.reason == want["reason"]
    assert shaver.check(model, planted.dataset, against=model)

    command("report", *common, *data, "--sweep", sweep.path, "--out", tmp_path / "want.html")
    page = shaver.report(model, scores, sweep=sweep, out=tmp_path / "report.html")
    assert Path(page.path).read_bytes() == (tmp_path / "want.html").read_bytes()
    assert page._repr_html_().startswith("<iframe srcdoc=")
    assert Path(shaver.report(model, scores, sweep=sweep).path).read_bytes() == Path(page.path).read_bytes()


def test_state_dict_in_and_out(planted: Planted, scores: shaver.Scores, state: dict[str, Any], tmp_path: Path) -> None:
    before = {name: array.copy() for name, array in state.items()}
    pruned = shaver.prune(state, scores, sparsity=0.8)
    command("prune", "--model", planted.model, "--scores", scores.path, "--sparsity", "0.8", "--dense", "--out", tmp_path / "dense.safetensors")
    want = {name: np.array(array) for name, array in _tensors.read(tmp_path / "dense.safetensors")}
    assert list(pruned) == list(state)
    for name in state:
        assert _tensors.same_bits(state[name], before[name])
        assert _tensors.same_bits(np.asarray(pruned[name]), want[name])
        assert (pruned[name] is state[name]) == (name != "embedding.weight")
    assert shaver.evaluate(pruned, planted.dataset).document == shaver.evaluate(tmp_path / "dense.safetensors", planted.dataset).document


def test_model(planted: Planted, state: dict[str, Any]) -> None:
    dims = [1200, 1000, 40, 300, 6, 24, 180, 600, 10, 240]
    model = shaver.Model(state, field_dims=dims)
    assert model.digest == shaver.Model(planted.model).digest and model.document["architecture"] == "dcnv2"
    for match, source, options in [
        ("field_dims", state, {}),
        ("sum to 6", state, {"field_dims": [1, 2, 3]}),
        ("the state dict is empty", {}, {}),
        ("_bias is a list", {"_bias": [1.0]}, {}),
        ("has the type complex64", {"_bias": np.zeros(1, np.complex64)}, {}),
        ("the model is a int", 3, {}),
        ("for models in memory", planted.model, {"field_dims": dims}),
    ]:
        with pytest.raises(shaver.BadInputError, match=match):
            shaver.Model(source, **options)  # type: ignore[arg-type]


def test_files_of_models_are_deleted(planted: Planted, scores: shaver.Scores, state: dict[str, Any]) -> None:
    def files() -> int:
        return sum(path.suffix == ".safetensors" for path in scratch().rglob("*"))

    before = files()
    shaver.evaluate(shaver.prune(state, scores, sparsity=0.5), planted.dataset)
    assert files() == before
    model = shaver.Model(state, field_dims=scores.field_dims)
    pruned = shaver.prune(model, scores, sparsity=0.5)
    assert files() == before + 2 and shaver.evaluate(pruned, planted.dataset, against=model).differences
    del model, pruned
    assert files() == before


def test_prune_needs_out_for_a_path(planted: Planted, scores: shaver.Scores) -> None:
    with pytest.raises(shaver.BadInputError, match="needs out"):
        shaver.prune(planted.model, scores, sparsity=0.5)
    with pytest.raises(shaver.UsageError, match=r"needs one of sparsity, parameters, bytes, max_rise and layers$"):
        shaver.prune(planted.model, scores, out="unused.safetensors")


def test_plots(planted: Planted, scores: shaver.Scores) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    bars: list[Any] = list(scores.plot().patches)
    assert sorted(bar.get_width() for bar in bars) == sorted(field["sum"] for field in scores.document["fields"])
    sweep = shaver.sweep(planted.model, scores, planted.dataset, sparsities=[0.5, 0.9], calibrate=False)
    auc, log_loss = sweep.plot().axes
    drawn = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in auc.lines}
    assert drawn["shapley-rms"] == [point["auc"] for point in sweep.document["points"] if point["method"] == "shapley-rms"]
    assert set(drawn) == {"unpruned", "shapley-rms", "magnitude"} and log_loss.get_ylabel() == "LogLoss"


def test_one_answer(planted: Planted, scores: shaver.Scores, tmp_path: Path) -> None:
    """Sweeps, pages and checks say which table to ship in the same lines, and compress makes a file of it."""
    sweep = shaver.sweep(planted.model, scores, planted.dataset, sparsities=[0.5], methods=[])
    said = command("sweep", "--model", planted.model, "--scores", scores.path, "--dataset", planted.dataset, "--sparsities", "0.5", "--methods=")
    assert len(sweep.answer) >= 4 and "\n".join(sweep.answer) in said
    page = Path(shaver.report(planted.model, scores, sweep=sweep).path).read_text(encoding="utf-8")
    assert "</li><li>".join(sweep.answer) in page
    pruned = shaver.prune(planted.model, scores, sparsity=0.5, calibrate=True, dataset=planted.dataset, out=tmp_path / "pruned.safetensors")
    checked = shaver.check(pruned, planted.dataset, against=planted.model, max_auc_drop=1, max_logloss_rise=1)
    assert [line for line in checked.answer if not line.startswith("certain within 1: ")] == sweep.answer
    made = shaver.compress(planted.model, planted.dataset, tmp_path / "small.safetensors", within=0.05, scores=scores)
    assert made and made.path == str(tmp_path / "small.safetensors") and Path(made.page.path).exists()
    assert any(line.startswith("certain within 0.05: sparsity ") for line in made.answer)
    failed = shaver.compress(planted.model, planted.dataset, tmp_path / "none.safetensors", within=1e-9, scores=scores)
    assert not failed and failed.path is None and Path(failed.page.path).exists()


def test_a_calibrated_sweep_shows_what_the_report_shows(planted: Planted, scores: shaver.Scores) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    sweep = shaver.sweep(planted.model, scores, planted.dataset, sparsities=[0.9, 0.95], calibrate=True)
    assert any(point["log_loss"] != point["calibrated_log_loss"] for point in sweep.document["points"])
    _, loss = sweep.plot().axes
    assert loss.get_ylabel() == "calibrated LogLoss"
    lines = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in loss.lines}
    for method in ("shapley-rms", "magnitude"):
        assert lines[method] == [point["calibrated_log_loss"] for point in sweep.document["points"] if point["method"] == method]
    assert lines["unpruned"] == [sweep.document["unpruned"]["calibrated_log_loss"]] * 2
    page = sweep._repr_html_()
    assert ">calibrated LogLoss</th>" in page and f"{sweep.document['points'][0]['calibrated_log_loss']:.6f}" in page
    report = Path(shaver.report(planted.model, scores, sweep=sweep).path).read_text(encoding="utf-8")
    assert f'<td class="level">{sweep.document["unpruned"]["calibrated_log_loss"]:.4f}</td>' in report


def test_a_method_has_one_colour(planted: Planted, scores: shaver.Scores) -> None:
    pytest.importorskip("matplotlib").use("Agg")

    def colours(methods: list[str]) -> dict[str, str]:
        sweep = shaver.sweep(planted.model, scores, planted.dataset, sparsities=[0.5, 0.9], methods=methods)
        return {str(line.get_label()): str(line.get_color()) for line in sweep.plot().axes[0].lines}

    few, more = colours(["frequency"]), colours(["magnitude", "random", "frequency"])
    assert few["frequency"] == more["frequency"] and len(set(more.values())) == len(more)


def test_plot_of_models_joins_no_points(planted: Planted, scores: shaver.Scores) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    sweep = shaver.sweep(planted.model, scores, planted.dataset, sparsities=[0.5, 0.8, 0.9], methods=["ptq8"], models=[planted.model])
    sweep.document["points"][0]["difference"]["auc"]["low"] = None  # as with too few rows
    auc = sweep.plot().axes[0]
    lines = {str(line.get_label()): line for line in auc.lines}
    assert {"unpruned", "ptq8", "model.safetensors"} < set(lines)
    assert all((line.get_linestyle() == "None") == (name == "model.safetensors") for name, line in lines.items())


def cells(page: str) -> list[str]:
    """Returns the texts of the cells of a page, which must be well-formed."""
    return ["".join(cell.itertext()) for cell in ElementTree.fromstring(page).iter("td")]


def test_representations(planted: Planted, scores: shaver.Scores, state: dict[str, Any]) -> None:
    model = shaver.Model(planted.model)
    assert repr(model) == "Model(dcnv2, 10 fields, 28,800 parameters)" and model.kept is None and model.sparsity is None
    pruned = shaver.prune(shaver.Model(state, field_dims=scores.field_dims), scores, sparsity=0.9, calibrate=True)
    assert repr(pruned) == "Model(dcnv2, 10 fields, 28,800 parameters, pruned: 2,880 kept, sparsity 0.9)"
    assert repr(shaver.Model(pruned.path)) == repr(pruned) and shaver.Model(pruned.path).kept == 2880
    assert "28,800 parameters" in model._repr_html_() and "2,880 kept, sparsity 0.9" in pruned._repr_html_()
    kept = cells(pruned._repr_html_())[2::4]
    assert sum(int(count.replace(",", "")) for count in kept) == 2880

    ds = shaver.Dataset.open(planted.dataset)
    assert cells(ds._repr_html_())[:2] == ["train", f"{ds.document['splits'][0]['rows']:,}"] and "user" in cells(ds._repr_html_())
    found = cells(scores._repr_html_())
    assert found[:4:3] == [max(scores.document["fields"], key=lambda f: float(f["sum"]))["name"], f"{max(f['sum'] for f in scores.document['fields']):.6f}"]
    path = shaver.Scores.open(planted.folder / "order.arrow")
    assert cells(path._repr_html_())[2] == "28,800" and "and " in path._repr_html_()

    sweep = shaver.sweep(model, scores, ds, sparsities=[0.5])
    point = sweep.document["points"][0]
    assert cells(sweep._repr_html_())[:3] == ["shapley-rms", "0.5", f"{point['auc']:.6f}"]
    measured = shaver.evaluate(pruned, ds, against=model)
    assert cells(measured._repr_html_())[:3] == ["AUC", f"{measured.auc:.6f}", f"{measured.differences['auc']['value']:+.6f}"]
    assert cells(shaver.evaluate(model, ds)._repr_html_())[::2] == ["AUC", "LogLoss"]
    failed = shaver.check(pruned, ds, against=model)
    assert "failed: The pruned model fails" in failed._repr_html_() and cells(failed._repr_html_())[6::7] == ["no", "no"]


def test_representations_are_escaped(planted: Planted, tmp_path: Path) -> None:
    table = pa.table({"click": [0, 1] * 30, "<b>&": [f"v{i % 3}" for i in range(60)]})
    ds = shaver.Dataset.from_frame(table, label="click")
    page = ds._repr_html_()
    assert "<b>&" in cells(page) and "&lt;b&gt;&amp;" in page
    # A dataset without a folder of its own has no path that is worth a look.
    assert "in a temporary folder: 60 rows" in repr(ds) and "in a temporary folder: 60 rows" in page


def test_errors_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(shaver.BadInputError("row 3")))
    assert isinstance(error, shaver.BadInputError) and (str(error), error.exit_code) == ("row 3", 42)
