"""The package in notebooks: the example, its pictures, progress and interrupts."""

from __future__ import annotations

import base64
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Planted, children

if not os.environ.get("CI"):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
import nbclient
import nbformat
from jupyter_client.manager import KernelManager

EXAMPLE = Path(__file__).parents[1] / "examples" / "prune.ipynb"


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def read() -> Any:
    return nbformat.read(EXAMPLE, as_version=4)  # type: ignore[no-untyped-call,unused-ignore]


def pictures_of(notebook: Any) -> list[list[str]]:
    """Returns the types of each cell's pictures."""
    return [[kind for output in cell.get("outputs", []) for kind in output.get("data", {}) if kind.startswith("image/")] for cell in notebook.cells]


def test_stored_outputs() -> None:
    notebook = read()
    pictures = [output["data"]["image/png"] for output in outputs(notebook) if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
    tables = [output for output in outputs(notebook) if output.get("data", {}).get("text/html", "").startswith("<div>")]
    assert len(tables) >= 6
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run python/notebook.py"
    text = EXAMPLE.read_text(encoding="utf-8")
    assert len(text) < 400_000
    assert not re.search(r"/tmp/|/home/|/root/|/Users/|shaver-\w{8}/", re.sub(r'"image/png": "[^"]*"', "", text))


@pytest.mark.torch
def test_example(tmp_path: Path) -> None:
    if not os.environ.get("CI"):
        pytest.importorskip("torch")
    notebook = read()
    stored = pictures_of(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    found = outputs(notebook)
    pictures = [base64.b64decode(output["data"]["image/png"]) for output in found if "image/png" in output.get("data", {})]
    assert len(pictures) == 2 and all(len(picture) > 10_000 for picture in pictures)
    assert pictures_of(notebook) == stored, "run python/notebook.py"
    text = "".join(output.get("text", "") for output in found)
    shown = "".join(output.get("data", {}).get("text/plain", "") for output in found)
    assert "Check(passed" in shown and "2,792 kept, sparsity 0.5" in shown and text.count("pruned, ") == 6 and text.count("the same bits") == 4
    assert any(output.get("data", {}).get("text/html", "").startswith("<iframe srcdoc=") for output in found)
    assert (tmp_path / "report.html").is_file()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_progress_and_interrupt_of_a_kernel(planted: Planted, tmp_path: Path) -> None:
    manager = KernelManager()
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        client.execute("import os, shaver; print('process', os.getpid())")
        code = f"shaver.score({str(planted.model)!r}, {str(planted.dataset)!r}, estimator='permutation', passes=2000, rows_per_shard=50)"
        client.execute(code)
        pid, lines, error = 0, [], ""
        end = time.monotonic() + 60
        while not error:
            message = client.get_iopub_msg(timeout=end - time.monotonic())
            content = message["content"]
            if message["msg_type"] == "stream" and content["text"].startswith("process "):
                pid = int(content["text"].split()[1])
            elif message["msg_type"] in ("display_data", "update_display_data"):
                lines.append((message["msg_type"], content["data"]["text/plain"]))
                if len(lines) == 2:
                    assert len(children(pid)) == 1
                    manager.interrupt_kernel()
            elif message["msg_type"] == "error":
                error = content["ename"]
        assert error == "KeyboardInterrupt"
        assert children(pid) == []
        assert [kind for kind, _ in lines[:2]] == ["display_data", "update_display_data"]
        assert all(text.startswith("score [") and " rows, " in text for _, text in lines)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
