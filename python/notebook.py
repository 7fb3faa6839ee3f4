"""Runs the example notebook and stores it with its outputs: notebook.py.

The script needs shaver with torch, matplotlib, pandas, nbclient and ipykernel. Run it after a
change of the notebook, or of what its outputs show.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLE = Path(__file__).resolve().parent / "examples" / "prune.ipynb"


def main() -> None:
    notebook = nbformat.read(EXAMPLE, as_version=4)  # type: ignore[no-untyped-call,unused-ignore]
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, record_timing=False, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            # Viewers remove frames from a stored notebook, and then show nothing.
            if output.get("data", {}).get("text/html", "").startswith("<iframe"):
                del output["data"]["text/html"]
    # The versions of this machine say nothing about the example.
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    nbformat.validate(notebook)
    EXAMPLE.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")  # type: ignore[no-untyped-call,unused-ignore]
    print(f"{EXAMPLE.stat().st_size / 1000:.0f} kB  {EXAMPLE.name}")


if __name__ == "__main__":
    main()
