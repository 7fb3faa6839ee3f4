"""Models that packages write in ways of their own. cases.py adds them to its models."""

from cases import Column, Net
from packages import DIM, nn, torch


class EntireSpace(nn.Module):
    """ESMM: the probabilities of a click, of a purchase after it by two classes, and that it is kept, and their product."""

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(7, DIM), nn.Embedding(11, DIM)
        self.click, self.buy, self.keep = (nn.Sequential(nn.Linear(2 * DIM, 6), nn.ReLU(), nn.Linear(6, n)) for n in (1, 2, 1))

    def forward(self, user, item):
        x = torch.cat([self.user(user), self.item(item)], dim=1)
        click, buy, keep = torch.sigmoid(self.click(x) + 2), torch.softmax(self.buy(x), dim=1)[:, 1:], torch.sigmoid(self.keep(x) + 2)
        return torch.cat([click, buy, click * buy * keep], dim=1)[:, 2]


def of_entire_space():
    return Net(EntireSpace(), [("user", torch.int64, 0), ("item", torch.int64, 0)], [Column("user", "user", 0, 7), Column("item", "item", 0, 11)])


class Regions(nn.Module):
    """MLR: tables of one column only. A softmax divides the rows into regions, and each region has a logistic regression."""

    def __init__(self):
        super().__init__()
        self.user, self.item = (nn.ModuleList(nn.Embedding(size, 1) for _ in range(6)) for size in (7, 11))
        self.dense = nn.Linear(2, 6)

    def forward(self, user, item, dense):
        z = torch.cat([u(user) + i(item) for u, i in zip(self.user, self.item)], dim=1) + self.dense(dense)
        return (torch.softmax(z[:, :3], dim=1) * torch.sigmoid(z[:, 3:])).sum(dim=1)


def of_regions():
    inputs = [("user", torch.int64, 0), ("item", torch.int64, 0), ("dense", torch.float32, 2)]
    return Net(Regions(), inputs, [Column("user", "user", 0, 7), Column("item", "item", 0, 11)], [Column(f"dense[{i}]", "dense", i) for i in range(2)])


class FieldAware(nn.Module):
    """A field-aware model: id*m + k is the row of an id for field k, in a table for each field."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(3 * size, DIM) for size in (7, 11, 5))
        self.linear = nn.Embedding(7, DIM)
        self.register_buffer("offsets", torch.arange(3))
        self.mlp = nn.Sequential(nn.Linear(4 * DIM, 6), nn.ReLU(), nn.Linear(6, 1))

    def forward(self, user, item, city):
        rows = [table(ids.unsqueeze(1) * 3 + self.offsets) for table, ids in zip(self.tables, (user, item, city))]
        pairs = [rows[i][:, j] * rows[j][:, i] for i in range(3) for j in range(i + 1, 3)]
        return torch.sigmoid(self.mlp(torch.cat([self.linear(user), *pairs], dim=1)).squeeze(-1))


def of_field_aware():
    fields = [("user", 7), ("item", 11), ("city", 5)]
    return Net(FieldAware(), [(n, torch.int64, 0) for n, _ in fields], [Column(n, n, 0, size) for n, size in fields])


# name: (build, opset of the legacy exporter), as in cases.py
MODELS = {
    "entire-space": (of_entire_space, 17),
    "regions": (of_regions, 17),
    "field-aware": (of_field_aware, 17),
}
