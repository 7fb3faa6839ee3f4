#!/usr/bin/python3
"""Training steps of a click model in plain PyTorch, to measure against: dense Adam with weight decay, BatchNorm in training
mode and dropout, as the paper's models are trained.

    train.py --kind deepfm --fields 11 --features 7813 --threads 2 --seconds 3

prints {"rows_per_second": ...} of the median step.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn

DIM = 16
HIDDEN = (400, 400, 400)
BATCH = 2048


class Mix(nn.Module):
    def __init__(self, width, layers=3, experts=4, rank=64):
        super().__init__()
        make = lambda *shape: nn.ParameterList([nn.Parameter(0.01 * torch.randn(*shape)) for _ in range(layers)])
        self.u, self.c, self.v, self.b = make(experts, rank, width), make(experts, rank, rank), make(experts, width, rank), make(1, width)
        self.gates = nn.Parameter(0.01 * torch.randn(experts, width, 1))

    def forward(self, x0):
        x = x0
        for u, c, v, b in zip(self.u, self.c, self.v, self.b):
            x = x + (x0 * (torch.tanh(torch.tanh(x @ v) @ c) @ u + b) * (x @ self.gates)).sum(0)
        return x


class Model(nn.Module):
    def __init__(self, kind, fields, features):
        super().__init__()
        self.kind = kind
        self.embedding = nn.Embedding(features, DIM)
        width = fields * DIM
        if kind == "deepfm":
            self.first = nn.EmbeddingBag(features, 1, mode="sum")
        else:
            self.cross = Mix(width)
        layers, before = [], width
        for out in HIDDEN:
            layers += [nn.Linear(before, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Dropout(0.5)]
            before = out
        self.mlp = nn.Sequential(*layers, nn.Linear(before, 1))

    def forward(self, ids):
        e = self.embedding(ids)
        if self.kind != "deepfm":
            return self.mlp(self.cross(e.flatten(1))).squeeze(1)
        pairs = 0.5 * (e.sum(1) ** 2 - (e**2).sum(1)).sum(1)
        return self.first(ids).squeeze(1) + pairs + self.mlp(e.flatten(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="deepfm")
    parser.add_argument("--fields", type=int, required=True)
    parser.add_argument("--features", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = Model(args.kind, args.fields, args.features)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    size = args.features // args.fields
    ids = torch.randint(0, size, (BATCH, args.fields)) + size * torch.arange(args.fields)
    labels = torch.randint(0, 2, (BATCH,)).float()
    model.train()

    def step():
        start = time.perf_counter()
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return time.perf_counter() - start

    for _ in range(3):
        step()
    times, end = [], time.perf_counter() + args.seconds
    while time.perf_counter() < end or len(times) < 3:
        times.append(step())
    print(json.dumps({"rows_per_second": BATCH / statistics.median(times)}))


if __name__ == "__main__":
    main()
