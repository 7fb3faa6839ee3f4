# RecBole: model is a trained context-aware model, for example from
# recbole.quick_start.load_data_and_model("saved/DeepFM.pth"). The inputs are named
# as its token fields.
import torch


class Export(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *columns):
        return self.model.predict(dict(zip(self.model.token_field_names, columns)))


model.device = torch.device("cpu")
names = model.token_field_names
columns = tuple(torch.zeros(2, dtype=torch.int64) for _ in names)
batch = torch.export.Dim("batch")
torch.onnx.export(
    Export(model.cpu().eval()), columns, "model.onnx", dynamo=True,
    input_names=names, output_names=["probability"],
    dynamic_shapes=(tuple({0: batch} for _ in names),),
)
