"""What a wheel has besides the package."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

import shaver


def test_licences() -> None:
    if not (Path(shaver.__file__).parent / "bin").exists():
        pytest.skip("the package is not from a wheel with a program")
    files = importlib.metadata.files("shaver") or []
    texts = {f.name: f.read_text() for f in files if f.parent.name == "licenses"}
    assert sorted(texts) == ["LICENSE", "THIRD_PARTY.txt"]
    assert "Apache License" in texts["LICENSE"]
    assert "github.com/spf13/cobra v" in texts["THIRD_PARTY.txt"]
