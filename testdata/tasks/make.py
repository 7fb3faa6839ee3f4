#!/usr/bin/env python3
"""Makes a model of two tasks, exports it to ONNX, and draws a log with the labels of both tasks.

    make.py                 write the files next to this script
    make.py --out DIR       write them to DIR

Everything is drawn from fixed seeds. README.md says what the files hold, and with which versions they were made.
"""

import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import onnxruntime  # noqa: E402
from packages import FIELDS, NAMES, SIZES, np, nn, randomise, rows, torch  # noqa: E402

TASKS = ["click", "buy"]
ROWS = 800
CHECKED = 32


class SharedBottom(nn.Module):
    """Two towers on one bottom. The outputs are probabilities [rows, 1]."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 4) for size in SIZES)
        self.bottom = nn.Sequential(nn.Linear(4 * len(SIZES), 10), nn.ReLU())
        self.towers = nn.ModuleList(nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 1), nn.Sigmoid()) for _ in TASKS)

    def forward(self, *ids):
        x = self.bottom(torch.cat([e(i) for e, i in zip(self.embeddings, ids)], dim=1))
        return tuple(tower(x) for tower in self.towers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out
    torch.manual_seed(1)
    model = SharedBottom()
    randomise(model, 1)
    with torch.no_grad():
        for tower in model.towers:
            tower[2].weight.mul_(8)  # so that the rows' probabilities differ
            tower[2].bias.zero_()
    ids, _ = rows(2, count=ROWS)
    path = out / "shared-bottom.onnx"
    torch.onnx.export(
        model, tuple(torch.from_numpy(ids[:3, j].copy()) for j in range(len(NAMES))), str(path), dynamo=False, opset_version=17,
        input_names=NAMES, output_names=TASKS, dynamic_axes={name: {0: "batch"} for name in NAMES + TASKS},
    )
    session = onnxruntime.InferenceSession(path.read_bytes())
    outputs = session.run(TASKS, {name: ids[:, j] for j, name in enumerate(NAMES)})
    probabilities = np.concatenate(outputs, axis=1).astype(np.float64)
    labels = (np.random.default_rng(3).random(probabilities.shape) < probabilities).astype(int)
    with open(out / "log.csv", "w", newline="\n") as f:
        f.write(",".join(NAMES + TASKS) + "\n")
        for row, label in zip(ids, labels):
            f.write(",".join([f"{name}-{i}" for name, i in zip(NAMES, row)] + [str(v) for v in label]) + "\n")
    with open(out / "vocabulary.csv", "w", newline="\n") as f:
        f.write("field,value,id\n")
        for name, size in FIELDS:
            f.writelines(f"{name},{name}-{i},{i}\n" for i in range(size))
    with open(out / "shared-bottom.json", "w", newline="\n") as f:
        json.dump({"fields": NAMES, "ids": ids[:CHECKED].tolist(), "outputs": {task: probabilities[:CHECKED, k].tolist() for k, task in enumerate(TASKS)}}, f)
        f.write("\n")


if __name__ == "__main__":
    main()
