# PyTorch: model is your module. This example calls it with ids [rows, 26] and dense
# values [rows, 13]; write what yours takes, with a name for every input and a tensor
# of its own. A history has a fixed number of ids, for example [rows, 50].
import torch

ids, dense = torch.zeros(2, 26, dtype=torch.int64), torch.zeros(2, 13)
batch = torch.export.Dim("batch")
torch.onnx.export(
    model.cpu().eval(), (ids, dense), "model.onnx", dynamo=True,
    input_names=["ids", "dense"], output_names=["output"],
    dynamic_shapes=({0: batch}, {0: batch}),
)
