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


def gather_indexes(states, positions):
    """The states at the positions, as RecBole's sequential models take them."""
    index = positions.view(-1, 1, 1).expand(-1, -1, states.shape[-1])
    return states.gather(dim=1, index=index).squeeze(1)


class Positions(nn.Module):
    """The state at the last position of a history, and the row of the first item before it."""

    def __init__(self):
        super().__init__()
        self.user, self.item, self.place = nn.Embedding(7, DIM), nn.Embedding(11, DIM, padding_idx=0), nn.Parameter(torch.zeros(L, DIM))
        self.layer = nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(4 * DIM, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, user, history, length):
        rows = self.item(history)
        states = torch.relu(self.layer(rows + self.place))
        last = gather_indexes(states, length - 1)
        before = rows[torch.arange(history.shape[0]), (length - 2).clamp(min=0)]
        return torch.sigmoid(self.mlp(torch.cat([self.user(user), last, before, rows.mean(dim=1)], dim=1)).squeeze(-1))


def of_positions():
    inputs = [("user", torch.int64, 0), ("history", torch.int64, L), ("length", torch.int64, 0)]
    fields = [Column("user", "user", 0, 7), Column("history", "history", 0, 11, L, least=1)]
    return Net(Positions(), inputs, fields, [Column("length", "length", 0, counts="history")])


# name: (build, opset of the legacy exporter), as in cases.py
MODELS = {
    "padded-bags": (of_padded_bags, 17),
    "positions": (of_positions, 17),
}
