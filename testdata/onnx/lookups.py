"""Models whose look-ups are chosen by conditions, positions or arithmetic on ids. cases.py adds them to its models."""

from cases import Column, L, Net
from packages import DIM, nn, torch

HISTORY = [("tags", 6), ("shops", 8), ("items", 9)]


class PaddedBags(nn.Module):
    """EmbeddingBags with padding_idx: a sum, a mean and a maximum."""

    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(7, DIM)
        self.bags = nn.ModuleList(nn.EmbeddingBag(size, DIM, mode=mode, padding_idx=0) for mode, (_, size) in zip(("sum", "mean", "max"), HISTORY))
        self.mlp = nn.Sequential(nn.Linear(4 * DIM, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, user, tags, shops, items):
        lists = [bag(ids) for bag, ids in zip(self.bags, (tags, shops, items))]
        return torch.sigmoid(self.mlp(torch.cat([self.user(user), *lists], dim=1)).squeeze(-1))


def of_padded_bags():
    inputs = [("user", torch.int64, 0)] + [(name, torch.int64, L) for name, _ in HISTORY]
    return Net(PaddedBags(), inputs, [Column("user", "user", 0, 7)] + [Column(name, name, 0, size, L) for name, size in HISTORY])


# name: (build, opset of the legacy exporter), as in cases.py
MODELS = {
    "padded-bags": (of_padded_bags, 17),
}
