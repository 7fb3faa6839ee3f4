#!/usr/bin/env python3
"""Runs the code that `shaver model export-help` prints, on tiny models of the real packages.

    snippets.py              run all
    snippets.py NAME ...     run these, for example fuxictr

Each snippet runs as it is printed, except the length of lists, in an empty folder, with the trained model as the variable model. onnxruntime's
output for 1 row and for 5 rows must be that of the package.
"""

import contextlib
import copy
import os
import pathlib
import sys
import tempfile

import onnxruntime

import cases
from packages import DENSE, FIELDS, fuxictr, fuxictr_feature_map, nn, np, quiet, randomise, torch

SNIPPETS = pathlib.Path(__file__).resolve().parent.parent.parent / "cmd" / "shaver" / "snippets"
TOLERANCE = 1e-6


class Criteo(nn.Module):
    """A module that is not from a package, with 26 fields and 13 dense inputs."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(5, 4) for _ in range(26))
        self.mlp = nn.Sequential(nn.Linear(26 * 4 + 13, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))

    def forward(self, ids, dense):
        x = torch.cat([t(ids[:, i]) for i, t in enumerate(self.tables)] + [dense], dim=1)
        return torch.sigmoid(self.mlp(x)).squeeze(-1)


def pytorch():
    fields = [cases.Column(f"c{i}", "ids", i, 5) for i in range(26)]
    return cases.Net(Criteo(), [("ids", torch.int64, 26), ("dense", torch.float32, 13)], fields, [cases.Column(f"i{i}", "dense", i) for i in range(13)])


def torchrec():
    """The model as TorchRec has it, and one with the same weights that takes ids."""
    net = cases.of_torchrec()
    rows = net.module.sparse_arch.embedding_bag_collection
    randomise(net.module, 2)
    net.user = copy.deepcopy(net.module)
    net.user.sparse_arch.embedding_bag_collection = copy.deepcopy(rows.collection)
    return net


# name: builds a Net. The variable model of the snippet is its attribute user, or else the model that its module wraps.
BUILD = {
    "fuxictr": cases.of_fuxictr("DeepFM", numeric=DENSE, batch_norm=True),
    "deepctr-torch": cases.of_deepctr("AutoInt", dense=DENSE, dnn_hidden_units=(8, 6)),
    "recbole": cases.of_recbole("DeepFM"),
    "torchrec": torchrec,
    "keras": cases.KerasNet,
    "pytorch": pytorch,
    "torch-rechub": cases.of_rechub("DeepFM", dense=DENSE),
    "deepctr-torch with lists": cases.MODELS["deepctr-torch-din"][0],
    "fuxictr with lists": cases.MODELS["fuxictr-din"][0],
    "torch-rechub with lists": cases.MODELS["torch-rechub-din"][0],
}


def try_one(name):
    with quiet():
        net = BUILD[name]()
        if not net.keras and not hasattr(net, "user"):
            randomise(net.module, 2)
    values = net.rows(3)
    inputs = {}
    for n, dtype, columns in net.inputs:
        a = values[n] if columns else values[n][:, 0]
        inputs[n] = a.astype(np.int32) if dtype is torch.int32 else a
    user = getattr(net, "user", getattr(net.module, "model", net.module))
    with torch.no_grad():
        if net.keras:
            expected = net.model(list(inputs.values())).detach().numpy()
        else:
            expected = net.module(*[torch.from_numpy(a) for a in inputs.values()]).numpy()
            if name == "recbole":
                expected = 1 / (1 + np.exp(-expected))
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with quiet():
                if net.keras:
                    net.model.save("model.keras")
                snippet = (SNIPPETS / (name.split()[0] + ".py")).read_text()
                exec(compile(snippet.replace("length = 20", f"length = {cases.L}"), name, "exec"), {"model": user})
            session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
        finally:
            os.chdir(before)
        names = [i.name for i in session.get_inputs()]
        assert sorted(names) == sorted(inputs), (names, list(inputs))
        worst = 0.0
        for count in (1, 5):
            got = session.run(None, {i.name: inputs[i.name][:count].reshape([count, *i.shape[1:]]) for i in session.get_inputs()})[0]
            worst = max(worst, float(np.abs(got.reshape(-1) - expected.reshape(-1)[:count]).max()))
        assert worst < TOLERANCE, worst
    print(f"{name}: inputs {', '.join(names)}, output {session.get_outputs()[0].name}, differs by {worst:.1e}", flush=True)


def main():
    names = sys.argv[1:] or sorted(BUILD)
    if not sys.argv[1:]:
        assert sorted(p.stem for p in SNIPPETS.glob("*.py")) == sorted({n.split()[0] for n in names}), "a snippet is not tried"
    for name in names:
        try_one(name)


main()
