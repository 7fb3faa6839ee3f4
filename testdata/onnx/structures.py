"""Click models of FuxiCTR's zoo, written from their papers: small, without the package, in plain PyTorch.

Each takes a dict of ids by the name of the field and returns a logit [batch], with or without a sigmoid. The histories
hist_item and hist_category have L ids, 0 is the pad, and they read the tables of item and category.
"""

import math

import torch
from cases import DIM, FIELDS, HISTORY, NAMES, SIZES, ByName, L, Net, columns_of, columns_with_lists
from torch import nn
from torch.nn import functional as F

MODELS = {}
M = len(FIELDS)
PAIRS = [(i, j) for i in range(M) for j in range(i + 1, M)]
LEFT, RIGHT = [i for i, _ in PAIRS], [j for _, j in PAIRS]
WIDTH = M * DIM


def mlp(width, *units, last=True, act=nn.ReLU):
    layers = []
    for u in units:
        layers += [nn.Linear(width, u), act()]
        width = u
    return nn.Sequential(*layers, *([nn.Linear(width, 1)] if last else []))


class Fields(nn.Module):
    """A model of the fields: logit(e, x) has the embeddings [batch, M, DIM] and the ids."""

    lists = ()
    least = 0
    first = False  # whether there are first-order weights

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleDict({n: nn.Embedding(size, DIM) for n, size in FIELDS})
        if self.first:
            self.linear = nn.ModuleDict({n: nn.Embedding(size, 1) for n, size in FIELDS})
        self.build()

    def forward(self, x):
        e = torch.stack([self.tables[n](x[n]) for n in NAMES], dim=1)
        z = self.logit(e, x).reshape(-1)
        if self.first:
            z = z + sum(self.linear[n](x[n])[:, 0] for n in NAMES)
        return torch.sigmoid(z)


class Histories(Fields):
    """A model of the fields and of two histories: history(x) is [batch, L, 2 DIM], mask(x) is True where there is an id."""

    lists = [(name, size) for name, _, size in HISTORY]

    def history(self, x):
        return torch.cat([self.tables[t](x[n]) for n, t, _ in HISTORY], dim=2)

    def target(self, e):
        return torch.cat([e[:, 1], e[:, 2]], dim=1)

    def mask(self, x):
        return x["hist_item"] != 0


def zoo(cls):
    def build():
        inputs, fields, dense = columns_with_lists(cls.lists, FIELDS) if cls.lists else columns_of(FIELDS)
        for f in fields:
            f.least = cls.least if f.length else 0
        net = Net(ByName(cls(), [i[0] for i in inputs]), inputs, fields, dense)
        return net

    MODELS[cls.__name__] = build
    return cls


def pairs(e):
    return e[:, LEFT], e[:, RIGHT]


# ---- Interactions.


@zoo
class LR(Fields):
    first = True

    def build(self):
        self.bias = nn.Parameter(torch.zeros(1))
        self.w = nn.Linear(WIDTH, 1)

    def logit(self, e, x):
        return self.w(e.flatten(1)) + self.bias


@zoo
class DNN(Fields):
    def build(self):
        self.dnn = mlp(WIDTH, 8, 6)

    def logit(self, e, x):
        return self.dnn(e.flatten(1))


@zoo
class DeepCrossing(Fields):
    def build(self):
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, WIDTH)) for _ in range(2))
        self.out = nn.Linear(WIDTH, 1)

    def logit(self, e, x):
        h = e.flatten(1)
        for b in self.blocks:
            h = F.relu(b(h) + h)
        return self.out(h)


@zoo
class FwFM(Fields):
    first = True

    def build(self):
        self.r = nn.Linear(len(PAIRS), 1)

    def logit(self, e, x):
        a, b = pairs(e)
        return self.r((a * b).sum(2))


@zoo
class FmFM(Fields):
    first = True

    def build(self):
        self.w = nn.Parameter(torch.zeros(len(PAIRS), DIM, DIM))

    def logit(self, e, x):
        a, b = pairs(e)
        return (torch.matmul(a.unsqueeze(2), self.w).squeeze(2) * b).sum((1, 2))


@zoo
class FFM(Fields):
    def build(self):
        self.aware = nn.ModuleList(nn.ModuleDict({n: nn.Embedding(s, DIM) for n, s in FIELDS}) for _ in range(M - 1))

    def logit(self, e, x):
        v = [[None] * M for _ in range(M)]
        for k, tables in enumerate(self.aware):
            for i, n in enumerate(NAMES):
                v[i][k if k < i else k + 1] = tables[n](x[n])
        return sum((v[i][j] * v[j][i]).sum(1) for i, j in PAIRS) + 0 * e.sum((1, 2))


@zoo
class LorentzFM(Fields):
    def build(self):
        pass

    def logit(self, e, x):
        a, b = pairs(e)
        x0, y0 = (1 + (a**2).sum(2)).sqrt(), (1 + (b**2).sum(2)).sqrt()
        inner = (a * b).sum(2) - x0 * y0
        return ((1 - inner - x0 - y0) / (x0 * y0)).sum(1)


@zoo
class HOFM(Fields):
    """Order 3 by the ANOVA kernel, and order 2."""

    first = True

    def build(self):
        pass

    def logit(self, e, x):
        s1, s2, s3 = e.sum(1), (e**2).sum(1), (e**3).sum(1)
        return ((s1**2 - s2) / 2).sum(1) + ((s1**3 - 3 * s1 * s2 + 2 * s3) / 6).sum(1)


@zoo
class HFM(Fields):
    """Circular correlation of pairs by shifts."""

    def build(self):
        self.dnn = mlp(len(PAIRS) * DIM, 8)

    def logit(self, e, x):
        a, b = pairs(e)
        c = torch.stack([(a * torch.roll(b, -k, 2)).sum(2) for k in range(DIM)], dim=2)
        return self.dnn(c.flatten(1))


@zoo
class HFMbyFFT(Fields):
    def build(self):
        self.dnn = mlp(len(PAIRS) * DIM, 8)

    def logit(self, e, x):
        a, b = pairs(e)
        c = torch.fft.irfft(torch.conj(torch.fft.rfft(a, dim=2)) * torch.fft.rfft(b, dim=2), n=DIM, dim=2)
        return self.dnn(c.flatten(1))


@zoo
class AFN(Fields):
    def build(self):
        self.norm, self.norm2 = nn.BatchNorm1d(M), nn.BatchNorm1d(6)
        self.w = nn.Linear(M, 6)
        self.dnn, self.deep = mlp(6 * DIM, 8), mlp(WIDTH, 8)

    def logit(self, e, x):
        h = self.norm(torch.log(torch.clamp(e.abs(), min=1e-7)))
        h = self.norm2(torch.exp(self.w(h.transpose(1, 2)).transpose(1, 2)))
        return self.dnn(h.flatten(1)) + self.deep(e.flatten(1))


@zoo
class CCPM(Fields):
    def build(self):
        self.c1, self.c2 = nn.Conv2d(1, 3, (3, 1), padding=(2, 0)), nn.Conv2d(3, 2, (2, 1), padding=(1, 0))
        self.fc = nn.Linear(2 * 3 * DIM, 1)

    def logit(self, e, x):
        h = torch.tanh(self.top(self.c1(e.unsqueeze(1)), 4))
        h = torch.tanh(self.top(self.c2(h), 3))
        return self.fc(h.flatten(1))

    def top(self, h, k):
        index = h.topk(k, dim=2)[1].sort(dim=2)[0]
        return h.gather(2, index)


@zoo
class FGCNN(Fields):
    def build(self):
        self.conv, self.pool = nn.Conv2d(1, 2, (3, 1), padding=(1, 0)), nn.MaxPool2d((2, 1))
        self.re = nn.Linear(2 * 2 * DIM, 3 * DIM)
        n = M + 3
        self.at = [(i, j) for i in range(n) for j in range(i + 1, n)]
        self.dnn = mlp(n * DIM + len(self.at), 8)

    def logit(self, e, x):
        h = self.pool(torch.tanh(self.conv(e.unsqueeze(1))))
        new = torch.tanh(self.re(h.flatten(1))).view(-1, 3, DIM)
        all = torch.cat([e, new], dim=1)
        p = (all[:, [i for i, _ in self.at]] * all[:, [j for _, j in self.at]]).sum(2)
        return self.dnn(torch.cat([all.flatten(1), p], dim=1))


@zoo
class FiGNN(Fields):
    def build(self):
        self.att = nn.Linear(2 * DIM, 1, bias=False)
        self.w_in, self.w_out = nn.Parameter(torch.zeros(M, DIM, DIM)), nn.Parameter(torch.zeros(M, DIM, DIM))
        self.bias = nn.Parameter(torch.zeros(DIM))
        self.gru = nn.GRUCell(DIM, DIM)
        self.score, self.weight = nn.Linear(DIM, 1, bias=False), nn.Sequential(nn.Linear(WIDTH, M, bias=False), nn.Sigmoid())

    def logit(self, e, x):
        two = torch.cat([e.unsqueeze(2).expand(-1, M, M, DIM), e.unsqueeze(1).expand(-1, M, M, DIM)], dim=3)
        a = F.leaky_relu(self.att(two).squeeze(3), 0.01)
        a = a.masked_fill(torch.eye(M, dtype=torch.bool), float("-inf")).softmax(dim=2)
        h = e
        for _ in range(2):
            out = torch.matmul(self.w_out, h.unsqueeze(3)).squeeze(3)
            m = torch.matmul(self.w_in, torch.bmm(a, out).unsqueeze(3)).squeeze(3) + self.bias
            h = self.gru(m.reshape(-1, DIM), h.reshape(-1, DIM)).view(-1, M, DIM) + e
        return (self.weight(h.flatten(1)) * self.score(h).squeeze(2)).sum(1)


@zoo
class InterHAt(Fields):
    def build(self):
        self.att = nn.MultiheadAttention(DIM, 2, batch_first=True)
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.ff = nn.Sequential(nn.Linear(DIM, 8), nn.ReLU(), nn.Linear(8, DIM))
        self.agg = nn.ModuleList(nn.Sequential(nn.Linear(DIM, 5), nn.ReLU(), nn.Linear(5, 1, bias=False), nn.Softmax(dim=1)) for _ in range(3))
        self.final = nn.Sequential(nn.Linear(DIM, 5), nn.ReLU(), nn.Linear(5, 1, bias=False), nn.Softmax(dim=1))
        self.out = mlp(DIM, 6)

    def logit(self, e, x):
        h = self.n1(e + self.att(e, e, e, need_weights=False)[0])
        x1 = xi = self.n2(h + self.ff(h))
        us = []
        for a in self.agg:
            u = (a(xi) * xi).sum(1, keepdim=True)
            us.append(u)
            xi = u * x1 + xi
        u = torch.cat(us, dim=1)
        return self.out((self.final(u) * u).sum(1))


class MaskBlock(nn.Module):
    def __init__(self, width, hidden, out):
        super().__init__()
        self.mask, self.hidden, self.norm = nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, hidden)), nn.Linear(hidden, out), nn.LayerNorm(out)

    def forward(self, v, h):
        return F.relu(self.norm(self.hidden(self.mask(v) * h)))


@zoo
class MaskNetParallel(Fields):
    def build(self):
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in NAMES)
        self.blocks = nn.ModuleList(MaskBlock(WIDTH, WIDTH, 6) for _ in range(2))
        self.out = mlp(12, 8)

    def logit(self, e, x):
        h = torch.cat([n(e[:, i]) for i, n in enumerate(self.norms)], dim=1)
        return self.out(torch.cat([b(e.flatten(1), h) for b in self.blocks], dim=1))


@zoo
class MaskNetSerial(MaskNetParallel):
    def build(self):
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in NAMES)
        self.blocks = nn.ModuleList([MaskBlock(WIDTH, WIDTH, 8), MaskBlock(WIDTH, 8, 6)])
        self.out = nn.Linear(6, 1)

    def logit(self, e, x):
        h = torch.cat([n(e[:, i]) for i, n in enumerate(self.norms)], dim=1)
        for b in self.blocks:
            h = b(e.flatten(1), h)
        return self.out(h)


@zoo
class EulerNet(Fields):
    def build(self):
        self.mu = nn.Parameter(torch.ones(M * DIM))
        self.order, self.im, self.bias_l, self.bias_t = nn.Parameter(torch.zeros(WIDTH, 12)), nn.Linear(WIDTH, 12), nn.Parameter(torch.zeros(12)), nn.Parameter(torch.zeros(12))
        self.w, self.wi = nn.Linear(12, 1), nn.Linear(12, 1)
        self.norm = nn.LayerNorm(12)

    def logit(self, e, x):
        flat = e.flatten(1)
        r, p = self.mu * torch.cos(flat), self.mu * torch.sin(flat)
        lam = torch.log(r**2 + p**2 + 1e-8) / 2
        theta = torch.atan2(p, r)
        lam, theta = torch.exp(lam @ self.order + self.bias_l), theta @ self.order + self.bias_t
        r2, p2 = F.relu(self.im(r)) + lam * torch.cos(theta), F.relu(self.im(p)) + lam * torch.sin(theta)
        return self.w(self.norm(r2)) + self.wi(self.norm(p2))


@zoo
class EulerNetByAtan(EulerNet):
    """With the angle from one arc tangent, and without the sign of the real part."""

    def logit(self, e, x):
        flat = e.flatten(1)
        r, p = self.mu * torch.cos(flat), self.mu * torch.sin(flat)
        lam = torch.log(r**2 + p**2 + 1e-8) / 2
        theta = torch.atan(p / (r + 1e-8))
        lam, theta = torch.exp(lam @ self.order + self.bias_l), theta @ self.order + self.bias_t
        return self.w(self.norm(lam * torch.cos(theta))) + self.wi(self.norm(lam * torch.sin(theta)))


@zoo
class GDCNp(Fields):
    def build(self):
        self.w, self.g = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2)), nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.dnn, self.out = mlp(WIDTH, 8, 6, last=False), nn.Linear(WIDTH + 6, 1)

    def cross(self, x0):
        h = x0
        for w, g in zip(self.w, self.g):
            h = x0 * w(h) * torch.sigmoid(g(h)) + h
        return h

    def logit(self, e, x):
        flat = e.flatten(1)
        return self.out(torch.cat([self.cross(flat), self.dnn(flat)], dim=1))


@zoo
class GDCNs(GDCNp):
    def build(self):
        super().build()
        self.out = mlp(WIDTH, 8, 6)

    def logit(self, e, x):
        return self.out(self.cross(e.flatten(1)))


@zoo
class DCNv3(Fields):
    """Exponential and linear cross networks with self-masks by LayerNorm."""

    def build(self):
        half = WIDTH // 2
        self.we, self.wl = [nn.ModuleList(nn.Linear(WIDTH, half, bias=False) for _ in range(2)) for _ in range(2)]
        self.ne, self.nl = [nn.ModuleList(nn.LayerNorm(half) for _ in range(2)) for _ in range(2)]
        self.be, self.bl = [nn.ParameterList(nn.Parameter(torch.zeros(WIDTH)) for _ in range(2)) for _ in range(2)]
        self.oe, self.ol = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 1)

    def logit(self, e, x):
        a = b = x0 = e.flatten(1)
        for we, wl, ne, nl, be, bl in zip(self.we, self.wl, self.ne, self.nl, self.be, self.bl):
            h = we(a)
            a = a * (torch.cat([h, h * F.relu(ne(h))], dim=1) + be) + a
            h = wl(b)
            b = x0 * (torch.cat([h, h * F.relu(nl(h))], dim=1) + bl) + b
        return (self.oe(a) + self.ol(b)) / 2


@zoo
class xDeepFM(Fields):
    first = True

    def build(self):
        self.c1, self.c2 = nn.Conv1d(M * M, 6, 1), nn.Conv1d(M * 6, 4, 1)
        self.fc, self.dnn = nn.Linear(10, 1), mlp(WIDTH, 8, 6)

    def logit(self, e, x):
        h, pooled = e, []
        for c in (self.c1, self.c2):
            z = torch.einsum("bhd,bmd->bhmd", h, e).flatten(1, 2)
            h = c(z)
            pooled.append(h.sum(2))
        return self.fc(torch.cat(pooled, dim=1)) + self.dnn(e.flatten(1))


@zoo
class FLEN(Fields):
    """Field-wise bi-interaction of groups user, item and context, with an MLP."""

    first = True
    groups = ((0, 3), (1, 2), (4,))

    def build(self):
        self.r_mf, self.r_fm = nn.Parameter(torch.zeros(3, 1)), nn.Parameter(torch.zeros(3, 1))
        self.dnn, self.out = mlp(WIDTH, 8, 6, last=False), nn.Linear(6 + DIM, 1)

    def logit(self, e, x):
        g = [e[:, list(i)] for i in self.groups]
        s = torch.stack([v.sum(1) for v in g], dim=1)
        mf = (s[:, [0, 0, 1]] * s[:, [1, 2, 2]] * self.r_mf).sum(1)
        fm = (torch.stack([v.sum(1) ** 2 - (v**2).sum(1) for v in g], dim=1) * self.r_fm).sum(1)
        return self.out(torch.cat([self.dnn(e.flatten(1)), mf + fm], dim=1))


@zoo
class DESTINE(Fields):
    """Attention with whitened queries and keys, and a unary term."""

    def build(self):
        self.q, self.k, self.v, self.r = [nn.Linear(DIM, 6, bias=False) for _ in range(4)]
        self.u = nn.Linear(DIM, 2, bias=False)
        self.fc, self.dnn = nn.Linear(M * 6, 1), mlp(WIDTH, 8)

    def logit(self, e, x):
        def heads(t):
            return t.view(-1, M, 2, 3).transpose(1, 2)

        q, k, v = heads(self.q(e)), heads(self.k(e)), heads(self.v(e))
        q, k = q - q.mean(2, keepdim=True), k - k.mean(2, keepdim=True)
        pair = (q @ k.transpose(2, 3) / math.sqrt(3)).softmax(3)
        unary = self.u(e).softmax(1).transpose(1, 2).unsqueeze(2)
        h = ((pair + unary) @ v).transpose(1, 2).reshape(-1, M, 6)
        return self.fc(F.relu(h + self.r(e)).flatten(1)) + self.dnn(e.flatten(1))


@zoo
class FinalMLP(Fields):
    def build(self):
        self.a, self.b = mlp(WIDTH, 8, 6, last=False), mlp(WIDTH, 8, 6, last=False)
        self.ga, self.gb = [nn.Sequential(nn.Linear(DIM, 5), nn.ReLU(), nn.Linear(5, WIDTH), nn.Sigmoid()) for _ in range(2)]
        self.wa, self.wb, self.w = nn.Linear(6, 1), nn.Linear(6, 1), nn.Parameter(torch.zeros(2, 3, 3))

    def logit(self, e, x):
        flat = e.flatten(1)
        a = self.a(flat * self.ga(e[:, 0]) * 2).view(-1, 2, 1, 3)
        b = self.b(flat * self.gb(e[:, 1]) * 2).view(-1, 2, 3, 1)
        return self.wa(a.flatten(1)) + self.wb(b.flatten(1)) + (a @ self.w @ b).sum((1, 2))


@zoo
class FinalNet(Fields):
    def build(self):
        self.a, self.b, self.g = nn.Linear(WIDTH, 8), nn.Linear(8, 8), nn.Linear(WIDTH, WIDTH)
        self.fa, self.fb = nn.Linear(WIDTH, 8), nn.Linear(8, 8)
        self.out = nn.Linear(8, 1)

    def logit(self, e, x):
        h = e.flatten(1)
        h = h * torch.sigmoid(self.g(h)) * 2
        h1 = self.a(h)
        h1 = h1 + h1 * self.fa(h)
        h1 = F.relu(h1)
        h2 = self.b(h1)
        return self.out(h2 + h2 * self.fb(h1))


@zoo
class AOANet(Fields):
    def build(self):
        self.w = nn.ParameterList(nn.Parameter(torch.zeros(M, n, 4)) for n in (M, 4))
        self.alpha = nn.ParameterList(nn.Parameter(torch.ones(1, 4, DIM)) for _ in range(2))
        self.dnn, self.out = mlp(WIDTH, 8, last=False), nn.Linear(8 + 4 * DIM, 1)

    def logit(self, e, x):
        h = e
        for w, a in zip(self.w, self.alpha):
            outer = torch.einsum("bnh,bmh->bnmh", e, h)
            h = torch.einsum("bnmh,nmo->boh", outer, w) * a
        return self.out(torch.cat([h.flatten(1), self.dnn(e.flatten(1))], dim=1))


@zoo
class APG(Fields):
    """A hidden layer whose low-rank weights are generated from a condition."""

    def build(self):
        self.u, self.v, self.gen = nn.Linear(WIDTH, 3, bias=False), nn.Linear(3, 8), nn.Linear(DIM, 9)
        self.out = nn.Linear(8, 1)

    def logit(self, e, x):
        s = self.gen(e[:, 0]).view(-1, 3, 3)
        h = torch.bmm(self.u(e.flatten(1)).unsqueeze(1), s).squeeze(1)
        return self.out(F.relu(self.v(h)))


@zoo
class DeepIM(Fields):
    def build(self):
        self.im, self.dnn = nn.Linear(2 * DIM, 1), mlp(WIDTH, 8, act=nn.GELU)

    def logit(self, e, x):
        p1, p2, p3 = e.sum(1), (e**2).sum(1), (e**3).sum(1)
        return self.im(torch.cat([(p1**2 - p2) / 2, (p1**3 - 3 * p1 * p2 + 2 * p3) / 6], dim=1)) + self.dnn(e.flatten(1))


@zoo
class DLRM(Fields):
    def build(self):
        self.top = mlp(len(PAIRS) + WIDTH, 8, 6)

    def logit(self, e, x):
        z = torch.bmm(e, e.transpose(1, 2))
        i, j = torch.triu_indices(M, M, 1)
        return self.top(torch.cat([z[:, i, j], e.flatten(1)], dim=1))


@zoo
class KD_DAGFM(Fields):
    def build(self):
        self.p, self.q = nn.ParameterList(nn.Parameter(torch.zeros(M, M, DIM)) for _ in range(2)), nn.ParameterList(nn.Parameter(torch.zeros(M, M, DIM)) for _ in range(2))
        self.fc = nn.Linear(3 * DIM, 1)

    def logit(self, e, x):
        keep = torch.tril(torch.ones(M, M))
        h, out = e, [e.sum(1)]
        for p, q in zip(self.p, self.q):
            agg = torch.einsum("bid,ijd->bjd", h, p * keep.unsqueeze(2)) + torch.einsum("bid,ijd->bjd", h, q * keep.unsqueeze(2))
            h = agg * e
            out.append(h.sum(1))
        return self.fc(torch.cat(out, dim=1))


@zoo
class SAM(Fields):
    def build(self):
        self.w, self.fc = nn.Parameter(torch.zeros(M, M, DIM)), nn.Linear(M * M * DIM, 1)

    def logit(self, e, x):
        s = torch.bmm(e, e.transpose(1, 2)).unsqueeze(3)
        return self.fc((s * self.w * e.unsqueeze(2)).flatten(1))


@zoo
class WuKong(Fields):
    def build(self):
        self.y, self.lcb, self.fm = nn.Parameter(torch.zeros(M, 2)), nn.Parameter(torch.zeros(3, M)), mlp(M * 2, 8, last=False)
        self.up, self.norm, self.out = nn.Linear(8, 2 * DIM), nn.LayerNorm(DIM), mlp(WIDTH, 8)

    def logit(self, e, x):
        h = torch.matmul(e, torch.matmul(e.transpose(1, 2), self.y)).flatten(1)
        fm = self.up(self.fm(h)).view(-1, 2, DIM)
        h = self.norm(torch.cat([fm, torch.matmul(self.lcb, e)], dim=1) + e)
        return self.out(h.flatten(1))


@zoo
class RankMixer(Fields):
    """Tokens mixed by a transposition, and an MLP for each token."""

    def build(self):
        self.down = nn.Linear(WIDTH, 16)
        self.norm, self.n2 = nn.LayerNorm(4), nn.LayerNorm(4)
        self.w1, self.w2 = nn.Parameter(torch.zeros(4, 4, 6)), nn.Parameter(torch.zeros(4, 6, 4))
        self.out = nn.Linear(4, 1)

    def logit(self, e, x):
        t = self.down(e.flatten(1)).view(-1, 4, 4)
        s = self.norm(t + t.view(-1, 4, 4, 1).permute(0, 2, 1, 3).reshape(-1, 4, 4))
        f = torch.einsum("btd,tdk->btk", s, self.w1)
        s = self.n2(s + torch.einsum("btk,tkd->btd", F.gelu(f), self.w2))
        return self.out(s.mean(1))


@zoo
class PPNet(Fields):
    def build(self):
        self.l = nn.ModuleList([nn.Linear(WIDTH, 8), nn.Linear(8, 6)])
        self.g = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH + DIM, 6), nn.ReLU(), nn.Linear(6, n), nn.Sigmoid()) for n in (WIDTH, 8))
        self.out = nn.Linear(6, 1)

    def logit(self, e, x):
        h = flat = e.flatten(1)
        for l, g in zip(self.l, self.g):
            h = F.relu(l(h * 2 * g(torch.cat([flat, e[:, 0]], dim=1))))
        return self.out(h)


@zoo
class DSSM(Fields):
    def build(self):
        self.u, self.i = mlp(2 * DIM, 8, last=False), mlp(3 * DIM, 8, last=False)

    def logit(self, e, x):
        u, i = self.u(e[:, [0, 3]].flatten(1)), self.i(e[:, [1, 2, 4]].flatten(1))
        return F.cosine_similarity(u, i, dim=1) / 0.5


# ---- Histories.


class Attention(nn.Module):
    """DIN's unit: weights [batch, L] of a history for a target."""

    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4 * width, 6), nn.PReLU(), nn.Linear(6, 1))

    def forward(self, t, h):
        t = t.unsqueeze(1).expand(-1, h.shape[1], -1)
        return self.net(torch.cat([t, h, t - h, t * h], dim=2)).squeeze(2)


@zoo
class BST(Histories):
    def build(self):
        self.position = nn.Parameter(torch.zeros(L + 1, 2 * DIM))
        layer = nn.TransformerEncoderLayer(2 * DIM, 2, 8, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.dnn = mlp(WIDTH + 2 * DIM, 8, 6)

    def logit(self, e, x):
        s = torch.cat([self.history(x), self.target(e).unsqueeze(1)], dim=1) + self.position
        pad = torch.cat([~self.mask(x), torch.zeros_like(x["hist_item"][:, :1], dtype=torch.bool)], dim=1)
        out = self.encoder(s, src_key_padding_mask=pad)
        return self.dnn(torch.cat([e.flatten(1), out[:, -1]], dim=1))


@zoo
class DIEN(Histories):
    """GRU over the history, attention to the target, and a GRU whose update gate has the attention (AUGRU), unrolled."""

    def build(self):
        w = 2 * DIM
        self.gru = nn.GRU(w, w, batch_first=True)
        self.att = nn.Linear(w, w, bias=False)
        self.zr, self.n = nn.Linear(2 * w, 2 * w), nn.Linear(2 * w, w)
        self.dnn = mlp(WIDTH + w, 8, 6)

    def logit(self, e, x):
        h, mask = self.gru(self.history(x))[0], self.mask(x)
        a = (self.att(h) * self.target(e).unsqueeze(1)).sum(2).masked_fill(~mask, -1e9).softmax(1)
        s = torch.zeros_like(h[:, 0])
        for t in range(L):
            z, r = torch.sigmoid(self.zr(torch.cat([h[:, t], s], dim=1))).chunk(2, dim=1)
            n = torch.tanh(self.n(torch.cat([h[:, t], r * s], dim=1)))
            z = z * a[:, t : t + 1]
            new = (1 - z) * s + z * n
            s = torch.where(mask[:, t : t + 1], new, s)
        return self.dnn(torch.cat([e.flatten(1), s], dim=1))


@zoo
class DIENlast(Histories):
    """DIEN's first stage, whose state is taken at the last item by the length of the history."""

    least = 1

    def build(self):
        self.gru = nn.GRU(2 * DIM, 2 * DIM, batch_first=True)
        self.dnn = mlp(WIDTH + 2 * DIM, 8, 6)

    def logit(self, e, x):
        h = self.gru(self.history(x))[0]
        last = (self.mask(x).long().sum(1) - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, 2 * DIM)
        return self.dnn(torch.cat([e.flatten(1), h.gather(1, last).squeeze(1)], dim=1))


@zoo
class DMIN(Histories):
    def build(self):
        self.att = nn.MultiheadAttention(2 * DIM, 2, batch_first=True)
        self.norm, self.unit = nn.LayerNorm(2 * DIM), Attention(2 * DIM)
        self.dnn = mlp(WIDTH + 2 * DIM, 8, 6)

    def logit(self, e, x):
        h, mask = self.history(x), self.mask(x)
        h = self.norm(h + self.att(h, h, h, attn_mask=torch.triu(torch.full((L, L), float("-inf")), 1), need_weights=False)[0])
        a = self.unit(self.target(e), h) * mask
        return self.dnn(torch.cat([e.flatten(1), (a.unsqueeze(2) * h).sum(1)], dim=1))


@zoo
class DMR(Histories):
    def build(self):
        self.position = nn.Parameter(torch.zeros(L, 2 * DIM))
        self.wh, self.wp, self.z = nn.Linear(2 * DIM, 6), nn.Linear(2 * DIM, 6, bias=False), nn.Linear(6, 1)
        self.unit, self.dnn = Attention(2 * DIM), mlp(WIDTH + 2 * DIM + 1, 8, 6)

    def logit(self, e, x):
        h, mask, t = self.history(x), self.mask(x), self.target(e)
        a = self.z(torch.tanh(self.wh(h) + self.wp(self.position))).squeeze(2).masked_fill(~mask, -(2.0**31)).softmax(1)
        rel = ((a.unsqueeze(2) * h).sum(1) * t).sum(1, keepdim=True)
        b = self.unit(t, h).masked_fill(~mask, -(2.0**31)).softmax(1)
        return self.dnn(torch.cat([e.flatten(1), (b.unsqueeze(2) * h).sum(1), rel], dim=1))


class TopK(Histories):
    """The k items of the history that are most similar to the target, and attention over them."""

    k = 2

    def build(self):
        self.att = nn.MultiheadAttention(2 * DIM, 2, batch_first=True)
        self.hash = nn.Parameter(torch.zeros(2 * DIM, 4), requires_grad=False)
        self.dnn = mlp(WIDTH + 2 * DIM, 8, 6)

    def similar(self, t, h):
        return (h * t.unsqueeze(1)).sum(2)

    def logit(self, e, x):
        h, mask, t = self.history(x), self.mask(x), self.target(e)
        s = self.similar(t, h).masked_fill(~mask, float("-inf"))
        index = s.topk(self.k, dim=1).indices
        h = h.gather(1, index.unsqueeze(2).expand(-1, -1, 2 * DIM))
        m = mask.gather(1, index)
        h = h * m.unsqueeze(2)
        out = self.att(t.unsqueeze(1), h, h, need_weights=False)[0].squeeze(1)
        return self.dnn(torch.cat([e.flatten(1), out], dim=1))


@zoo
class SIM(TopK):
    pass


@zoo
class ETA(TopK):
    """Similarity of hashes: the number of equal signs of random projections."""

    def similar(self, t, h):
        a, b = (h @ self.hash > 0).float(), (t @ self.hash > 0).float().unsqueeze(1)
        return -(a - b).abs().sum(2) + torch.arange(L) * 1e-3


@zoo
class TWIN(TopK):
    def similar(self, t, h):
        return (h @ self.hash * (t @ self.hash).unsqueeze(1)).sum(2) / 2.0


@zoo
class SDIM(TopK):
    """The mean of the items whose hash equals that of the target."""

    def logit(self, e, x):
        h, mask, t = self.history(x), self.mask(x), self.target(e)
        same = ((h @ self.hash > 0) == (t @ self.hash > 0).unsqueeze(1)).all(dim=2) & mask
        w = same.float() / same.float().sum(1, keepdim=True).clamp(min=1)
        return self.dnn(torch.cat([e.flatten(1), (w.unsqueeze(2) * h).sum(1)], dim=1))


@zoo
class TransAct(Histories):
    """A transformer over history and target, of which the last outputs and their maximum are taken."""

    def build(self):
        layer = nn.TransformerEncoderLayer(4 * DIM, 2, 8, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.out, self.dnn = nn.Linear(4 * DIM, 6), mlp(WIDTH + 2 * 4 * DIM + 6, 8, 6)

    def logit(self, e, x):
        h, mask, t = self.history(x), self.mask(x), self.target(e)
        s = torch.cat([h, t.unsqueeze(1).expand(-1, L, -1)], dim=2)
        pad = ~mask
        pad = torch.cat([pad[:, :-1], torch.zeros_like(pad[:, :1])], dim=1)
        s = self.encoder(s, src_key_padding_mask=pad)
        pooled = s.masked_fill(pad.unsqueeze(2), -1e9).max(dim=1).values
        flat = torch.cat([s[:, -2:].flatten(1), self.out(pooled)], dim=1)
        return self.dnn(torch.cat([e.flatten(1), flat], dim=1))


@zoo
class DIN(Histories):
    def build(self):
        self.unit, self.dnn = Attention(2 * DIM), mlp(WIDTH + 2 * DIM, 8, 6)

    def logit(self, e, x):
        h, mask = self.history(x), self.mask(x)
        a = self.unit(self.target(e), h) * mask
        return self.dnn(torch.cat([e.flatten(1), (a.unsqueeze(2) * h).sum(1)], dim=1))


@zoo
class HSTU(Histories):
    """Pointwise attention with SiLU, a causal mask and relative positions."""

    def build(self):
        w = 2 * DIM
        self.uvqk, self.rel, self.norm, self.o = nn.Linear(w, 4 * w), nn.Parameter(torch.zeros(L + 1, L + 1)), nn.LayerNorm(w), nn.Linear(w, w)
        self.dnn = mlp(WIDTH + w, 8)

    def logit(self, e, x):
        s = torch.cat([self.history(x), self.target(e).unsqueeze(1)], dim=1)
        keep = torch.cat([self.mask(x), torch.ones_like(x["hist_item"][:, :1], dtype=torch.bool)], dim=1)
        u, v, q, k = F.silu(self.uvqk(s)).chunk(4, dim=2)
        a = F.silu(q @ k.transpose(1, 2) + self.rel) / (L + 1)
        a = a * torch.tril(torch.ones(L + 1, L + 1)) * keep.unsqueeze(1)
        s = self.o(self.norm(a @ v) * u) + s
        return self.dnn(torch.cat([e.flatten(1), s[:, -1]], dim=1))
