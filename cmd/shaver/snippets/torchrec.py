# TorchRec: model is a DLRM, or another model in which every bag has one id. Its
# collections of tables are replaced, because a KeyedJaggedTensor exports badly. The
# inputs are the dense values [rows, dense] and the ids [rows, features].
import torch
from torchrec import EmbeddingBagCollection, KeyedTensor


class OneIdPerFeature(torch.nn.Module):
    def __init__(self, collection):
        super().__init__()
        self.configs, self.bags = collection.embedding_bag_configs(), collection.embedding_bags
        self.tables = [(feature, c.name) for c in self.configs for feature in c.feature_names]

    def embedding_bag_configs(self):
        return self.configs

    def forward(self, ids):
        rows = [torch.nn.functional.embedding(ids[:, i], self.bags[t].weight)
                for i, (_, t) in enumerate(self.tables)]
        return KeyedTensor([f for f, _ in self.tables], [r.shape[1] for r in rows], torch.cat(rows, dim=1))


for module in list(model.modules()):
    for name, child in list(module.named_children()):
        if isinstance(child, EmbeddingBagCollection):
            setattr(module, name, OneIdPerFeature(child))
            features = [feature for c in child.embedding_bag_configs() for feature in c.feature_names]
dense = next(m for m in model.dense_arch.modules() if isinstance(m, torch.nn.Linear)).in_features
batch = torch.export.Dim("batch")
torch.onnx.export(
    model.cpu().eval(), (torch.zeros(2, dense), torch.zeros(2, len(features), dtype=torch.int64)),
    "model.onnx", dynamo=True, input_names=["dense", "ids"], output_names=["logit"],
    dynamic_shapes=({0: batch}, {0: batch}),
)
print(features)
