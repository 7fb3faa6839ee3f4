"""Models whose look-ups are chosen by conditions, positions or arithmetic on ids. cases.py adds them to its models."""

from cases import Column, L, Net
from packages import DIM, ROWS, nn, np, torch

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


class Computed(Column):
    """A field whose ids the graph computes: of(values) gives them from the inputs by name."""

    def __init__(self, name, input, rows, of):
        super().__init__(name, input, 0, rows)
        self.of = of

    def ids(self, values):
        return self.of(values).reshape(ROWS, 1)


class Raw(Net):
    """A model with Computed fields. raw(random) gives the inputs by name, each [rows, columns]."""

    def __init__(self, module, inputs, fields, dense, raw):
        super().__init__(module, inputs, fields, dense)
        self.raw = raw

    def rows(self, seed):
        return self.raw(np.random.default_rng(seed))


class Buckets(nn.Module):
    """A hashed user, an item in two tables by quotient and remainder, and a count in buckets of powers of two."""

    def __init__(self):
        super().__init__()
        self.user, self.city, self.count = nn.Embedding(7, DIM), nn.Embedding(5, DIM), nn.Embedding(9, DIM)
        self.quotient, self.remainder = nn.Embedding(6, DIM), nn.Embedding(10, DIM)
        self.mlp = nn.Sequential(nn.Linear(4 * DIM, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, user, item, city, count):
        bucket = torch.log2(count.float() + 1).long().clamp(0, 8)
        rows = [self.user(user % 7), self.quotient(item // 10) * self.remainder(item % 10), self.city(city), self.count(bucket)]
        return torch.sigmoid(self.mlp(torch.cat(rows, dim=1)).squeeze(-1))


def of_buckets():
    def raw(r):
        powers = [0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 63, 127, 255, 256, 5000]
        count = np.concatenate([powers, r.integers(0, 600, ROWS - len(powers))])
        user = np.concatenate([[0, 6, 7, 2**40 + 3], r.integers(0, 10**6, ROWS - 4)])
        columns = {"user": user, "item": r.integers(0, 60, ROWS), "city": r.integers(0, 5, ROWS), "count": count}
        return {name: column.astype(np.int64).reshape(ROWS, 1) for name, column in columns.items()}

    fields = [
        Computed("user % 7", "user", 7, lambda v: v["user"] % 7),
        Computed("computed from item", "item", 6, lambda v: v["item"] // 10),
        Computed("item % 10", "item", 10, lambda v: v["item"] % 10),
        Column("city", "city", 0, 5),
        Computed("computed from count", "count", 9, lambda v: np.array([min(8, int(n + 1).bit_length() - 1) for n in v["count"][:, 0]])),
    ]
    return Raw(Buckets(), [(name, torch.int64, 0) for name in ("user", "item", "city", "count")], fields, [], raw)


class LastItem(nn.Module):
    """The row of the last item of a history, which has no length, next to the mean of the history."""

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(7, DIM), nn.Embedding(11, DIM, padding_idx=0)
        self.mlp = nn.Sequential(nn.Linear(3 * DIM, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, user, history):
        length = (history > 0).sum(dim=1).clamp(min=1)
        last = history.gather(1, (length - 1).unsqueeze(1)).squeeze(1)
        rows = [self.user(user), self.item(history).mean(dim=1), torch.tanh(self.item(last))]
        return torch.sigmoid(self.mlp(torch.cat(rows, dim=1)).squeeze(-1))


def of_last_item():
    def raw(r):
        length, history = r.integers(0, L + 1, ROWS), r.integers(1, 11, (ROWS, L))
        length[:2] = 0, L
        history[np.arange(L) >= length[:, None]] = 0
        return {"user": r.integers(0, 7, (ROWS, 1)), "history": history.astype(np.int64)}

    def last(values):
        history = values["history"]
        return history[np.arange(ROWS), np.maximum((history > 0).sum(axis=1) - 1, 0)]

    fields = [Column("user", "user", 0, 7), Column("history", "history", 0, 11, L), Computed("computed from history", "history", 11, last)]
    return Raw(LastItem(), [("user", torch.int64, 0), ("history", torch.int64, L)], fields, [], raw)


# name: (build, opset of the legacy exporter), as in cases.py
MODELS = {
    "padded-bags": (of_padded_bags, 17),
    "positions": (of_positions, 17),
    "buckets": (of_buckets, 17),
    "last-item": (of_last_item, 17),
}
