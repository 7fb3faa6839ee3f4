#!/usr/bin/env python3
"""Saves tiny models of real packages as users save them, with rows and the packages' logits.

    make.py                 write the files next to this script
    make.py NAME ...        write only these

README.md says what the files hold, and with which versions they were made.
"""

import json
import pathlib
import shutil
import sys
from unittest import mock

import cases
from packages import logging, torch, versions

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = {"fuxictr": "fuxictr", "deepctr-torch": "deepctr-torch", "pytorch-fm": "torchfm", "torch-rechub": "torch-rechub", "recbole": "recbole"}


def make(case):
    model = case.model()
    logits, difference = case.logits(model)
    path = HERE / case.file
    saved = case.save(model)
    if isinstance(saved, pathlib.Path):  # the package wrote the file
        shutil.copyfile(saved, path)
    elif case.legacy:
        with mock.patch("inspect.getsourcelines", side_effect=OSError):  # or the old format stores the source of each class
            torch.save(saved, path, _use_new_zipfile_serialization=False)
    else:
        torch.save(saved, path)
    size = path.stat().st_size
    assert size < 50_000, (case.name, size)
    assert difference < 5e-6, (case.name, difference)
    ids, dense = case.rows()
    document = {
        "file": case.file,
        "family": case.family,
        "package": versions(PACKAGES[case.family], "torch"),
        "form": case.form,
        "kind": case.kind,
        "why": case.why,
        "fields": [{"name": name, "rows": rows} for name, rows in case.fields],
        "dense": case.dense,
        "rows": ids.tolist(),
        "values": [[float(v) for v in row] for row in dense],
        "logits": logits.tolist(),
    }
    text = json.dumps(document, indent=1)
    for key in ("rows", "values", "logits", "fields", "dense"):  # one line for each
        text = text.replace(json.dumps(document[key], indent=1).replace("\n", "\n "), json.dumps(document[key]))
    (HERE / (case.name + ".json")).write_text(text + "\n")
    print(f"{case.file}: {size} bytes, {case.kind or 'not a kind: ' + case.why}, float32 differs by {difference:.1e}")


def main():
    logging.disable(logging.WARNING)
    for case in cases.CASES:
        if len(sys.argv) == 1 or case.name in sys.argv[1:]:
            make(case)


main()
