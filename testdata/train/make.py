#!/usr/bin/python3
"""Makes the goldens of training in this folder.

    make.py             write the files beside this script
    make.py --out DIR   write them to DIR

Needs torch and numpy only. The models are those of ../golden/make.py, and a WideDeep.
README.md says what the files hold.
"""

import argparse
import csv
import importlib.util
import json
import pathlib
import struct

import numpy as np
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("golden", HERE.parent / "golden" / "make.py")
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

FIELD_DIMS, DIM, HIDDEN = [6, 9, 4], 5, [11, 7]
BATCH, STEPS = 24, 10
RATE, DECAY = 1e-2, 1e-3


class WideDeep(golden.DeepFM):
    def head(self, e, ids):
        return self._bias + self.fc(ids).sum((1, 2)) + self._deep_branch(e.flatten(1)).squeeze(1)


def config(**more):
    return {"num_factor": DIM, "hidden_sizes": HIDDEN, "p_dropout": 0.0, "use_batchnorm": True, **more}


CASES = {
    "fm": (golden.FM, "fm", config()),
    "deepfm": (golden.DeepFM, "deepfm", config()),
    "deepfm-plain": (golden.DeepFM, "deepfm", config(use_batchnorm=False)),
    "deepfm-sparse": (golden.DeepFM, "deepfm", config()),
    "widedeep": (WideDeep, "widedeep", config()),
    "dcn-mix": (golden.DCNMix, "dcn-mix", config(num_layers=2, num_experts=2, rank=3)),
    "dcnv2-stacked": (golden.DCNv2, "dcnv2", config(num_layers=2, structure="Stacked")),
    "dcnv2-parallel": (golden.DCNv2, "dcnv2", config(num_layers=2, structure="Parallel")),
}


def safetensors(path, model, kind):
    """Writes a state dict as a safetensors file, without the library."""
    tensors = sorted(model.state_dict().items(), key=lambda item: (-item[1].element_size(), item[0]))
    metadata = {"format": "pt", "shaver.architecture": json.dumps({"kind": kind, "field_dims": FIELD_DIMS})}
    header, body = {"__metadata__": metadata}, b""
    for key, tensor in tensors:
        data = tensor.detach().numpy().tobytes()
        dtype = {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
        header[key] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    offsets = np.cumsum([0] + FIELD_DIMS[:-1])
    # The last feature of the last field never occurs.
    ids = torch.stack([torch.randint(0, size - (j == 2), (STEPS * BATCH,), generator=generator) for j, size in enumerate(FIELD_DIMS)], 1) + torch.from_numpy(offsets)
    labels = torch.randint(0, 2, (STEPS * BATCH,), generator=generator).float()
    with open(out / "rows.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["label"] + [f"field{j}" for j in range(len(FIELD_DIMS))])
        for label, row in zip(labels.tolist(), ids.tolist()):
            writer.writerow([int(label)] + row)
    for number, (name, (make, kind, settings)) in enumerate(CASES.items()):
        torch.manual_seed(number)
        model = make(FIELD_DIMS, settings)
        with torch.no_grad():
            for key, value in model.named_parameters():
                if ".gates" in key or "cross_head.U" in key or "cross_head.V" in key or "cross_head.C" in key:
                    nn.init.normal_(value, 0, 0.3)
                if "cross_head.biases" in key or key == "_bias":
                    nn.init.normal_(value, 0, 0.1)
            model.embedding.weight.mul_(0.5)
        safetensors(out / f"{name}.0.safetensors", model, kind)
        if name.endswith("-sparse"):
            # SparseAdam reads the rows of sparse gradients; the other weights have Adam.
            model.embedding.sparse = True
            rest = [value for key, value in model.named_parameters() if not key.startswith("embedding.")]
            optimizers = [torch.optim.SparseAdam([model.embedding.weight], lr=RATE), torch.optim.Adam(rest, lr=RATE, weight_decay=DECAY)]
        else:
            optimizers = [torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=DECAY, foreach=False)]
        model.train()
        for step in range(STEPS):
            batch = slice(step * BATCH, (step + 1) * BATCH)
            loss = nn.functional.binary_cross_entropy_with_logits(model(ids[batch]), labels[batch])
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            if step + 1 in (1, STEPS):
                safetensors(out / f"{name}.{step + 1}.safetensors", model, kind)


if __name__ == "__main__":
    main()
