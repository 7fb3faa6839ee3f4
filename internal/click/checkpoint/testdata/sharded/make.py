#!/usr/bin/env python3
"""Writes model.pth, a small DeepFM, and the same state dict in folders of
torch.distributed.checkpoint: ranks1, ranks2 and ranks4 with the table divided by rows,
columns2 by columns, grid4 by both, and wrapped2, where the state dict is in a dict next to
the state of an optimizer and field_dims. The processes run on the CPU with gloo. Run it with
torch 2.15; checkpoint/sharded_test.go compares the digests."""
import os
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

here = os.path.dirname(os.path.abspath(__file__))
sizes = [4, 3, 6]
dim, hidden = 4, 5


def values(seed, *shape):
    n = torch.Size(shape).numel()
    return torch.tensor([((seed + 5 * i) % 97 - 48) / 64 for i in range(n)]).reshape(shape)


def state():
    n, m = sum(sizes), len(sizes)
    return {
        "_bias": values(3, 1),
        "offsets": torch.tensor([[0, 4, 7]]),
        "embedding.weight": values(1, n, dim),
        "fc.weight": values(2, n, 1),
        "_deep_branch.0.weight": values(4, hidden, m * dim),
        "_deep_branch.0.bias": values(5, hidden),
        "_deep_branch.3.weight": values(6, 1, hidden).double(),
        "_deep_branch.3.bias": values(7, 1).bfloat16(),
    }


def placed(mesh, how):
    """Divides the tables, as torchrec does, and the first layer, as FSDP does."""
    whole = state()
    for key in ["embedding.weight", "fc.weight", "_deep_branch.0.weight", "_deep_branch.0.bias"]:
        by = list(how)
        if key != "embedding.weight":
            by = [Shard(0)] + [Replicate()] * (len(by) - 1)
        whole[key] = distribute_tensor(whole[key], mesh, by)
    return whole


def run(rank, n, port, cases):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(n))
    dist.init_process_group("gloo")
    for name, mesh, how, wrapped in cases:
        saved = placed(init_device_mesh("cpu", mesh), how)
        if wrapped:
            moments = {k: {"exp_avg": torch.zeros_like(v)} for k, v in saved.items() if v.is_floating_point()}
            saved = {"model": saved, "optim": {"state": moments, "lr": 0.1}, "field_dims": sizes, "epoch": 3}
        dcp.save(saved, checkpoint_id=os.path.join(here, name))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.save(state(), os.path.join(here, "model.pth"))
    rows, columns = Shard(0), Shard(1)
    for n, cases in {
        1: [("ranks1", (1,), [rows], False)],
        2: [("ranks2", (2,), [rows], False), ("columns2", (2,), [columns], False), ("wrapped2", (2,), [rows], True)],
        4: [("ranks4", (4,), [rows], False), ("grid4", (2, 2), [columns, rows], False)],
    }.items():
        for name, *_ in cases:
            shutil.rmtree(os.path.join(here, name), ignore_errors=True)
        torch.multiprocessing.spawn(run, args=(n, 29540 + n, cases), nprocs=n)
