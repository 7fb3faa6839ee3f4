# DeepCTR-Torch: model is the trained model. Its only input is a matrix of float32,
# whose columns are the features in the order of model.feature_index. A list has a
# column for each of its positions.
import torch

model.device = "cpu"
width = max(end for _, end in model.feature_index.values())
torch.onnx.export(
    model.cpu().eval(), (torch.zeros(2, width),), "model.onnx", dynamo=True,
    input_names=["x"], output_names=["probability"],
    dynamic_shapes=({0: torch.export.Dim("batch")},),
)
print(list(model.feature_index))
