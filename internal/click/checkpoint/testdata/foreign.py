#!/usr/bin/env python3
"""Writes foreign-*.pth: one small DeepFM as training scripts and frameworks save it, with
objects of classes that a reader does not have. Run it with torch 2 and numpy, after make.py.
foreign_test.go knows the files by their names."""
import argparse
import collections
import enum
import os
import types

import numpy as np
import torch
from torch import nn

here = os.path.dirname(os.path.abspath(__file__))
bare = torch.load(os.path.join(here, "bare.pth"), weights_only=True)


def module(name):
    """Registers a module, so that its classes are pickled under its name."""
    import sys
    made = types.ModuleType(name)
    sys.modules[name] = made
    return made


def own(cls, where):
    """Moves a class to the module where."""
    cls.__module__ = where.__name__
    cls.__qualname__ = cls.__name__
    setattr(where, cls.__name__, cls)
    return cls


app, recbole = module("app"), module("recbole.config.configurator")


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(9, 2))


class DeepFM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = Embedding()
        self.fc = nn.Embedding(9, 1)
        self._bias = nn.Parameter(torch.zeros(1))
        self._deep_branch = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 1))
        self.register_buffer("offsets", torch.zeros(1, 3, dtype=torch.int64))
        self.register_buffer("cache", torch.ones(4), persistent=False)
        self.encoder = Encoder(["a", "b"])
        self.callback = print


class Encoder:
    """Like a LabelEncoder of sklearn: an array of text, a set, an Enum and a slot."""
    __slots__ = ("classes", "names", "kind", "__dict__")

    def __init__(self, names):
        self.classes = np.array(names)
        self.names = {1, 2, frozenset((3,))}
        self.kind = Kind.TEXT
        self.objects = np.array([None, "x"], dtype=object)
        self.counts = collections.Counter(names)
        self.by_default = collections.defaultdict(list, {"a": [1]})


class Kind(enum.Enum):
    TEXT = 1


class Config:
    def __init__(self):
        self.final_config_dict = {"model": "DeepFM", "mlp_hidden_size": [5], "device": torch.device("cpu")}


for cls in (Embedding, DeepFM, Encoder, Kind):
    own(cls, app)
own(Config, recbole)

model = DeepFM().eval()
state = {"embedding.weight": bare["embedding._emb_module.weight"]}
state.update((k, v) for k, v in bare.items() if k != "embedding._emb_module.weight")
model.load_state_dict(state, strict=True)
optimizer = torch.optim.Adam(model.parameters())
for p in model.parameters():
    p.grad = torch.ones_like(p)
moved = {k: v + 1 if v.is_floating_point() else v for k, v in state.items()}  # a moving average, say
optimizer.step()
model.load_state_dict(state, strict=True)

files = {
    "module": model,
    "parallel": nn.DataParallel(model),
    "wrapped-module": {"epoch": 3, "model": model},
    "recbole": {"config": Config(), "epoch": 2, "cur_step": 0, "best_valid_score": 0.5, "state_dict": state,
                "other_parameter": None, "optimizer": optimizer.state_dict()},
    "lightning": {"epoch": 1, "global_step": 10, "pytorch-lightning_version": "2.5.0",
                  "state_dict": {"module." + k: v for k, v in state.items()}, "loops": {}, "callbacks": {},
                  "optimizer_states": [optimizer.state_dict()], "lr_schedulers": [],
                  "hyper_parameters": argparse.Namespace(field_dims=[2, 3, 4], encoder=Encoder(["a"]))},
    "nested": {"model": {"state_dict": state}, "encoder": Encoder(["c"]), "args": argparse.Namespace(lr=0.1)},
    "unusual": {"net": state, "optimizer": optimizer.state_dict()},
    "average": {"model": state, "ema": moved},
    "two": {"teacher": state, "student": {"w": torch.ones(2)}},
}
for name, content in files.items():
    torch.save(content, os.path.join(here, f"foreign-{name}.pth"))
