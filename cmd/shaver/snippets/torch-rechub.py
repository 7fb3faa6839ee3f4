# torch-rechub: model is the trained model. The inputs are named as its features.
# length is the number of ids of a sequence feature in a row; leave it if there is none.
import torch
from torch_rechub.utils.onnx_export import ONNXExporter

length = 20
exporter = ONNXExporter(model)
batch = torch.export.Dim("batch")
shapes = tuple({0: batch} for _ in exporter.feature_info["features"])
exporter.export(
    "model.onnx", opset_version=18, seq_length=length,
    onnx_export_kwargs={"dynamo": True, "dynamic_shapes": (shapes,)},
)
