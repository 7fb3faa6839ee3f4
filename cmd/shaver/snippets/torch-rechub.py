# torch-rechub: model is the trained model. The inputs are named as its features.
from torch_rechub.utils.onnx_export import ONNXExporter

ONNXExporter(model).export("model.onnx", opset_version=18)
