"""The code blocks of docs/guide/python.md run as they are, in their order, on data that their text describes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Planted

import shaver
from shaver import _tensors

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_all_blocks_are_run() -> None:
    assert len(BLOCKS) == 3, "a new block needs a test"


def test_first_steps(planted: Planted, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    df = planted.rows.rename_columns(["click", *planted.rows.column_names[1:]]).to_pandas()
    state = {name: np.array(array) for name, array in _tensors.read(planted.model)}
    sizes = shaver.Dataset.open(planted.dataset).field_dims
    names: dict[str, Any] = {"df": df, "model": shaver.Model(state, field_dims=sizes)}
    exec(BLOCKS[0], names)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    whole, pruned = map(float, capsys.readouterr().out.split()[-2:])
    # The rows keep the ids that the model knows, so the dataset scores as one that the command imported.
    encoded = pd.concat([names["ds"].to_arrow(split).to_pandas() for split in ("train", "val", "test")])
    fields = df.columns[1:]
    assert sorted(map(tuple, encoded[fields].to_numpy())) == sorted(map(tuple, df[fields].to_numpy()))
    measured = shaver.evaluate(planted.model, planted.dataset).auc
    assert measured is not None and abs(whole - measured) < 0.1 and whole > 0.7
    assert 0.5 < pruned <= 1
    changed = [name for name in state if not np.array_equal(state[name], names["pruned"].source[name])]
    assert changed == ["embedding.weight"]


@pytest.mark.torch
def test_module() -> None:
    if not os.environ.get("CI"):
        pytest.importorskip("torch")
    import torch
    from torch import nn

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user, self.item = nn.Embedding(7, 4), nn.Embedding(11, 4)
            self.head = nn.Sequential(nn.Linear(9, 8), nn.GELU(), nn.Linear(8, 1))

        def forward(self, users: torch.Tensor, items: torch.Tensor, ages: torch.Tensor) -> torch.Tensor:
            rows = torch.cat([self.user(users), self.item(items), ages.unsqueeze(1)], 1)
            return torch.sigmoid(self.head(rows).squeeze(1))

    names: dict[str, Any] = {"shaver": shaver, "module": Module()}
    names |= {"users": torch.tensor([0, 6]), "items": torch.tensor([10, 0]), "ages": torch.tensor([0.5, 1.0])}
    exec(BLOCKS[1], names)
    assert [field["name"] for field in names["model"].document["fields"]] == ["users", "items"]


def test_cluster(planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No cluster is here. The command accepts all parameters, and fails at the first thing that is missing.
    monkeypatch.chdir(tmp_path)
    with pytest.raises(shaver.BadInputError, match=r"coordinator\.creds"):
        exec(BLOCKS[2], {"shaver": shaver, "model": planted.model, "ds": planted.dataset})
