#!/usr/bin/env python3
"""Loads a file that shaver wrote into the model of the package that made the original.

    check.py NAME FILE                 load_state_dict(strict=True), and print the largest difference to NAME's logits
    check.py NAME FILE --logits JSON   compare with other logits: a list of numbers, one for each of NAME's rows
    check.py NAME FILE --max 1e-5      fail if the largest difference is above this

NAME is one of the cases of this folder, for example fuxictr-deepfm. FILE is .safetensors, or what torch.load reads.
It is unpickled, so use this only on files that you trust.
"""

import argparse
import json
import pathlib
import sys

import cases
from packages import logging, np, randomise, torch


def state_dict(path):
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    value = torch.load(path, map_location="cpu", weights_only=False)
    if isinstance(value, torch.nn.Module):
        value = value.state_dict()
    for key in ("state_dict", "model_state_dict", "model_state", "state", "model"):
        if isinstance(value.get(key), dict):
            value = value[key]
    return value


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name")
    p.add_argument("file", type=pathlib.Path)
    p.add_argument("--logits", type=pathlib.Path)
    p.add_argument("--max", type=float)
    a = p.parse_args()
    logging.disable(logging.WARNING)
    case = next(c for c in cases.CASES if c.name == a.name)
    model = randomise(case.model(), 1)  # other weights, so that loading must replace them all
    cases.strict(model, state_dict(a.file))
    logits, _ = case.logits(model)
    expected = json.loads((a.logits or pathlib.Path(__file__).resolve().parent / (a.name + ".json")).read_text())
    expected = np.array(expected["logits"] if isinstance(expected, dict) else expected)
    difference = float(np.abs(logits - expected).max())
    print(f"{a.file}: loaded with strict=True, largest difference of a logit {difference:.3g}")
    if a.max is not None and not difference <= a.max:
        sys.exit(1)


main()
