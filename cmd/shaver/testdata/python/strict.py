"""strict.py MAKE.py KIND MODEL.safetensors ROWS.csv: load a file with strict=True into the
model of MAKE.py, which is testdata/golden/make.py, and print a logit for each row of local ids."""

import csv
import importlib.util
import json
import struct
import sys

import numpy as np
import torch

make, kind, path, rows = sys.argv[1:]
spec = importlib.util.spec_from_file_location("golden", make)
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

data = open(path, "rb").read()
(size,) = struct.unpack("<Q", data[:8])
header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
a = json.loads(header.pop("__metadata__")["shaver.architecture"])
state = {}
for key, t in header.items():
    dtype = {"F32": np.float32, "I64": np.int64}[t["dtype"]]
    state[key] = torch.from_numpy(np.frombuffer(body[slice(*t["data_offsets"])], dtype).reshape(t["shape"]).copy())
model = golden.MODULES[kind](a["field_dims"], {
    "num_factor": a["dim"], "emb_size": a["dim"], "hidden_sizes": a.get("hidden"), "p_dropout": 0.5, "use_batchnorm": True, "num_layers": a.get("cross_layers"),
    "num_experts": a.get("experts"), "rank": a.get("rank"), "structure": a.get("structure", "").capitalize(),
})
model.load_state_dict(state, strict=True)
model.eval()
with open(rows) as file:
    ids = torch.tensor([[int(cell) for cell in row[1:]] for row in list(csv.reader(file))[1:]])
offsets = torch.tensor([0, a["field_dims"][0]]) if kind == "neumf" else model.offsets
with torch.no_grad():
    for logit in model(ids + offsets).tolist():
        print(logit)
