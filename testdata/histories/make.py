#!/usr/bin/env python3
"""Trains two models with histories, exports them to ONNX, and draws the log that tests read.

    make.py                 write the files next to this script
    make.py --out DIR       write them to DIR

Everything is drawn from fixed seeds. README.md says what the files hold, and with which versions they were made.
"""

import argparse
import json
import pathlib
import warnings

warnings.filterwarnings("ignore")

import numpy as np
import onnxruntime
import torch
from torch import nn
from torch_rechub.basic.features import SequenceFeature, SparseFeature
from torch_rechub.models.matching import YoutubeDNN
from torch_rechub.models.ranking import DIN

torch.set_num_threads(1)

HERE = pathlib.Path(__file__).resolve().parent
USERS, ITEMS, CATEGORIES, LENGTH, DIM = 40, 61, 7, 6, 4  # item 0 and category 0 are pads
NAMES = ["user", "item", "category", "items", "categories"]
TRAIN, ROWS, CHECKED = 20_000, 1_500, 64


def draw(seed, count):
    """Rows as a dict of arrays. A user likes two categories, and clicks more on items like those of the history."""
    r = np.random.default_rng(seed)
    law = np.random.default_rng(1)
    category = np.concatenate([[0], 1 + law.integers(0, CATEGORIES - 1, ITEMS - 1)])
    appeal = law.normal(size=ITEMS) * 0.7
    likes = 1 + law.integers(0, CATEGORIES - 1, (USERS, 2))
    user = r.integers(0, USERS, count)
    item = 1 + r.integers(0, ITEMS - 1, count)
    items = np.zeros((count, LENGTH), np.int64)
    for i in range(count):
        length = r.integers(0, LENGTH + 1)
        liked = 1 + np.flatnonzero(np.isin(category[1:], likes[user[i]]))
        choice = np.where(r.random(length) < 0.7, r.choice(liked, length) if len(liked) else 1, 1 + r.integers(0, ITEMS - 1, length))
        items[i, :length] = choice
    same = ((category[items] == category[item][:, None]) & (items > 0)).sum(1)
    again = ((items == item[:, None]) & (items > 0)).any(1)
    logit = -1.6 + appeal[item] + 0.7 * same - 1.5 * again
    label = (r.random(count) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    return {"user": user, "item": item, "category": category[item], "items": items, "categories": category[items], "label": label}


class DIN2(nn.Module):
    """torch-rechub's DIN with two histories. The output is a probability [rows]."""

    def __init__(self):
        super().__init__()
        features = [SparseFeature("user", USERS, DIM)]
        target = [SparseFeature("item", ITEMS, DIM, padding_idx=0), SparseFeature("category", CATEGORIES, DIM, padding_idx=0)]
        history = [SequenceFeature("items", ITEMS, DIM, pooling="concat", shared_with="item", padding_idx=0),
                   SequenceFeature("categories", CATEGORIES, DIM, pooling="concat", shared_with="category", padding_idx=0)]
        self.model = DIN(features, history, target, {"dims": [16, 8], "dropout": 0.0}, {"dims": [8], "activation": "dice", "use_softmax": False})

    def forward(self, *columns):
        return self.model(dict(zip(NAMES, columns)))


class TwoTowers(nn.Module):
    """The towers of torch-rechub's YoutubeDNN: the mean of the history against one item. The output is a probability [rows]."""

    def __init__(self):
        super().__init__()
        user = [SparseFeature("user", USERS, DIM),
                SequenceFeature("items", ITEMS, DIM, pooling="mean", shared_with="item", padding_idx=0)]
        item = [SparseFeature("item", ITEMS, DIM, padding_idx=0)]
        self.model = YoutubeDNN(user, item, [], {"dims": [16, DIM], "dropout": 0.0}, temperature=0.2)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, user, item, items):
        x = {"user": user, "item": item, "items": items}
        self.model.mode = None
        towers = self.model.user_tower(x).squeeze(1)
        self.model.mode = "item"
        other = self.model.item_tower(x)
        return torch.sigmoid((towers * other).sum(1) / self.model.temperature + self.bias)


def train(model, columns, label, names):
    generator = torch.Generator().manual_seed(1)
    for p in model.parameters():
        if p.dim() > 1:
            with torch.no_grad():
                p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    for module in model.modules():
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            with torch.no_grad():
                module.weight[module.padding_idx].zero_()
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=1e-5)
    for epoch in range(6):
        order = torch.randperm(TRAIN, generator=generator)
        total = 0.0
        for batch in order.split(256):
            p = model(*(columns[n][batch] for n in names))
            loss = nn.functional.binary_cross_entropy(p, label[batch].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(type(model).__name__, "epoch", epoch, "log loss", round(total / TRAIN, 4))
    return model.eval()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out
    torch.manual_seed(1)
    data, test = draw(2, TRAIN), draw(3, ROWS)
    columns = {n: torch.from_numpy(data[n]) for n in NAMES}
    for name, model, names in [("din", DIN2(), NAMES), ("two-towers", TwoTowers(), ["user", "item", "items"])]:
        train(model, columns, torch.from_numpy(data["label"]), names)
        path = out / (name + ".onnx")
        torch.onnx.export(
            model, tuple(torch.from_numpy(test[n][:3].copy()) for n in names), str(path), dynamo=False, opset_version=17,
            input_names=names, output_names=["probability"], dynamic_axes={n: {0: "batch"} for n in names + ["probability"]},
        )
        p = onnxruntime.InferenceSession(path.read_bytes()).run(None, {n: test[n] for n in names})[0].astype(np.float64)
        y = test["label"]
        pairs = p[y == 1][:, None] - p[y == 0][None, :]
        auc = ((pairs > 0).sum() + 0.5 * (pairs == 0).sum()) / pairs.size
        loss = -(y * np.log(p) + (1 - y) * np.log1p(-p)).mean()
        logits = np.log(p) - np.log1p(-p)
        facts = {"file": path.name, "auc": round(float(auc), 9), "logloss": round(float(loss), 9), "logits": [round(float(v), 6) for v in logits[:CHECKED]]}
        (out / (name + ".json")).write_text(json.dumps(facts, indent=1) + "\n")
        print(name, path.stat().st_size, "bytes, AUC", facts["auc"], "LogLoss", facts["logloss"])
    lines = ["label," + ",".join(NAMES)]
    for i in range(ROWS):
        lists = ["|".join(str(v) for v in test[n][i] if v) for n in ["items", "categories"]]
        lines.append(",".join([str(test[n][i]) for n in ["label", "user", "item", "category"]] + lists))
    (out / "log.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
