#!/usr/bin/env python3
"""Retrains a click model as nightly pipelines do, lightly or heavily.

    retrain.py MODEL.pth ROWS.csv.gz --out DIR      write DIR/MODEL-WAY.pth for each way
    retrain.py MODEL.pth ROWS.csv.gz --out DIR --ways light,heavy

The ways are
    light      one pass over 10% of the rows, learning rate 1e-4
    heavy      one pass over all rows, learning rate 1e-3
    heavier    three such passes

The checkpoint is an FM, DeepFM, DCN-Mix or DCNv2 as testdata/golden/make.py saves it. The rows are those of "shaver dataset import csv":
a header, then the label and one id for each field, local ids unless --global-ids is given. Training is Adam on the mean loss of batches of
--batch rows in random order, with the checkpoint's dropout and BatchNorm. Everything follows from --seed. README.md says how far each way
moves the models of this folder.

Needs torch, numpy and pandas. The checkpoint is unpickled, so use only files that you trust.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import pandas
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
PREFIX = "_orig_mod."  # what torch.compile puts before every key
WAYS = {  # name: portion of the rows, learning rate, passes
    "light": (0.1, 1e-4, 1),
    "heavy": (1.0, 1e-3, 1),
    "heavier": (1.0, 1e-3, 3),
}


def modules():
    """The modules of testdata/golden/make.py, by the kind of the model."""
    sys.path.insert(0, str(HERE.parent / "golden"))
    import make

    return make.MODULES


def kind_of(state):
    if "cross_head.gates" in state:
        return "dcn-mix"
    if "cross_head.layers.0.weight" in state:
        return "dcnv2"
    return "deepfm" if any(key.startswith("_deep_branch.") for key in state) else "fm"


def load(path):
    """The checkpoint as it was saved, and its module."""
    checkpoint = torch.load(path, weights_only=False)
    state = {key.removeprefix(PREFIX): tensor for key, tensor in checkpoint["state_dict"].items()}
    module = modules()[kind_of(state)]([int(size) for size in checkpoint["field_dims"]], checkpoint["model_config"])
    module.load_state_dict(state)  # strict: no key more, none less
    return checkpoint, module


def read_rows(path, field_dims, global_ids=False):
    """Labels [N] and global ids [N, m]."""
    table = pandas.read_csv(path, dtype=np.int64).to_numpy()
    labels, ids = table[:, 0], table[:, 1:]
    if not global_ids:
        ids = ids + np.cumsum([0] + [int(size) for size in field_dims[:-1]])
    return torch.from_numpy(labels.astype(np.float32)), torch.from_numpy(ids)


def train(module, labels, ids, portion, rate, passes, seed, batch):
    """Trains the module in place and leaves it in evaluation mode."""
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    chosen = draw.permutation(len(labels))[: round(portion * len(labels))]
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    module.train()
    for _ in range(passes):
        order = torch.from_numpy(draw.permutation(chosen))
        for chunk in order.split(batch):
            if len(chunk) < 2:
                continue  # BatchNorm needs two rows
            loss = nn.functional.binary_cross_entropy_with_logits(module(ids[chunk]), labels[chunk])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    module.eval()


def save(path, checkpoint, module):
    """Saves the module in the form of the checkpoint, with the same prefix of the keys."""
    prefix = PREFIX if all(key.startswith(PREFIX) for key in checkpoint["state_dict"]) else ""
    state = {prefix + key: tensor.detach().clone() for key, tensor in module.state_dict().items()}
    torch.save({**checkpoint, "state_dict": state}, path)


def moved(before, after):
    """Root mean square of the change of the table, relative to the table."""
    return float((after - before).square().mean().sqrt() / before.square().mean().sqrt())


def retrain(source, rows, out, ways, seed, batch, global_ids):
    for way in ways:
        checkpoint, module = load(source)
        before = module.embedding.weight.detach().clone()
        labels, ids = read_rows(rows, checkpoint["field_dims"], global_ids)
        train(module, labels, ids, *WAYS[way], seed, batch)
        target = out / f"{source.stem}-{way}.pth"
        save(target, checkpoint, module)
        print(f"{target.name}: the table moved by {moved(before, module.embedding.weight.detach()):.1%}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the retrained checkpoints")
    parser.add_argument("--ways", default=",".join(WAYS), help="ways to retrain, separated by commas (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=2048, help="rows of a batch (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--global-ids", action="store_true", help="the rows have global ids")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    retrain(options.model, options.rows, options.out, options.ways.split(","), options.seed, options.batch, options.global_ids)


if __name__ == "__main__":
    main()
