"""What is left without fields and columns is that of the command, and the path is a frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FIELDS, Planted, command
from test_scores import cells

import shaver
from shaver import _tensors


def test_removal_is_that_of_the_command(planted: Planted, tmp_path: Path) -> None:
    removal = shaver.remove(planted.model, planted.dataset, fields=8, columns=5)
    flags = ("--fields", "8", "--columns", "5")
    command("prune", "--model", planted.model, "--dataset", planted.dataset, *flags, "--out", tmp_path / "want.safetensors")
    assert Path(removal.model.path).read_bytes() == (tmp_path / "want.safetensors").read_bytes()
    assert Path(removal.path).read_bytes() == (tmp_path / "want.safetensors.path.json").read_bytes()
    assert len(removal.removed) == 2 and set(removal.removed) < set(FIELDS)
    assert len(removal.model.document["field_dims"]) == 8
    state = removal.state_dict()
    assert any(array.shape == (removal.document["after"]["entries"] // 5, 5) for array in state.values())
    rows = shaver.evaluate(removal.model, planted.dataset, against=planted.model)
    assert rows.document["rows"] > 0


def test_tables(planted: Planted, tmp_path: Path) -> None:
    removal = shaver.remove(planted.model, planted.dataset, fields=8, columns=7)
    table = removal.to_arrow().to_pylist()
    assert [step["field"] for step in table[:2]] == removal.removed and table[2]["field"] is None and len(table[2]["gone"]) == 1
    assert [step["fields"] for step in table] == [9, 8, 8] and all(step["taken"] for step in table)
    assert all(step["low"] < step["rise"] < step["high"] for step in table[:2])
    assert removal.to_pandas()["multiplications"].is_monotonic_decreasing
    assert cells(removal._repr_html_())[:4] == [table[0]["field"], "9", "8", f"{table[0]['multiplications']:,}"]
    before, after = removal.document["before"]["bytes"], removal.document["after"]["bytes"]
    assert repr(removal) == f"Removal(10 -> 8 fields, 8 -> 7 columns, 10 -> 8 look-ups, {before:,} -> {after:,} bytes)"


def test_nothing_to_remove(planted: Planted) -> None:
    nothing: list[list[str] | None] = [None, []]
    for names in nothing:
        with pytest.raises(shaver.UsageError, match="remove needs one of fields, columns, drop_fields and max_rise"):
            shaver.remove(planted.model, planted.dataset, drop_fields=names)


def test_bound(planted: Planted) -> None:
    removal = shaver.remove(planted.model, planted.dataset, max_rise=0.02)
    table = removal.to_arrow().to_pylist()
    assert all(step["high"] <= 0.02 for step in table if step["taken"]) and sum(not step["taken"] for step in table) == 2
    assert all(step["high"] > 0.02 for step in table if not step["taken"])


def test_report(planted: Planted) -> None:
    removal = shaver.remove(planted.model, planted.dataset, fields=9)
    values = shaver.fields(planted.model, planted.dataset, baseline="codebook", estimator="permutation", max_rows=100)
    page = Path(shaver.report(planted.model, values, path=removal.path).path).read_text(encoding="utf-8")
    assert "Values of the fields" in page and "Rise of the loss against the look-ups of a row" in page


def test_names(planted: Planted) -> None:
    removal = shaver.remove(planted.model, planted.dataset, drop_fields=["city"])
    assert removal.removed == ["city"] and removal.to_arrow().num_rows == 0
    with pytest.raises(shaver.BadInputError, match="no step of a path was taken"):
        removal.plot()
    with pytest.raises(shaver.UsageError, match='there is no field "town"'):
        shaver.remove(planted.model, planted.dataset, drop_fields=["town"])


def in_memory(planted: Planted) -> dict[str, Any]:
    """Returns the planted model as a state dict."""
    return dict(_tensors.read(str(planted.model)))


def test_memory(planted: Planted) -> None:
    """A state dict keeps its keys."""
    whole = in_memory(planted)
    removal = shaver.remove(whole, planted.dataset, columns=7)
    left = removal.state_dict()
    assert set(left) == set(whole) and all(isinstance(array, np.ndarray) for array in left.values())


def test_plot(planted: Planted) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    removal = shaver.remove(planted.model, planted.dataset, fields=8)
    ax = removal.plot()
    assert np.asarray(ax.lines[0].get_ydata()).tolist() == [0, *removal.to_pandas()["rise"]]
    assert [text.get_text() for text in ax.texts] == removal.removed


def test_one_bound_for_everything(planted: Planted, tmp_path: Path) -> None:
    out = tmp_path / "small.safetensors"
    shaver.prune(planted.model, planted.scores, dataset=planted.dataset, max_rise=0.05, out=out)
    pruned = shaver.Model(out)
    assert pruned.kept is not None and pruned.kept < shaver.Model(planted.model).document["parameters"] / 2
    assert shaver.evaluate(pruned, planted.dataset, against=planted.model, split="val").document["against"]["log_loss_difference"]["high"] <= 0.05
    with pytest.raises(shaver.BadInputError, match="which a model in memory cannot lose"):
        shaver.prune(in_memory(planted), planted.scores, max_rise=0.05)
