"""Models whose masks are -Inf. cases.py adds them to its models."""

from cases import *  # noqa: F403

torch.backends.mha.set_fastpath_enabled(False)  # the fast path has operators that the legacy exporter does not know


class Masked(nn.Module):
    """A model that reads the ids of a user, an item and the items of a history, where 0 is no item."""

    size = DIM  # number of values that head reads

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(7, DIM), nn.Embedding(11, DIM, padding_idx=0)
        self.place = nn.Parameter(torch.zeros(L + 1, DIM))
        self.build()
        self.head = nn.Sequential(nn.Linear(self.size + 2 * DIM, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, user, item, history):
        return self.score(self.user(user), self.item(item), self.item(history), history == 0)

    def mlp(self, user, item, x):
        return self.head(torch.cat([user, item, x], dim=1)).squeeze(-1)


class Transformer(Masked):
    """nn.TransformerEncoder over the history, with masks of padding and of the future, and the mean of its results."""

    def build(self):
        layer = nn.TransformerEncoderLayer(DIM, 2, 6, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def score(self, user, item, history, pad):
        causal = nn.Transformer.generate_square_subsequent_mask(L)
        x = self.encoder(history + self.place[:L], mask=causal, is_causal=True, src_key_padding_mask=torch.zeros(pad.shape).masked_fill(pad, float("-inf")))
        return self.mlp(user, item, x.masked_fill(pad.unsqueeze(2), 0.0).mean(dim=1))


class BST(Masked):
    """The behaviour sequence transformer: the item is the last of its history, and attention ignores padding."""

    size = DIM * (L + 1)

    def build(self):
        self.attention = nn.MultiheadAttention(DIM, 2, batch_first=True)
        self.norm, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.ffn = nn.Sequential(nn.Linear(DIM, 6), nn.LeakyReLU(), nn.Linear(6, DIM))

    def score(self, user, item, history, pad):
        x = torch.cat([history, item.unsqueeze(1)], dim=1) + self.place
        pad = torch.cat([pad, torch.zeros_like(pad[:, :1])], dim=1)
        y, _ = self.attention(x, x, x, key_padding_mask=pad, need_weights=False)
        x = self.norm(x + y)
        return self.mlp(user, item, self.norm2(x + self.ffn(x)).flatten(1))


class Heads(BST):
    """BST with FuxiCTR's mask: one for each row and head, of the padding and the future."""

    def score(self, user, item, history, pad):
        x = torch.cat([history, item.unsqueeze(1)], dim=1) + self.place
        pad = torch.cat([pad, torch.zeros_like(pad[:, :1])], dim=1)
        mask = pad.unsqueeze(1).repeat(1, (L + 1) * 2, 1).view(-1, L + 1, L + 1)
        mask = mask | torch.triu(torch.ones(L + 1, L + 1, dtype=torch.bool), diagonal=1)
        y, _ = self.attention(x, x, x, attn_mask=mask)
        x = self.norm(x + y)
        return self.mlp(user, item, self.norm2(x + self.ffn(x)).flatten(1))


class SASRec(Masked):
    """The next click: the state after the last item of the history, and the user, times the item. The causal mask has bools."""

    def build(self):
        self.attention = nn.ModuleList(nn.MultiheadAttention(DIM, 1, batch_first=True) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(4))
        self.ffn = nn.ModuleList(nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, DIM)) for _ in range(2))

    def score(self, user, item, history, pad):
        keep = (~pad).unsqueeze(2).float()
        x = (history * DIM**0.5 + self.place[:L]) * keep
        causal = torch.triu(torch.ones(L, L, dtype=torch.bool), diagonal=1)
        for k, attention in enumerate(self.attention):
            q = self.norms[2 * k](x)
            y, _ = attention(q, x, x, attn_mask=causal)
            x = q + y
            x = self.norms[2 * k + 1](x)
            x = (x + self.ffn[k](x)) * keep
        last = (keep - nn.functional.pad(keep[:, 1:], (0, 0, 0, 1))) * x  # of the last position that has an item
        return ((last.sum(dim=1) + user) * item).sum(dim=1)


class Weights(Masked):
    """nn.MultiheadAttention of the item over its history, which also returns its weights."""

    def build(self):
        self.attention = nn.MultiheadAttention(DIM, 2, batch_first=True)

    def score(self, user, item, history, pad):
        y, w = self.attention(item.unsqueeze(1), history, history, key_padding_mask=pad)
        return self.mlp(user, item, y.squeeze(1)) + w.squeeze(1)[:, 0]


class Causal(Masked):
    """scaled_dot_product_attention with is_causal over the history, and the mean of its results."""

    def build(self):
        pass

    def score(self, user, item, history, pad):
        x = (history + self.place[:L]).unsqueeze(1)
        x = nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        return self.mlp(user, item, x.squeeze(1).mean(dim=1))


class Attention(Causal):
    """scaled_dot_product_attention of the item over its history, with a mask that leaves nothing of an empty one."""

    def score(self, user, item, history, pad):
        y = nn.functional.scaled_dot_product_attention(item.view(-1, 1, 1, DIM), history.unsqueeze(1), history.unsqueeze(1), attn_mask=~pad.view(-1, 1, 1, L))
        return self.mlp(user, item, y.flatten(1))


class Filled(Masked):
    """masked_fill with -Inf before a softmax. The weights of an empty history are NaN, which become 0."""

    def build(self):
        self.unit = nn.Sequential(nn.Linear(3 * DIM, 6), nn.PReLU(), nn.Linear(6, 1))

    def score(self, user, item, history, pad):
        q = item.unsqueeze(1).expand(-1, L, -1)
        scores = self.unit(torch.cat([q, history, q * history], dim=2)).squeeze(2)
        weights = torch.softmax(scores.masked_fill(pad, float("-inf")), dim=1)
        weights = torch.where(torch.isnan(weights), torch.zeros_like(weights), weights)
        return self.mlp(user, item, (weights.unsqueeze(2) * history).sum(dim=1))


class Pooled(Masked):
    """The maximum over a history masked with -Inf, which is replaced where it is infinite, and nan_to_num of a softmax."""

    size = 2 * DIM

    def build(self):
        self.unit = nn.Linear(DIM, 1)

    def score(self, user, item, history, pad):
        most = history.masked_fill(pad.unsqueeze(2), float("-inf")).amax(dim=1)
        most = torch.where(torch.isinf(most), 0.0, most)
        scores = self.unit(history * item.unsqueeze(1)).squeeze(2) + torch.where(pad, float("-inf"), 0.0)
        weights = torch.nan_to_num(torch.softmax(scores, dim=1), nan=0.0)
        return self.mlp(user, item, torch.cat([most, (weights.unsqueeze(2) * history).sum(dim=1)], dim=1))


class TransAct(Masked):
    """TransAct: the item beside each of its history and their actions, a transformer, its maximum and its first results."""

    size = 3 * DIM * 2

    def build(self):
        self.action = nn.Embedding(4, DIM, padding_idx=0)
        layer = nn.TransformerEncoderLayer(3 * DIM, 2, 6, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, user, item, history, actions):
        pad, item = history == 0, self.item(item)
        x = torch.cat([self.item(history), self.action(actions), item.unsqueeze(1).expand(-1, L, -1)], dim=2)
        pad = torch.cat([torch.zeros_like(pad[:, :1]), pad[:, 1:]], dim=1)  # the newest action is always there
        x = self.encoder(x, src_key_padding_mask=pad)
        most = x.masked_fill(pad.unsqueeze(2), float("-inf")).amax(dim=1)
        return self.mlp(self.user(user), item, torch.cat([most, x[:, 0]], dim=1))


class FiGNN(nn.Module):
    """A graph of the fields: attention over all other fields, messages, and a gated recurrent unit for the states."""

    def __init__(self):
        super().__init__()
        m = len(SIZES)
        self.embeddings = nn.ModuleList(nn.Embedding(size, DIM) for size in SIZES)
        self.pair = nn.Linear(2 * DIM, 1, bias=False)
        self.into, self.out = nn.Parameter(torch.zeros(m, DIM, DIM)), nn.Parameter(torch.zeros(m, DIM, DIM))
        self.cell = nn.GRUCell(DIM, DIM)
        self.score, self.weight = nn.Linear(DIM, 1), nn.Linear(m * DIM, m)
        self.register_buffer("source", torch.tensor([i for i in range(m) for j in range(m)]), persistent=False)
        self.register_buffer("target", torch.tensor([j for i in range(m) for j in range(m)]), persistent=False)

    def forward(self, ids):
        m = len(SIZES)
        x = torch.stack([e(ids[:, i]) for i, e in enumerate(self.embeddings)], dim=1)
        alpha = nn.functional.leaky_relu(self.pair(torch.cat([x[:, self.source], x[:, self.target]], dim=2))).view(-1, m, m)
        alpha = torch.softmax(alpha.masked_fill(torch.eye(m).bool(), float("-inf")), dim=-1)
        h = x
        for _ in range(2):
            sent = torch.matmul(self.out, h.unsqueeze(-1)).squeeze(-1)
            a = torch.matmul(self.into, torch.bmm(alpha, sent).unsqueeze(-1)).squeeze(-1)
            h = self.cell(a.view(-1, DIM), h.reshape(-1, DIM)).view(-1, m, DIM) + x
        return (self.score(h).squeeze(-1) * torch.sigmoid(self.weight(h.flatten(1)))).sum(dim=1, keepdim=True)


def of(model, *lists, least=0):
    def build():
        inputs, fields, _ = columns_with_lists([("hist_item", 11), *lists], FIELDS[:2])
        fields[2].least = least
        return Net(model(), inputs, fields)

    return build


def of_fignn():
    return Net(FiGNN(), [("ids", torch.int64, len(FIELDS))], [Column(name, "ids", i, size) for i, (name, size) in enumerate(FIELDS)])


# least is 1 where an empty history gives NaN in PyTorch too.
MASKED = {
    "masked-transformer": (of(Transformer, least=1), 17),
    "masked-bst": (of(BST), 17),
    "masked-heads": (of(Heads, least=1), 17),
    "masked-sasrec": (of(SASRec), 17),
    "masked-weights": (of(Weights, least=1), 17),
    "masked-causal": (of(Causal), 17),
    "masked-attention": (of(Attention), 17),
    "masked-filled": (of(Filled), 17),
    "masked-pooled": (of(Pooled), 20),
    "masked-transact": (of(TransAct, ("actions", 4)), 17),
    "masked-fignn": (of_fignn, 17),
}
MODELS.update(MASKED)
