"""The values of fields and of pairs of them are those of an enumeration in onnxruntime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shaver._binary import binary

if not os.environ.get("CI"):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")

# With and without a first order, dense inputs, and lists that share tables.
GRAPHS = ["fuxictr-deepfm.dynamo", "deepctr-torch-deepfm.legacy", "deepctr-torch-bags.legacy", "dlrm.dynamo", "histories-din"]


def test_values_of_fields_are_those_of_onnxruntime() -> None:
    script = Path(__file__).parents[2] / "bench" / "fields" / "enumerate.py"
    ended = subprocess.run([sys.executable, str(script), binary(), *GRAPHS], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count(", marginal: ") >= len(GRAPHS) and ended.stdout.count(", zero: ") >= 3, ended.stdout
