#!/usr/bin/env python3
"""Trains a small model of ratings with the squared error, exports it to ONNX, and writes its rows.

    make.py                 write the files next to this script
    make.py --out DIR       write them to DIR

Everything is drawn from fixed seeds. README.md says what the files hold, and with which versions they were made.
"""

import argparse
import json
import pathlib

import numpy as np
import onnxruntime
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
FIELDS = [("user", 30), ("item", 20), ("weekday", 7)]
SPLITS = {"train": 1500, "val": 300, "test": 300}
CHECKED = 16


class Ratings(nn.Module):
    """Matrix factorisation next to a tower, as in neural collaborative filtering.

    The output rating is the prediction itself. The output bounded is 1 + 4*sigmoid(rating - 3), which lies between 1 and 5.
    """

    def __init__(self):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 3) for _, size in FIELDS)
        self.biases = nn.ModuleList(nn.Embedding(size, 1) for _, size in FIELDS)
        self.tower = nn.Sequential(nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 1))
        self.mean = nn.Parameter(torch.zeros(1))

    def forward(self, user, item, weekday):
        ids = (user, item, weekday)
        x = [e(i) for e, i in zip(self.embeddings, ids)]
        bias = sum(b(i) for b, i in zip(self.biases, ids))
        rating = self.mean + bias + (x[0] * x[1]).sum(dim=1, keepdim=True) + self.tower(torch.cat(x, dim=1))
        return rating, 1 + 4 * torch.sigmoid(rating - 3)


def planted():
    """Returns ids [rows, 3] and ratings of half points from 1 to 5, drawn from planted tastes."""
    random = np.random.default_rng(1)
    count = sum(SPLITS.values())
    ids = np.stack([random.integers(0, size, count) ** 2 // size for _, size in FIELDS], axis=1)
    users, items = random.normal(0, 0.8, (30, 2)), random.normal(0, 0.8, (20, 2))
    liked, weekend = random.normal(0, 0.6, 20), np.array([0, 0, 0, 0, 0.1, 0.3, 0.3])
    mean = 3.2 + (users[ids[:, 0]] * items[ids[:, 1]]).sum(axis=1) + liked[ids[:, 1]] + weekend[ids[:, 2]]
    return ids, np.clip(np.round(2 * (mean + random.normal(0, 0.4, count))) / 2, 1, 5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out
    ids, ratings = planted()
    columns = [torch.from_numpy(ids[:, j].copy()) for j in range(len(FIELDS))]
    labels = torch.from_numpy(ratings.astype(np.float32)).unsqueeze(1)
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = Ratings()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-4)
    train = SPLITS["train"]
    for _ in range(400):
        optimiser.zero_grad()
        nn.functional.mse_loss(model(*[c[:train] for c in columns])[0], labels[:train]).backward()
        optimiser.step()
    model.eval()
    names = [name for name, _ in FIELDS]
    path = out / "ratings.onnx"
    torch.onnx.export(
        model, tuple(c[:2] for c in columns), str(path), dynamo=False, opset_version=17,
        input_names=names, output_names=["rating", "bounded"], dynamic_axes={name: {0: "batch"} for name in names + ["rating", "bounded"]},
    )
    with torch.no_grad():
        predicted = {name: p.squeeze(1).double().numpy() for name, p in zip(["rating", "bounded"], model(*columns))}
    session = onnxruntime.InferenceSession(path.read_bytes())
    for name, values in zip(["rating", "bounded"], session.run(["rating", "bounded"], {n: ids[:, j] for j, n in enumerate(names)})):
        assert np.abs(values[:, 0] - predicted[name]).max() < 1e-5
    first, metrics = 0, {}
    for split, count in SPLITS.items():
        part = slice(first, first + count)
        first += count
        with open(out / f"{split}.csv", "w", newline="\n") as f:
            f.write(",".join(["rating"] + names) + "\n")
            for row, rating in zip(ids[part], ratings[part]):
                f.write(",".join([f"{rating:g}"] + [str(i) for i in row]) + "\n")
        metrics[split] = {}
        for name, values in predicted.items():
            off = values[part] - ratings[part]
            metrics[split][name] = {
                "rmse": float(np.sqrt((off**2).mean())), "mae": float(np.abs(off).mean()), "r2": float(1 - (off**2).mean() / ratings[part].var()),
            }
    with open(out / "ratings.json", "w", newline="\n") as f:
        json.dump({"fields": names, "ids": ids[:CHECKED].tolist(), "outputs": {k: v[:CHECKED].tolist() for k, v in predicted.items()}, "metrics": metrics}, f)
        f.write("\n")
    print(metrics)


if __name__ == "__main__":
    main()
