"""Exported models go from rows to an .onnx file that a path pruned, and onnxruntime runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shaver._binary import binary

if not os.environ.get("CI"):
    pytest.importorskip("onnxruntime")

GRAPHS = [
    "fuxictr-autoint.legacy",
    "histories-din",
    "tasks-click",
    "tasks-buy",
    "masked-bst.dynamo",
    "masked-sasrec.legacy",
    "masked-transact.dynamo",
    "masked-fignn.dynamo",
    "masked-transformer.legacy",
    "masked-causal.dynamo",
    "fuxictr-din.dynamo",
    "dien.dynamo",
    "gru.legacy",
    "caser.dynamo",
    "ccpm.legacy",
    "fgcnn.dynamo",
    "sim.dynamo",
    "eulernet.legacy",
    "padded-bags.dynamo",
    "last-item.legacy",
]

SLICED = [
    "deepctr-torch-dcnmix.dynamo",
    "deepctr-torch-xdeepfm.legacy",
    "deepctr-torch-bags.dynamo",
    "fuxictr-autoint.legacy",
    "fuxictr-deepfm-numeric.dynamo",
    "fuxictr-din.dynamo",
    "histories-din",
    "tasks-click",
    "masked-transformer.legacy",
    "eulernet.legacy",
]


def test_pruned_files_run_in_onnxruntime() -> None:
    script = Path(__file__).parents[2] / "testdata" / "path" / "pruned.py"
    ended = subprocess.run([sys.executable, str(script), binary(), *GRAPHS], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.endswith(f"{len(GRAPHS)} graphs, 0 failed\n")


def test_sliced_files_run_in_onnxruntime() -> None:
    script = Path(__file__).parents[2] / "testdata" / "path" / "sliced.py"
    ended = subprocess.run([sys.executable, str(script), binary(), *SLICED], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.endswith(f"{len(SLICED)} graphs, 0 failed\n")
