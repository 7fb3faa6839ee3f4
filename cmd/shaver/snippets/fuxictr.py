# FuxiCTR: model is the trained model. The inputs are named as its features.
import torch


class Export(torch.nn.Module):
    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *columns):
        return self.model(dict(zip(self.names, columns)))["y_pred"]


model.device = torch.device("cpu")
features = model.feature_map.features
names = [name for name, feature in features.items() if feature["type"] != "meta"]
numeric = {"numeric": torch.float32}
columns = tuple(torch.zeros(2, dtype=numeric.get(features[name]["type"], torch.int64)) for name in names)
batch = torch.export.Dim("batch")
torch.onnx.export(
    Export(model.cpu().eval(), names), columns, "model.onnx", dynamo=True,
    input_names=names, output_names=["probability"],
    dynamic_shapes=(tuple({0: batch} for _ in names),),
)
