#!/usr/bin/python3
"""Algorithm 1 of the paper in plain PyTorch, to measure against: every row of a batch drops its next player at the
same step, with one full forward pass of the batch per step. One thread, no gradients, evaluation mode.

    walk.py --kind deepfm --players 624 --seconds 2

prints {"rows_per_second": ..., "batch": ...} for the best of several batch sizes. A walk has players + 1 forward passes;
what is timed is a run of consecutive steps of it, in CPU time of this process, and the median step counts.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn

DIM = 16
HIDDEN = (400, 400, 400)


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        layers = []
        for out in HIDDEN:
            layers += [nn.Linear(width, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Dropout()]
            width = out
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


class DeepFM(nn.Module):
    def __init__(self, players):
        super().__init__()
        self.mlp = Mlp(players)

    def forward(self, x):
        e = x.view(len(x), -1, DIM)
        pairs = (e.sum(1).square() - e.square().sum(1)).sum(1) / 2
        return pairs + self.mlp(x)


class DCNMix(nn.Module):
    def __init__(self, players, layers=3, experts=4, rank=64):
        super().__init__()
        def parameter(*shape):
            return nn.Parameter(torch.randn(*shape) / shape[-1] ** 0.5)
        self.u = nn.ParameterList(parameter(experts, rank, players) for _ in range(layers))
        self.c = nn.ParameterList(parameter(experts, rank, rank) for _ in range(layers))
        self.v = nn.ParameterList(parameter(experts, players, rank) for _ in range(layers))
        self.bias = nn.ParameterList(parameter(1, players) for _ in range(layers))
        self.gates = parameter(experts, players, 1)
        self.mlp = Mlp(players)

    def forward(self, x0):
        x = x0
        for u, c, v, bias in zip(self.u, self.c, self.v, self.bias):
            # [experts, batch, ...]
            low = torch.tanh(torch.tanh(x @ v) @ c)
            x = x + ((x @ self.gates) * (x0 * (low @ u + bias))).sum(0)
        return self.mlp(x)


def rate(model, players, batch, seconds):
    entries = torch.randn(batch, players) * 0.1
    baseline = torch.zeros(players)
    labels = torch.randint(0, 2, (batch,)).float()
    order = torch.stack([torch.randperm(players) for _ in range(batch)])
    rows = torch.arange(batch)
    x = entries.clone()
    phi = torch.zeros(batch, players)
    loss = nn.functional.softplus(model(x)) - labels * model(x)
    steps, end, k = [], time.process_time() + seconds, 0
    while time.process_time() < end or len(steps) < 5:
        start = time.process_time()
        player = order[:, k % players]
        x[rows, player] = baseline[player]
        logit = model(x)
        after = nn.functional.softplus(logit) - labels * logit
        phi[rows, player] += after - loss
        loss = after
        steps.append(time.process_time() - start)
        k += 1
    return batch / (statistics.median(steps) * (players + 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("deepfm", "dcn-mix"), required=True)
    parser.add_argument("--players", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=2, help="for each batch size")
    parser.add_argument("--batches", type=int, nargs="+", default=(16, 64, 256, 1024))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = (DeepFM if args.kind == "deepfm" else DCNMix)(args.players).eval()
    with torch.no_grad():
        best = max((rate(model, args.players, b, args.seconds), b) for b in args.batches)
    print(json.dumps({"rows_per_second": best[0], "batch": best[1]}))


if __name__ == "__main__":
    main()
