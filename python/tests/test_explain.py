"""Explanations are those of the command, and are frames, tables and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import FIELDS, Planted, command
from test_scores import cells

import shaver


@pytest.fixture(scope="module")
def pruned(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pruned") / "pruned.safetensors"
    command("prune", "--model", planted.model, "--scores", planted.scores, "--sparsity", "0.9", "--out", out)
    return out


@pytest.fixture(scope="module")
def both(planted: Planted, pruned: Path) -> shaver.Explanation:
    return shaver.explain(pruned, planted.dataset, rows=[7, 1], against=planted.model)


def test_explanations_are_those_of_the_command(planted: Planted, pruned: Path, both: shaver.Explanation) -> None:
    files = ("--model", pruned, "--against", planted.model, "--dataset", planted.dataset)
    assert both.document == json.loads(command("explain", *files, "--rows", "7,1", "-o", "json"))
    chosen = shaver.explain(pruned, planted.dataset, against=planted.model, split="val", background=8).document
    assert chosen == json.loads(command("explain", *files, "--split", "val", "--background", "8", "-o", "json")) and chosen["sampled"] > 1
    assert [row["row"] for row in shaver.explain(pruned, planted.dataset).document["rows"]] == [0]


def test_tables(planted: Planted, both: shaver.Explanation) -> None:
    frame = both.to_pandas()
    assert both.to_arrow().column_names == ["row", "field", "values", "effect", "against", "change", "se"] and len(frame) == 2 * len(FIELDS)
    for row in both.document["rows"]:
        own = frame[frame["row"] == row["row"]]
        assert set(own["field"]) == set(FIELDS) and (own["change"] == own["effect"] - own["against"]).all()
        assert row["base"] + own["effect"].sum() == pytest.approx(row["logit"], abs=1e-9)
        assert row["against"]["base"] + own["against"].sum() == pytest.approx(row["against"]["logit"], abs=1e-9)
    one = shaver.explain(planted.model, planted.dataset, rows=7)
    assert one.to_arrow()["against"].null_count == one.to_arrow()["change"].null_count == len(FIELDS)
    # The orders and the background rows are the same.
    assert {e["field"]: e["effect"] for e in one.document["rows"][0]["effects"]} == {e["field"]: e["against"] for e in both.document["rows"][0]["effects"]}


def test_representation(planted: Planted, both: shaver.Explanation) -> None:
    first = both.document["rows"][0]
    assert repr(both).startswith(f"Explanation(test: row 7 logit {first['logit']:+.4f}, row 1 logit ")
    page, effect = both._repr_html_(), first["effects"][0]
    change = effect["effect"] - effect["against"]
    numbers = [f"{effect['against']:+.4f}", f"{effect['effect']:+.4f}", f"{change:+.4f}", f"{effect['se']:.4f}"]
    assert cells(page)[:6] == [effect["field"], ", ".join(effect["values"]), *numbers]
    assert f"logit {first['against']['logit']:.4f} to {first['logit']:.4f}" in page and page.count("<table") == 2
    one = shaver.explain(planted.model, planted.dataset, background=1)
    assert cells(one._repr_html_())[3] == "" and "base" in one._repr_html_()


def test_plot(both: shaver.Explanation) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    ax = both.plot(1)
    row = both.document["rows"][1]
    bars: list[Any] = list(ax.patches)
    n = len(FIELDS)
    assert [bar.get_width() for bar in bars] == pytest.approx([e["effect"] for e in row["effects"]] + [e["against"] for e in row["effects"]])
    assert bars[0].get_x() == pytest.approx(row["base"]) and bars[n - 1].get_x() + bars[n - 1].get_width() == pytest.approx(row["logit"])
    assert bars[-1].get_x() + bars[-1].get_width() == pytest.approx(row["against"]["logit"])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["base", *(e["field"] for e in row["effects"]), "logit"]


def test_errors(planted: Planted) -> None:
    with pytest.raises(shaver.UsageError, match=r"expected numbers of rows of the split test, from 0 to \d+"):
        shaver.explain(planted.model, planted.dataset, rows=10**6)
