#!/usr/bin/env python3
"""Writes types.pth, types4.pth, bare.pth and legacy.pth: small DeepFM state
dicts with every kind of value that PyTorch puts into a checkpoint. Run it with
torch 1.13 and numpy; checkpoint_test.go knows the values by the formula below."""
import collections
import os

import numpy as np
import torch

here = os.path.dirname(os.path.abspath(__file__))
sizes = [2, 3, 4]  # m = 3 fields, n = 9 features
dim, hidden = 2, 5


def values(seed, *shape):
    """Quarters from -2 to 2: exact in every floating-point type."""
    n = int(np.prod(shape))
    return torch.tensor([((seed + 5 * i) % 17 - 8) / 4 for i in range(n)], dtype=torch.float64).reshape(shape)


flat = torch.zeros(4 * hidden)  # one storage for the four BatchNorm vectors
flat[0:hidden] = values(6, hidden)
flat[hidden:2 * hidden] = values(7, hidden)
flat[2 * hidden:3 * hidden] = values(8, hidden)
flat[3 * hidden:4 * hidden] = values(9, hidden).abs()

state = collections.OrderedDict()
state["embedding._emb_module.weight"] = values(1, 9, dim).half()
state["fc.weight"] = values(2, 9, 1).bfloat16()
state["_bias"] = torch.nn.Parameter(values(3, 1).float())
state["_deep_branch.0.weight"] = values(4, hidden, 6).float().t().contiguous().t()  # strides (1, 5)
state["_deep_branch.0.bias"] = values(5, hidden)  # float64
state["_deep_branch.1.weight"] = flat[0:hidden]
state["_deep_branch.1.bias"] = flat[hidden:2 * hidden]
state["_deep_branch.1.running_mean"] = flat[2 * hidden:3 * hidden]
state["_deep_branch.1.running_var"] = flat[3 * hidden:]
state["_deep_branch.1.num_batches_tracked"] = torch.tensor(7)
state["_deep_branch.4.weight"] = torch.tensor([[1., -2, 3, -4, 5]]).half()
state["_deep_branch.4.bias"] = torch.tensor([0.5]).expand(1)
state["offsets"] = torch.tensor([0, 2, 5]).unsqueeze(0)

whole = {
    "state_dict": state,
    "model_config": {"num_factor": np.int64(dim), "hidden_sizes": (hidden,), "use_batchnorm": True, "p_dropout": 0.5},
    "val_metrics": {"auc": np.float64(0.5), "log_loss": np.float32(0.25), "epochs": 10**30, "shape": torch.Size([1, 2])},
    "field_dims": np.array(sizes, dtype=np.uint16),
    "device": torch.device("cpu"),
    "dtype": torch.float32,
}
torch.save(whole, os.path.join(here, "types.pth"))
torch.save(whole, os.path.join(here, "types4.pth"), pickle_protocol=4)
plain = collections.OrderedDict((k, v.detach().float() if v.is_floating_point() else v) for k, v in state.items())
torch.save(plain, os.path.join(here, "bare.pth"))
torch.save(plain, os.path.join(here, "legacy.pth"), _use_new_zipfile_serialization=False)
