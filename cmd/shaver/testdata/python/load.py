"""load.py ORIGINAL.pth LINES FOLDER: run the Python LINES in FOLDER, with a model
that has the parameters of the checkpoint, and print what it holds afterwards."""

import hashlib
import os
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand-in"))  # after what is installed

state = torch.load(sys.argv[1], map_location="cpu", weights_only=False)["state_dict"]
model = torch.nn.Module()
for key, value in state.items():
    *path, name = key.split(".")
    module = model
    for part in path:
        if part not in module._modules:
            module.add_module(part, torch.nn.Module())
        module = module._modules[part]
    module.register_buffer(name, torch.zeros_like(value))
os.chdir(sys.argv[3])
exec(sys.argv[2])
for key, value in model.state_dict().items():
    print(key, hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest())
