"""Plays the games of a folder with the estimators of shapiq, captum and sage-importance, on one thread.

    peers.py FOLDER

FOLDER has game.json and game.bin, which bench/equalwork writes. The program writes to FOLDER/values.bin the values of each
method at each budget, [rows, seeds, players] in float64. It writes to FOLDER/others.json the versions of the packages, and for
each of these points the mean number of evaluations of a row, and the processor time of a row in seconds, in all and in the model.

The model is the checkpoint's in float32, in numpy for shapiq and sage-importance, and in PyTorch for captum. Both must give
the logits that bench/equalwork computed within 1e-5.
"""

import json
import os
import pathlib
import sys
import time
import warnings

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
warnings.filterwarnings("ignore")

import captum  # noqa: E402
import captum.attr  # noqa: E402
import numpy as np  # noqa: E402
import sage  # noqa: E402
import shapiq  # noqa: E402
import torch  # noqa: E402
import xgboost  # noqa: E402
from sklearn.linear_model import LinearRegression  # noqa: E402
from importlib.metadata import version  # noqa: E402

TOLERANCE = 1e-5  # between logits, relative to 1 + their size
FIT = 1024  # largest budget for methods that fit trees, whose time is that of the fit
BLOCK = 4096  # states that the model computes at a time


class Games:
    """The games of some rows: what each element reads if its player is present or dropped."""

    def __init__(self, folder):
        about = json.loads((folder / "game.json").read_text())
        data = np.fromfile(folder / "game.bin", dtype=np.float32)
        self.tensors, at = {}, 0
        for t in about["tensors"]:
            size = int(np.prod(t["shape"]))
            self.tensors[t["name"]] = data[at : at + size].reshape(t["shape"])
            at += size
        self.kind, self.fields, self.players = about["kind"], about["fields"], about["players"]
        self.budgets, self.seeds, self.mean = about["budgets"], about["seeds"], about["mean"]
        self.on, self.off = self.tensors["on"], self.tensors["off"]  # [rows, D], [D]
        # Terms outside the network, [rows] each: of the logit itself, and of each field if the players are fields.
        self.first_on, self.first_off = self.tensors["first_on"], self.tensors["first_off"]  # [rows, m], [rows, m]
        self.labels = self.tensors["labels"].astype(np.float64)
        self.entries = self.players == self.on.shape[1]
        self.width = self.on.shape[1] // self.players  # elements of a player
        self.mix = []  # of each cross layer: U, [experts * rank, D]; C; V, [D, experts * rank]; and the bias
        while f"mix.{len(self.mix)}.u" in self.tensors:
            u, c, v, bias = (self.tensors[f"mix.{len(self.mix)}.{name}"] for name in ("u", "c", "v", "bias"))
            width = u.shape[2]
            self.mix.append((u.reshape(-1, width), c, np.ascontiguousarray(v.transpose(1, 0, 2)).reshape(width, -1), bias))
        self.evaluations, self.seconds = 0, 0.0

    def states(self, rows, present):
        """Returns the embeddings and the terms outside the network of some states. rows is a number or an array."""
        one = np.isscalar(rows)
        on, first_on, first_off = self.on[rows], self.first_on[rows], self.first_off[rows]
        x = np.where(present if self.entries else np.repeat(present, self.width, axis=1), on, self.off)
        if self.entries:
            first = first_on.sum(axis=-1)
            return x, np.full(len(x), first, np.float32) if one else first
        return x, np.where(present, first_on, first_off).sum(axis=1)

    def logits(self, rows, present):
        start = time.process_time()
        present = np.atleast_2d(present)
        f = np.empty(len(present), np.float32)
        for at in range(0, len(present), BLOCK):
            part = slice(at, at + BLOCK)
            x, first = self.states(rows if np.isscalar(rows) else rows[part], present[part])
            f[part] = self.model(x) + first
        self.evaluations += len(f)
        self.seconds += time.process_time() - start
        return f

    def model(self, x):
        """Returns the logits of states without the terms outside the network."""
        t = self.tensors
        f = t["bias"][0]
        if self.kind == "deepfm":
            e = x.reshape(len(x), self.fields, -1)
            total = e.sum(axis=1)
            f = f + ((total * total).sum(axis=1) - np.einsum("ij,ij->i", x, x)) / 2
        else:
            x = self.cross(x)
        layer = 0
        while f"hidden.{layer}.weight" in t:
            x = x @ t[f"hidden.{layer}.weight"].T
            x += t[f"hidden.{layer}.bias"]
            np.maximum(x, 0, out=x)
            layer += 1
        return f + x @ t["output.weight"][0] + t["output.bias"][0]

    def cross(self, x0):
        """The cross layers of DCN-Mix. The experts are the blocks of one product."""
        x = x0
        for u, c, v, bias in self.mix:
            low = np.tanh(x @ v).reshape(len(x), len(c), -1)
            low = np.tanh(np.matmul(low.transpose(1, 0, 2), c)).transpose(1, 0, 2)
            gate = x @ self.tensors["gates"].T
            low = low * gate[:, :, None]
            x = x + x0 * (low.reshape(len(x), -1) @ u + gate.sum(axis=1)[:, None] * bias)
        return x

    def game(self, row):
        """Returns the game of a row, as a function of coalitions, [n, players]. A value is minus the loss."""

        def value(coalitions):
            f = self.logits(row, np.asarray(coalitions, bool)).astype(np.float64)
            return self.labels[row] * f - np.logaddexp(0, f)

        return value

    def check(self, logits, name):
        """Fails unless a model gives the logits of bench/equalwork, of all rows with all players and with none of them."""
        want = self.tensors["logits"]  # [2, rows]
        off = np.max(np.abs(logits - want) / (1 + np.abs(want)))
        print(f"{name}: logits differ by at most {off:.1e}", file=sys.stderr)
        if off > TOLERANCE:
            sys.exit(f"{name}: a logit differs by {off}, expected at most {TOLERANCE}")


def proxy(seed):
    return xgboost.XGBRegressor(n_jobs=1, random_state=seed)


def of_shapiq(make, most=4096):
    """Returns a method that gives each row to an approximator. most is its largest budget."""

    def method(games, budget, seed):
        if budget > most:
            return None
        values = np.zeros((len(games.on), games.players))
        for row in range(len(values)):
            found = make(games.players, seed * 1000 + row).approximate(budget, games.game(row))
            values[row] = [found[(i,)] for i in range(games.players)]
        return values

    return method


def permutation(games, budget, seed):
    if budget < games.players + 1:
        return None
    return of_shapiq(lambda n, s: shapiq.PermutationSamplingSV(n, random_state=s))(games, budget, seed)


class Given(LinearRegression):
    """A proxy that is not fitted: the additive game with given values."""

    def __init__(self, values):
        super().__init__()
        self.values = values

    def fit(self, x, y):
        self.coef_, self.intercept_ = self.values, 0.0
        return self


def on_multilinear(games, budget, seed):
    """RegressionMSR with the values of multilinear as the proxy, in place of trees."""
    if "base" not in games.tensors or budget > FIT:
        return None
    values = np.zeros((len(games.on), games.players))
    for row in range(len(values)):
        base = games.tensors["base"][seed - 1, row].astype(np.float64)
        found = shapiq.RegressionMSR(games.players, "SV", proxy_model=Given(base), random_state=seed * 1000 + row).approximate(budget, games.game(row))
        values[row] = [found[(i,)] for i in range(games.players)]
    return values


class Module(torch.nn.Module):
    """The model in PyTorch. It returns minus the losses of states."""

    def __init__(self, games):
        super().__init__()
        t = {name: torch.from_numpy(np.array(v)) for name, v in games.tensors.items()}
        self.t, self.kind, self.fields, self.games = t, games.kind, games.fields, games
        self.hidden = sum(name.startswith("hidden.") for name in t) // 2
        self.layers = sum(name.startswith("mix.") for name in t) // 4

    def logits(self, x, first):
        t = self.t
        f = t["bias"] + first.sum(1)
        if self.kind == "deepfm":
            e = x.view(len(x), self.fields, -1)
            f = f + (e.sum(1).square().sum(1) - x.square().sum(1)) / 2
        else:
            x0 = x
            for k in range(self.layers):
                low = torch.tanh(torch.tanh(x @ t[f"mix.{k}.v"]) @ t[f"mix.{k}.c"])  # [experts, n, rank]
                experts = x0 * (low @ t[f"mix.{k}.u"] + t[f"mix.{k}.bias"])
                x = x + (experts * (x @ t["gates"].unsqueeze(2))).sum(0)
        for k in range(self.hidden):
            x = torch.relu(torch.nn.functional.linear(x, t[f"hidden.{k}.weight"], t[f"hidden.{k}.bias"]))
        return f + torch.nn.functional.linear(x, t["output.weight"], t["output.bias"]).squeeze(1)

    def forward(self, x, first, label):
        start = time.process_time()
        f = self.logits(x, first)
        value = label * f - torch.nn.functional.softplus(f)
        self.games.evaluations += len(x)
        self.games.seconds += time.process_time() - start
        return value


def of_captum(make, together):
    """Returns a method that attributes with captum. together means that it takes all rows at once."""

    def method(games, budget, seed):
        samples = budget // games.players if together else budget
        if samples < 1 or not together and budget > FIT:
            return None
        module = Module(games)
        torch.manual_seed(seed)
        np.random.seed(seed)
        on, off = torch.from_numpy(games.on), torch.from_numpy(games.off)[None]
        first_on, first_off = torch.from_numpy(games.first_on), torch.from_numpy(games.first_off)
        label = torch.from_numpy(games.tensors["labels"].copy())
        values = np.zeros((len(on), games.players))
        blocks = [slice(0, len(on))] if together else [slice(r, r + 1) for r in range(len(on))]
        with torch.no_grad():
            for b in blocks:
                options = {"n_samples": samples, "perturbations_per_eval": 1 if together else min(samples, 256)}
                if games.entries:
                    found = make(lambda x, f, y: module(x, f, y)).attribute(
                        on[b], baselines=off, additional_forward_args=(first_on[b], label[b]), **options)
                    values[b] = found.numpy()
                    continue
                mask = (torch.arange(on.shape[1])[None] // games.width, torch.arange(games.fields)[None])
                found = make(lambda x, f, y: module(x, f, y)).attribute(
                    (on[b], first_on[b]), baselines=(off.expand(len(on[b]), -1), first_off[b]), additional_forward_args=(label[b],),
                    feature_mask=mask, **options)
                values[b] = found[1].numpy()
        return values

    return method


class RowImputer(sage.imputers.Imputer):
    """What sage.DefaultImputer does. An example is the number of its row."""

    def __init__(self, games):
        super().__init__(lambda x: x)
        self.games, self.num_groups = games, games.players

    def __call__(self, x, present):
        return 1 / (1 + np.exp(-self.games.logits(x[:, 0], present).astype(np.float64)))


def of_sage(make, run):
    """Returns a method for the mean loss of all rows. A budget is that of a row, so the method gets budget * rows."""

    def method(games, budget, seed):
        examples = np.arange(len(games.on))[:, None]
        labels = games.labels.astype(int)
        found = run(make(RowImputer(games), "cross entropy", random_state=seed), examples, labels, budget * len(examples))
        return None if found is None else found.values[None]

    return method


def unrolled(estimator, x, y, budget):
    """Runs the permutation estimator in batches of at most 512 rows."""
    n = round(budget / x.shape[0])
    walks = int(budget // estimator.imputer.num_groups)
    batch = min(512, walks)
    if n < 1 and batch < 8:
        return None
    return estimator(x, y, batch_size=batch, n_permutations=walks // batch * batch, detect_convergence=False, bar=False)


def regressed(estimator, x, y, budget):
    """Runs the kernel estimator in batches of at most 512 pairs of coalitions."""
    pairs = int(budget // 2)
    batch = min(512, pairs)
    return estimator(x, y, batch_size=batch, n_samples=pairs // batch * batch, detect_convergence=False, bar=False, check_every=10**9)


METHODS = {
    "shapiq permutation": permutation,
    "shapiq KernelSHAP": of_shapiq(lambda n, s: shapiq.KernelSHAP(n, pairing_trick=True, random_state=s)),
    "shapiq RegressionMSR": of_shapiq(lambda n, s: shapiq.RegressionMSR(n, "SV", proxy_model=proxy(s), random_state=s), FIT),
    "shapiq ProxySHAP": of_shapiq(lambda n, s: shapiq.ProxySHAP(n, max_order=1, index="SV", proxy_model=proxy(s), random_state=s), FIT),
    "RegressionMSR on multilinear": on_multilinear,
    "captum ShapleyValueSampling": of_captum(captum.attr.ShapleyValueSampling, True),
    "captum KernelShap": of_captum(captum.attr.KernelShap, False),
}

MEAN_METHODS = {
    "sage permutation": of_sage(sage.PermutationEstimator, unrolled),
    "sage kernel": of_sage(sage.KernelEstimator, regressed),
}


def main():
    torch.set_num_threads(1)
    folder, only = pathlib.Path(sys.argv[1]), sys.argv[2:]
    games = Games(folder)
    rows = np.arange(len(games.on))
    ends = [np.ones((len(rows), games.players), bool), np.zeros((len(rows), games.players), bool)]
    games.check(np.stack([games.logits(rows, end) for end in ends]), "numpy")
    module = Module(games)
    states = [[torch.from_numpy(np.ascontiguousarray(x)) for x in (
        np.where(end[:, :1], games.on, games.off), np.where(end[:, :1] | games.entries, games.first_on, games.first_off))] for end in ends]
    games.check(np.stack([module.logits(*s).numpy() for s in states]), "PyTorch")
    versions = {name: version(name) for name in ("shapiq", "xgboost", "captum", "torch", "sage-importance", "numpy")}
    points, partial = [], folder / "others.partial.json"
    with open(folder / "values.bin", "wb") as out:
        for name, method in (MEAN_METHODS if games.mean else METHODS).items():
            if only and name not in only:
                continue
            for budget in games.budgets:
                games.evaluations, games.seconds, took, values = 0, 0.0, 0.0, []
                for seed in range(1, games.seeds + 1):
                    start = time.process_time()
                    found = method(games, budget, seed)
                    took += time.process_time() - start
                    values.append(found)
                if values[0] is None:
                    continue
                np.stack(values, axis=1).astype(np.float64).tofile(out)  # [rows, seeds, players]
                n = games.seeds * len(rows)
                point = {"method": name, "budget": budget, "passes": games.evaluations / n, "seconds": took / n, "model": games.seconds / n}
                points.append(point)
                out.flush()
                partial.write_text(json.dumps({"versions": versions, "points": points}))
                print(f"{name}, {budget}: {took:.1f} s", file=sys.stderr, flush=True)
    partial.rename(folder / "others.json")


if __name__ == "__main__":
    main()
