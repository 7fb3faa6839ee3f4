# FuxiCTR: model is the trained model. The inputs are named as its features. A sequence
# has its max_len positions.
import torch


class Export(torch.nn.Module):
    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *columns):
        return self.model(dict(zip(self.names, columns)))["y_pred"]


model.device = torch.device("cpu")
features = {name: feature for name, feature in model.feature_map.features.items() if feature["type"] != "meta"}
names = list(features)
shapes = [(2, f["max_len"]) if f["type"] == "sequence" else (2,) for f in features.values()]
types = [torch.float32 if f["type"] == "numeric" else torch.int64 for f in features.values()]
columns = tuple(torch.zeros(shape, dtype=t) for shape, t in zip(shapes, types))
batch = torch.export.Dim("batch")
torch.onnx.export(
    Export(model.cpu().eval(), names), columns, "model.onnx", dynamo=True,
    input_names=names, output_names=["probability"],
    dynamic_shapes=(tuple({0: batch} for _ in names),),
)
