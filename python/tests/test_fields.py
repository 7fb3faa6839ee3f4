"""The values of fields are those of the command, and are frames, tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FIELDS, Planted, command
from test_scores import cells

import shaver


@pytest.fixture(scope="module")
def values(planted: Planted) -> shaver.FieldValues:
    return shaver.fields(planted.model, planted.dataset, baseline="codebook", estimator="permutation", passes=2)


def test_values_are_those_of_the_command(planted: Planted, values: shaver.FieldValues, tmp_path: Path) -> None:
    flags = ("--players", "fields", "--baseline", "codebook", "--estimator", "permutation", "--passes", "2")
    command("score", "--model", planted.model, "--dataset", planted.dataset, *flags, "--out", tmp_path / "want.arrow")
    assert Path(values.path).read_bytes() == (tmp_path / "want.arrow").read_bytes()
    assert shaver.FieldValues.open(tmp_path / "want.arrow").document == values.document
    assert values.report is not None and values.report["rows"] == values.document["rows"]
    assert set(values.values) == set(FIELDS)
    assert sum(values.values.values()) == pytest.approx(values.document["loss_empty"] - values.document["loss_full"], abs=1e-6)


def test_tables(values: shaver.FieldValues) -> None:
    table = values.to_arrow()
    assert table.column_names == ["field", "value", "low", "high", "share"] and table.num_rows == len(FIELDS)
    assert dict(zip(table["field"].to_pylist(), table["value"].to_pylist(), strict=True)) == values.values
    frame = values.to_pandas()
    assert frame["value"].tolist() == sorted(frame["value"], reverse=True) == values.to_polars()["value"].to_list()
    assert (frame["low"] < frame["value"]).all() and (frame["value"] < frame["high"]).all()
    assert frame["share"].sum() == pytest.approx(1, abs=1e-6)


def test_representation(values: shaver.FieldValues) -> None:
    assert repr(values) == f"FieldValues(10 fields, permutation, baseline codebook, {values.document['rows']:,} rows)"
    found, first = cells(values._repr_html_()), values.document["field_values"][0]
    assert found[:4] == [first["field"], f"{first['value']:+.6f}", f"[{first['low']:+.6f}, {first['high']:+.6f}]", f"{first['share']:.1%}"]
    assert values._repr_html_().count("<svg ") == len(FIELDS)


def test_few_rows_have_no_intervals(planted: Planted) -> None:
    few = shaver.fields(planted.model, planted.dataset, max_rows=4)
    assert few.to_arrow()["low"].null_count == few.to_arrow()["high"].null_count == len(FIELDS)
    assert cells(few._repr_html_())[2] == "" and "<path" not in few._repr_html_() and "<path" in shaver.fields(planted.model, planted.dataset)._repr_html_()


def test_plot(values: shaver.FieldValues) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    ax = values.plot()
    bars: list[Any] = list(ax.patches)
    drawn = {label.get_text(): bar.get_width() for label, bar in zip(ax.get_yticklabels(), bars, strict=True)}
    assert drawn == values.values
    (lines,) = ax.collections
    assert len(lines.get_segments()) == len(FIELDS)  # type: ignore[attr-defined]


def test_pairs(planted: Planted, values: shaver.FieldValues, tmp_path: Path) -> None:
    both = shaver.fields(planted.model, planted.dataset, pairs=True, baseline="codebook", estimator="permutation", passes=2, out=tmp_path / "pairs.arrow")
    assert both.values == values.values and both.document["spec"]["players"] == "pairs"
    table, first = both.pairs, both.document["field_pairs"][0]
    assert table.num_rows == 45 and table.slice(0, 1).to_pylist() == [
        {"first": first["fields"][0], "second": first["fields"][1], "value": first["value"], "low": first["low"], "high": first["high"]}
    ]
    assert ", ".join(first["fields"]) in cells(both._repr_html_())
    with pytest.raises(shaver.BadInputError, match=r"has no values of pairs: compute them with shaver\.fields\(\.\.\., pairs=True\)"):
        _ = values.pairs
    pytest.importorskip("matplotlib").use("Agg")
    ax = both.plot_pairs()
    names = [label.get_text() for label in ax.get_yticklabels()]
    matrix = np.asarray(ax.images[0].get_array())
    assert names == list(both.values)
    assert matrix[names.index(first["fields"][0]), names.index(first["fields"][1])] == first["value"]


def test_other_scores_are_refused(planted: Planted, values: shaver.FieldValues) -> None:
    with pytest.raises(shaver.BadInputError, match=r"has the values of fields: open it with shaver\.FieldValues"):
        shaver.Scores.open(values.path)
    with pytest.raises(shaver.BadInputError, match=r"has no values of fields: open it with shaver\.Scores"):
        shaver.FieldValues.open(planted.scores)
    with pytest.raises(shaver.UsageError, match=r"shaver\.fields gives the values of fields"):
        shaver.score(planted.model, planted.dataset, players="fields")
