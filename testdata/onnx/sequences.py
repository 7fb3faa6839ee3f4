"""Models with convolutions, recurrent layers, choices and complex numbers. cases.py adds them to its models."""

from cases import L, Column, Net, nn, torch

DIM, HIDDEN = 3, 6  # a row has at most 18 players, few enough for exact


class Sequence(nn.Module):
    """Reads (user, item, history). The history reads the table of the item, and its positions with id 0 are empty."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(7, DIM), nn.Embedding(11, DIM)
        self.build()

    def forward(self, user, item, history):
        return torch.sigmoid(self.score(self.users(user), self.items(item), self.items(history), history != 0).squeeze(-1))


def tower(*widths):
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Caser(Sequence):
    """Convolutions over one to L items with a maximum over all positions, and one over the positions of each dimension."""

    def build(self):
        self.across = nn.ModuleList(nn.Conv2d(1, 3, (size, DIM)) for size in range(1, L + 1))
        self.down = nn.Conv2d(1, 2, (L, 1))
        self.mix = nn.Linear(3 * L + 2 * DIM, DIM)
        self.out = nn.Linear(2 * DIM, 1)

    def score(self, user, item, history, mask):
        x = history.unsqueeze(1)
        found = [torch.max_pool1d(torch.relu(c(x)).squeeze(3), L + 1 - c.kernel_size[0]).squeeze(2) for c in self.across]
        z = torch.relu(self.mix(torch.cat([self.down(x).flatten(1)] + found, dim=1)))
        return self.out(torch.cat([z * item, user], dim=1))


class CCPM(Sequence):
    """Convolutions along the fields, each followed by the k largest values."""

    def build(self):
        self.first, self.second = nn.Conv2d(1, 3, (3, 1), padding=(2, 0)), nn.Conv2d(3, 2, (3, 1), padding=(2, 0))
        self.out = tower(2 * 3 * DIM, 6, 1)

    def score(self, user, item, history, mask):
        x = torch.cat([user.unsqueeze(1), item.unsqueeze(1), history], dim=1).unsqueeze(1)
        x = torch.tanh(torch.topk(self.first(x), 4, dim=2)[0])
        x = torch.tanh(torch.topk(self.second(x), 3, dim=2)[0])
        return self.out(x.flatten(1))


class FGCNN(Sequence):
    """Convolutions and pools along the fields make new features. They and the fields enter a sum of pairs and a tower."""

    def build(self):
        self.first, self.second = nn.Conv2d(1, 3, (3, 1), padding=(1, 0)), nn.Conv2d(3, 2, (3, 1), padding=(1, 0))
        self.fresh = nn.ModuleList([nn.Linear(9 * DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)])
        self.norm = nn.InstanceNorm2d(2, affine=True)
        self.out = tower((L + 5) * DIM, 8, 1)

    def score(self, user, item, history, mask):
        fields = torch.cat([user.unsqueeze(1), item.unsqueeze(1), history], dim=1)
        x = torch.max_pool2d(torch.tanh(self.first(fields.unsqueeze(1))), (2, 1))
        y = nn.functional.avg_pool2d(self.norm(torch.tanh(self.second(x))), (2, 1))
        made = [torch.tanh(f(v.flatten(1))).reshape(-1, f.out_features // DIM, DIM) for f, v in zip(self.fresh, (x, y))]
        all = torch.cat([fields] + made, dim=1)
        pairs = (all.sum(1) ** 2 - (all**2).sum(1)).mean(1, keepdim=True) / 2
        return self.out(all.flatten(1)) + pairs


class Recurrent(Sequence):
    """A recurrent layer over the history, whose last state is compared with the item."""

    def score(self, user, item, history, mask):
        states, _ = self.layer(history)
        return self.out(torch.cat([states[:, -1] * self.of_item(item), user], dim=1))


class GRU(Recurrent):
    def build(self):
        self.layer = nn.GRU(DIM, HIDDEN, batch_first=True)
        self.of_item, self.out = nn.Linear(DIM, HIDDEN), tower(HIDDEN + DIM, 6, 1)


class LSTM(Recurrent):
    def build(self):
        self.layer = nn.LSTM(DIM, HIDDEN, num_layers=2, bidirectional=True, batch_first=True)
        self.of_item, self.out = nn.Linear(DIM, 2 * HIDDEN), tower(2 * HIDDEN + DIM, 6, 1)


class DIEN(Sequence):
    """A GRU finds interests. A second one, whose update gate is multiplied by the attention, follows those of the item."""

    def build(self):
        self.interests, self.cell = nn.GRU(DIM, HIDDEN, batch_first=True), nn.GRUCell(HIDDEN, HIDDEN)
        self.attention = nn.Linear(DIM, HIDDEN, bias=False)
        self.out = tower(HIDDEN + 2 * DIM, 6, 1)

    def score(self, user, item, history, mask):
        x, _ = self.interests(history)
        weights = (x * self.attention(item).unsqueeze(1)).sum(2).masked_fill(~mask, -1e9).softmax(1)
        h = torch.zeros_like(x[:, 0])
        for t in range(L):
            a, b = nn.functional.linear(x[:, t], self.cell.weight_ih, self.cell.bias_ih), nn.functional.linear(h, self.cell.weight_hh, self.cell.bias_hh)
            (ar, az, an), (br, bz, bn) = a.chunk(3, 1), b.chunk(3, 1)
            update = torch.sigmoid(az + bz) * weights[:, t : t + 1]
            h = torch.where(mask[:, t : t + 1], (1 - update) * h + update * torch.tanh(an + torch.sigmoid(ar + br) * bn), h)
        return self.out(torch.cat([h, item, user], dim=1))


class EulerNet(Sequence):
    """Products of powers of complex numbers, computed in polar form."""

    def build(self):
        self.phases = nn.Parameter(torch.zeros(2, DIM))
        self.powers = nn.Linear(2 * DIM, 6, bias=False)
        self.out = tower(2 * 6, 6, 1)

    def score(self, user, item, history, mask):
        x = torch.stack([user, item], dim=1) + history.mean(1, keepdim=True)
        real, imaginary = x * torch.cos(self.phases), x * torch.sin(self.phases) + 0.1
        length = torch.log(real**2 + imaginary**2 + 0.3) / 2
        angle = torch.atan(imaginary / (real.abs() + 0.5)) + torch.atan2(imaginary, real + 3)
        size, turn = torch.exp(self.powers(length.flatten(1))), self.powers(angle.flatten(1))
        return self.out(torch.cat([size * torch.cos(turn), size * torch.sin(turn)], dim=1))


class SIM(Sequence):
    """The two items of the history that are most similar to the item, and an attention over them."""

    def build(self):
        self.of_item = nn.Linear(DIM, DIM, bias=False)
        self.out = tower(3 * DIM, 6, 1)

    def score(self, user, item, history, mask):
        near = (history * item.unsqueeze(1)).sum(2).masked_fill(~mask, -1e9)
        _, index = torch.topk(near, 2, dim=1)
        chosen = torch.gather(history, 1, index.unsqueeze(2).expand(-1, -1, DIM))
        weights = (chosen * self.of_item(item).unsqueeze(1)).sum(2).softmax(1)
        return self.out(torch.cat([(weights.unsqueeze(2) * chosen).sum(1), item, user], dim=1))


class Hard(Sequence):
    """The one item of the history that is nearest, and its position."""

    def build(self):
        self.positions = nn.Parameter(torch.zeros(L, DIM))
        self.out = tower(3 * DIM, 6, 1)

    def score(self, user, item, history, mask):
        index = ((history - item.unsqueeze(1)) ** 2).sum(2).masked_fill(~mask, 1e9).argmin(1)
        chosen = history[torch.arange(history.shape[0]), index] + self.positions[index]
        return self.out(torch.cat([chosen, item, user], dim=1))


def of(module):
    def build():
        inputs = [("user", torch.int64, 1), ("item", torch.int64, 1), ("history", torch.int64, L)]
        return Net(Flat(module()), inputs, [Column("user", "user", 0, 7), Column("item", "item", 0, 11), Column("history", "history", 0, 11, L)])

    return build


class Flat(nn.Module):
    """Takes one id per row as [batch, 1]."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, user, item, history):
        return self.model(user[:, 0], item[:, 0], history)


MODELS = {
    "caser": (of(Caser), 17), "ccpm": (of(CCPM), 17), "fgcnn": (of(FGCNN), 17), "gru": (of(GRU), 17), "lstm": (of(LSTM), 14),
    "dien": (of(DIEN), 17), "eulernet": (of(EulerNet), 17), "sim": (of(SIM), 17), "hard": (of(Hard), 17),
}
