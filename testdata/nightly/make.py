#!/usr/bin/env python3
"""Makes the small click log of this folder, trains a DeepFM on it, and retrains the DeepFM in the ways of retrain.py.

    make.py                 write the files next to this script
    make.py --out DIR       write them to DIR

Everything is drawn from fixed seeds. README.md says what the files hold, and with which versions they were made.
"""

import argparse
import gzip
import pathlib

import numpy as np

from retrain import HERE, WAYS, modules, read_rows, retrain, save, torch, train

FIELDS = {"ad": 24, "site": 16, "hour": 12, "device": 8, "region": 6, "slot": 4}
ROWS = 40000
CONFIG = {"num_factor": 4, "hidden_sizes": [16, 8], "p_dropout": 0.1, "use_batchnorm": True, "embedding_config": {"name": "vanilla"}}
BATCH = 64


def draw():
    """Labels [N] and local ids [N, m]. Low ids are frequent. First-order weights and pairs of features decide about clicks."""
    r = np.random.default_rng(16)
    columns = []
    for size in FIELDS.values():
        share = 1 / np.arange(1, size + 1)
        columns.append(r.choice(size, ROWS, p=share / share.sum()))
    ids = np.stack(columns, axis=1)
    logit = np.full(ROWS, -1.2)
    sizes = list(FIELDS.values())
    vectors = [r.normal(0, 0.5, (size, 3)) for size in sizes]
    for j, size in enumerate(sizes):
        logit += r.normal(0, 0.4, size)[ids[:, j]]
        for k in range(j):
            logit += (vectors[j][ids[:, j]] * vectors[k][ids[:, k]]).sum(1)
    return (r.random(ROWS) < 1 / (1 + np.exp(-logit))).astype(np.int64), ids


def first_model(out, rows):
    """Trains the DeepFM that is retrained."""
    torch.manual_seed(16)
    sizes = list(FIELDS.values())
    module = modules()["deepfm"](sizes, CONFIG)
    with torch.no_grad():
        module.embedding.weight.normal_(0, 0.1)
        module.fc.weight.normal_(0, 0.1)
    labels, ids = read_rows(rows, sizes)
    train(module, labels, ids, 1.0, 3e-3, 4, 16, BATCH)
    with torch.no_grad():
        loss = torch.nn.functional.binary_cross_entropy_with_logits(module(ids), labels).item()
    metrics = {"auc": 0.5, "log_loss": loss}  # the AUC is a placeholder
    save(out / "deepfm.pth", {"state_dict": module.state_dict(), "model_config": CONFIG, "val_metrics": metrics, "field_dims": sizes}, module)
    print(f"deepfm.pth: {labels.mean():.1%} clicks, loss {loss:.4f} on its own rows")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    labels, ids = draw()
    rows = out / "rows.csv.gz"
    lines = [",".join(["label", *FIELDS])] + [",".join(map(str, row)) for row in np.column_stack([labels, ids])]
    rows.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
    first_model(out, rows)
    retrain(out / "deepfm.pth", rows, out, WAYS, 1, BATCH, False)
    for path in out.iterdir():
        assert path.stat().st_size < 200_000, path


if __name__ == "__main__":
    main()
