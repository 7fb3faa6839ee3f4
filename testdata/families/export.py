#!/usr/bin/env python3
"""Exports the models of this folder that are of one of shaver's kinds to ONNX, as NAME.onnx.

    export.py               write the files next to this script
    export.py NAME ...      write only these

The weights are those of the checkpoints, so both files of a model must give the same scores. The script also writes
own-*.pth and own-*.onnx, which are models with shaver's own names of the tensors.
"""

import pathlib
import sys

import cases
import onnx
from packages import DIM, FIELDS, SIZES, logging, nn, quiet, randomise, torch

HERE = pathlib.Path(__file__).resolve().parent

# Whole modules and wrapped state dicts have the same models as other cases. RecBole's state dicts have those of its files.
LEFT_OUT = ("-module", "-legacy", "wrapped-", "lightning", "pytorch-fm-fm-state", "pytorch-fm-wd-state", "recbole-fm-state", "recbole-widedeep-state", "recbole-dcnv2-state")
DYNAMO = ("pytorch-fm-deepfm-state", "own-deepfm")


class Called(nn.Module):
    """Calls a model as its case does."""

    def __init__(self, case, model):
        super().__init__()
        self.case, self.model = case, model

    def forward(self, x):
        return self.case.call(self.model, x, torch.zeros(x.shape[0], 0))


class Own(nn.Module):
    """A model with shaver's names. cross is the number of cross layers, hidden the widths of the MLP."""

    def __init__(self, cross=0, hidden=(8, 6), norm=False, parallel=False, pairs=True):
        super().__init__()
        self.pairs, self.parallel = pairs, parallel
        self.register_buffer("offsets", torch.tensor([sum(SIZES[:i]) for i in range(len(SIZES))]), persistent=False)
        self.embedding = nn.Embedding(sum(SIZES), DIM)
        players = width = len(SIZES) * DIM
        layers = []
        for out in hidden:
            layers += [nn.Linear(width, out), *([nn.BatchNorm1d(out)] if norm else []), nn.ReLU()]
            width = out
        if cross:
            self.cross_head = nn.Module()
            self.cross_head.layers = nn.ModuleList([nn.Linear(players, players) for _ in range(cross)])
            self._dnn = nn.Sequential(*layers)
            self._last_fc = nn.Linear(width + players * parallel, 1)
        else:
            self.fc = nn.Embedding(sum(SIZES), 1)
            self._bias = nn.Parameter(torch.zeros(1))
            self._deep_branch = nn.Sequential(*layers, nn.Linear(width, 1)) if hidden else None

    def forward(self, x):
        x = x + self.offsets
        e = self.embedding(x)
        x0 = e.flatten(1)
        if hasattr(self, "cross_head"):
            xl = x0
            for layer in self.cross_head.layers:
                xl = xl + x0 * layer(xl)
            return self._last_fc(torch.cat([xl, self._dnn(x0)], 1) if self.parallel else self._dnn(xl))
        y = self._bias + self.fc(x).sum(1)
        if self.pairs:
            y = y + 0.5 * (e.sum(1) ** 2 - (e * e).sum(1)).sum(1, keepdim=True)
        return y + self._deep_branch(x0) if self._deep_branch is not None else y


OWN = {
    "own-fm": dict(hidden=()),
    "own-deepfm": dict(),
    "own-deepfm-norm": dict(norm=True),
    "own-widedeep": dict(pairs=False),
    "own-dcnv2-stacked": dict(cross=2),
    "own-dcnv2-parallel": dict(cross=3, parallel=True, norm=True),
}


def export(name, module):
    x = torch.zeros(3, len(SIZES) if "recbole" not in name else len(module.case.fields), dtype=torch.int64)
    for suffix, dynamo in [("", False)] + [(".dynamo", True)] * (name in DYNAMO):
        path = HERE / (name + suffix + ".onnx")
        options = dict(dynamic_shapes=({0: torch.export.Dim("batch")},), external_data=False) if dynamo else dict(dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})
        with quiet(), torch.no_grad():
            torch.onnx.export(module, (x,), str(path), input_names=["x"], output_names=["y"], opset_version=18 if dynamo else 17, dynamo=dynamo, **options)
        model = onnx.load(path)
        for node in model.graph.node:  # without paths of this machine
            node.ClearField("doc_string")
            for i in reversed(range(len(node.metadata_props))):
                if "stack_trace" in node.metadata_props[i].key:
                    del node.metadata_props[i]
        onnx.save(model, path)
        print(f"{path.name}: {path.stat().st_size} bytes, {len(model.graph.node)} nodes")


def main():
    logging.disable(logging.WARNING)
    names = sys.argv[1:]
    for case in cases.CASES:
        if case.kind and not any(part in case.name for part in LEFT_OUT) and (not names or case.name in names):
            export(case.name, Called(case, case.model()).eval())
    for name, options in OWN.items():
        if not names or name in names:
            model = randomise(Own(**options), sum(map(ord, name)))
            torch.save(model.state_dict(), HERE / (name + ".pth"))
            export(name, model)


main()
