"""Modules of torch go in and come out with pruned tables."""

from __future__ import annotations

import copy
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import command, ids_table

import shaver
from shaver import _tensors

if not os.environ.get("CI"):
    pytest.importorskip("torch")
import torch
from torch import nn

pytestmark = pytest.mark.torch

DIMS = [7, 11, 5, 4]


def golden() -> Any:
    """Returns the script that has the modules of shaver's kinds."""
    path = Path(__file__).parents[2] / "testdata" / "golden" / "make.py"
    spec = importlib.util.spec_from_file_location("golden", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONFIG = {
    "num_factor": 4,
    "hidden_sizes": [8, 6],
    "p_dropout": 0.1,
    "use_batchnorm": True,
    "num_layers": 2,
    "num_experts": 2,
    "rank": 3,
    "structure": "Parallel",
}


def randomised(module: nn.Module, seed: int = 0) -> nn.Module:
    """Gives all tensors random values, also the statistics of BatchNorms."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.5 if "running_var" in name else 0.4 * torch.randn_like(tensor))
    return module.eval()


def of_kind(kind: str) -> nn.Module:
    module: nn.Module = golden().MODULES[kind](DIMS, CONFIG)
    return randomised(module)


class Tables(nn.Module):
    """No kind of shaver: tables of different widths, a dense input, and GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, dim) for size, dim in zip(DIMS, (4, 6, 2, 3), strict=True))
        self.wide = nn.ModuleList(nn.Embedding(size, 1) for size in DIMS)
        self.hidden = nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 1))

    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, age: torch.Tensor) -> torch.Tensor:
        ids = (a, b, c, d)
        rows = torch.cat([table(i) for table, i in zip(self.tables, ids, strict=True)] + [age.unsqueeze(1)], 1)
        wide = torch.cat([table(i) for table, i in zip(self.wide, ids, strict=True)], 1).sum(1)
        return torch.sigmoid(self.hidden(rows).squeeze(1) + wide)


class History(nn.Module):
    """No kind of shaver: attention over a history that shares the table of the items."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(12, 6, padding_idx=0)
        self.users = nn.Embedding(7, 6)
        self.last = nn.Linear(18, 1)

    def forward(self, user: torch.Tensor, item: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        target, past = self.items(item), self.items(history)
        weights = (past * target.unsqueeze(1)).sum(2, keepdim=True) * (history != 0).unsqueeze(2)
        logit: torch.Tensor = self.last(torch.cat([self.users(user), target, torch.tanh(weights * past).sum(1)], 1)).squeeze(1)
        return logit


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().numpy().tobytes()


def changed(before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]) -> set[str]:
    """Returns the names of the tensors that differ in a bit. Both have the same names, types and shapes."""
    assert list(before) == list(after)
    assert all(before[name].dtype == after[name].dtype and before[name].shape == after[name].shape for name in before)
    return {name for name in before if bits(before[name]) != bits(after[name])}


@pytest.fixture(scope="module")
def ds() -> shaver.Dataset:
    return shaver.Dataset.from_frame(ids_table(DIMS, 600, seed=3), label="click", ids="local", field_sizes=DIMS)


@pytest.mark.parametrize("kind", ["fm", "deepfm", "dcn-mix", "dcnv2"])
def test_modules_of_our_kinds(kind: str, ds: shaver.Dataset, tmp_path: Path) -> None:
    module = of_kind(kind)
    before = copy.deepcopy(module.state_dict())
    file = tmp_path / "model.pth"
    torch.save({"state_dict": module.state_dict(), "field_dims": DIMS}, file)
    assert shaver.Model(module, field_dims=DIMS).document["architecture"] == kind

    scores = shaver.score(module, ds, estimator="antithetic", baseline="codebook", out=tmp_path / "scores.arrow")
    common = ("--model", file, "--dataset", ds.paths[0])
    command("score", *common, "--estimator", "antithetic", "--baseline", "codebook", "--out", tmp_path / "want.arrow")
    assert (tmp_path / "scores.arrow").read_bytes() == (tmp_path / "want.arrow").read_bytes()

    pruned = shaver.prune(module, scores, sparsity=0.7)
    assert type(pruned) is type(module) and changed(before, module.state_dict()) == set()
    assert changed(before, pruned.state_dict()) == {"embedding.weight"}
    command("prune", "--model", file, "--scores", scores.path, "--sparsity", "0.7", "--dense", "--out", tmp_path / "dense.safetensors")
    for name, array in _tensors.read(tmp_path / "dense.safetensors"):
        assert array.tobytes() == bits(pruned.state_dict()[name])

    state = shaver.prune(dict(module.state_dict()), scores, sparsity=0.7)
    assert changed(pruned.state_dict(), state) == set()
    assert all(state[name].data_ptr() == tensor.data_ptr() for name, tensor in module.state_dict().items() if name != "embedding.weight")

    # The module in torch and the pruned file in shaver give the same LogLoss.
    measured = shaver.evaluate(pruned, ds, against=module)
    test = ds.to_arrow("test")
    ids = torch.tensor(np.stack([test[name].to_numpy() for name in ds.fields], 1)).long() + torch.tensor(np.cumsum([0, *DIMS[:-1]]))
    labels = torch.tensor(test["label"].to_numpy()).double()
    with torch.no_grad():
        logits = pruned(ids).double()
    assert measured.log_loss == pytest.approx(nn.functional.binary_cross_entropy_with_logits(logits, labels).item(), abs=1e-6)
    assert shaver.check(pruned, ds, against=module).document["model"] == shaver.Model(module, field_dims=DIMS).digest

    weight = module.state_dict()["embedding.weight"]
    again = shaver.prune(module, scores, sparsity=0.7, in_place=True)
    assert again is module and module.state_dict()["embedding.weight"].data_ptr() == weight.data_ptr()
    assert changed(pruned.state_dict(), module.state_dict()) == set()


@pytest.mark.parametrize("kind", ["fm", "deepfm", "dcn-mix", "dcnv2"])
def test_a_smaller_module_loads_what_is_left(kind: str, ds: shaver.Dataset) -> None:
    removal = shaver.remove(shaver.Model(of_kind(kind), field_dims=DIMS), ds, drop_fields=["b"], columns=3)
    dims = [DIMS[0], *DIMS[2:]]
    small: nn.Module = golden().MODULES[kind](dims, {**CONFIG, "num_factor": 3}).eval()
    small.load_state_dict({name: torch.tensor(array) for name, array in removal.state_dict().items()})
    test = ds.to_arrow("test")
    ids = torch.tensor(np.stack([test[name].to_numpy() for name in "acd"], 1)).long() + torch.tensor(np.cumsum([0, *dims[:-1]]))
    labels = torch.tensor(test["label"].to_numpy()).double()
    with torch.no_grad():
        loss = nn.functional.binary_cross_entropy_with_logits(small(ids).double(), labels).item()
    assert shaver.evaluate(removal.model, ds).log_loss == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_other_types_keep_their_bits(kind: torch.dtype, ds: shaver.Dataset) -> None:
    state = {name: tensor.to(kind) for name, tensor in of_kind("fm").state_dict().items() if tensor.is_floating_point()}
    state["embedding.weight"] *= 1 + torch.rand(state["embedding.weight"].shape, dtype=torch.float64).to(kind)
    scores = shaver.score(state, ds, estimator="permutation", baseline="zero")
    pruned = shaver.prune(state, scores, sparsity=0.5)
    before, after = state["embedding.weight"], pruned["embedding.weight"]
    assert after.dtype == kind and int((after == 0).sum()) == before.numel() // 2
    assert bool((after == before).logical_or(after == 0).all())
    calibrated = shaver.prune(state, scores, sparsity=0.5, calibrate=True)
    assert {name: tensor.dtype for name, tensor in calibrated.items()} == {name: tensor.dtype for name, tensor in state.items()}
    assert bool((calibrated["_bias"] != state["_bias"]).all())


def test_calibrate_changes_other_weights(ds: shaver.Dataset) -> None:
    module = of_kind("deepfm")
    scores = shaver.score(module, ds, estimator="multilinear", splits="train")
    pruned = shaver.prune(module, scores, sparsity=0.5, calibrate=True)
    names = changed(module.state_dict(), pruned.state_dict())
    assert "embedding.weight" in names and len(names) > 1
    assert not any("running" in name for name in names)


def test_module_with_tables_and_a_dense_input(tmp_path: Path) -> None:
    table = ids_table(DIMS, 600, seed=4)
    age = np.random.default_rng(5).normal(size=600).astype(np.float32)
    ds = shaver.Dataset.from_frame(table.append_column("age", [age]), label="click", ids="local", dense=["age"], field_sizes=DIMS)
    module = randomised(Tables()).train()
    with pytest.raises(shaver.BadInputError, match=r"hidden\.1 is a GELU.*example_inputs"):
        shaver.score(module, ds)
    model = shaver.Model(module, example_inputs=[*(torch.zeros(2, dtype=torch.int64) for _ in DIMS), torch.zeros(2)])
    assert repr(model) == "Model(graph, 4 fields, 116 parameters)"
    assert module.training and model.document["architecture"] == "graph" and model.is_onnx
    names = {"tables.0.weight", "tables.1.weight", "tables.2.weight", "tables.3.weight"}
    round_trip(model, module, ds, names, tmp_path)
    with pytest.raises(shaver.BadInputError, match="calibrate and tune change more"):
        shaver.prune(model, shaver.score(model, ds, estimator="permutation"), sparsity=0.5, calibrate=True)
    with pytest.raises(shaver.BadInputError, match=r"expected an \.onnx file"):
        shaver.prune(model, shaver.score(model, ds, estimator="permutation"), sparsity=0.5, out=tmp_path / "pruned.safetensors")


def test_module_with_a_history(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    rows = 600
    histories = [random.integers(1, 12, random.integers(0, 6)).tolist() for _ in range(rows)]
    clicks = [int(random.random() < 0.2 + 0.1 * len(history)) for history in histories]
    frame = {"click": clicks, "user": random.integers(0, 7, rows), "item": random.integers(1, 12, rows), "history": histories}
    module = randomised(History())
    inputs = [torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64), torch.zeros(2, 5, dtype=torch.int64)]
    model = shaver.Model(module, example_inputs=inputs)
    import pandas as pd

    ds = shaver.Dataset.from_frame(pd.DataFrame(frame), label="click", ids="local", model=model)
    round_trip(model, module, ds, {"items.weight", "users.weight"}, tmp_path)


def round_trip(model: shaver.Model, module: nn.Module, ds: shaver.Dataset, tables: set[str], folder: Path) -> None:
    """Scores and prunes an exported module in Python and by the commands."""
    scores = shaver.score(model, ds, estimator="multilinear", baseline="zero", out=folder / "scores.arrow")
    command("score", "--model", model.path, "--dataset", ds.paths[0], "--estimator", "multilinear", "--baseline", "zero", "--out", folder / "want.arrow")
    assert (folder / "scores.arrow").read_bytes() == (folder / "want.arrow").read_bytes()
    for field in scores.document["fields"]:
        top = scores.top(field["name"], 100)
        assert sum(top["phi"].to_pylist()) == pytest.approx(field["sum"], abs=1e-9)
        assert set(top["table"].to_pylist()) <= tables
    pruned = shaver.prune(model, scores, sparsity=0.6, out=folder / "pruned.onnx")
    command("prune", "--model", model.path, "--scores", scores.path, "--sparsity", "0.6", "--out", folder / "want.onnx")
    assert (folder / "pruned.onnx").read_bytes() == (folder / "want.onnx").read_bytes()
    after = pruned.source
    assert isinstance(after, nn.Module) and after is not module
    assert changed(module.state_dict(), after.state_dict()) == tables
    zeros = sum(int((after.state_dict()[name] == 0).sum()) for name in tables)
    assert zeros >= 0.5 * sum(after.state_dict()[name].numel() for name in tables)
    # The pruned module, exported again, is the pruned file.
    inputs = [torch.zeros((2, *shape), dtype=kind) for shape, kind in shapes(module)]
    assert shaver.evaluate(shaver.Model(after, example_inputs=inputs), ds).document == shaver.evaluate(pruned, ds).document


def shapes(module: nn.Module) -> list[tuple[tuple[int, ...], torch.dtype]]:
    if isinstance(module, History):
        return [((), torch.int64), ((), torch.int64), ((5,), torch.int64)]
    return [*(((), torch.int64) for _ in DIMS), ((), torch.float32)]


class Pair(nn.Module):
    """The product of two embeddings. If tied, the users also score all items by the items' table,
    which has a second name."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.users, self.items, self.tied = nn.Embedding(9, 4), nn.Embedding(9, 4), tied
        if tied:
            self.every = self.items.weight

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        users = self.users(user)
        logit: torch.Tensor = (users * self.items(item)).sum(1)
        return logit - (users @ self.every.T).logsumexp(1) if self.tied else logit


def pairs() -> shaver.Dataset:
    random = np.random.default_rng(7)
    import pandas as pd

    frame = {"label": random.integers(0, 2, 400), "user": random.integers(0, 9, 400), "item": random.integers(0, 9, 400)}
    return shaver.Dataset.from_frame(pd.DataFrame(frame), label="label", ids="local", field_sizes=[9, 9])


def test_one_tensor_for_two_example_inputs() -> None:
    module = randomised(Pair(tied=False))
    ids = torch.zeros(2, dtype=torch.int64)
    model = shaver.Model(module, example_inputs=(ids, ids))
    separate = shaver.Model(module, example_inputs=(ids, ids.clone()))
    assert model.document["digest"] == separate.document["digest"]
    assert "notes" not in model.document


def test_tied_table_stays_out_of_the_module(tmp_path: Path) -> None:
    module = randomised(Pair(tied=True))
    model = shaver.Model(module, example_inputs=[torch.zeros(2, dtype=torch.int64) for _ in range(2)])
    scores = shaver.score(model, pairs(), estimator="multilinear")
    with pytest.raises(shaver.BadInputError, match=r"the module reads (items\.weight|every) also by the operator \w+, .*use the pruned \.onnx file"):
        shaver.prune(model, scores, sparsity=0.5, out=tmp_path / "pruned.onnx")
    assert (tmp_path / "pruned.onnx").exists()


def test_model_is_a_snapshot(ds: shaver.Dataset) -> None:
    module = of_kind("fm")
    model = shaver.Model(module, field_dims=DIMS)
    digest = model.digest
    with torch.no_grad():
        module.state_dict()["embedding.weight"].add_(1)
    assert shaver.Model.of(model).digest == digest != shaver.Model(module, field_dims=DIMS).digest
    assert repr(model) == "Model(fm, 4 fields, 108 parameters)"


def test_modules_of_no_kind_need_example_inputs(ds: shaver.Dataset) -> None:
    module = nn.Linear(2, 1)
    for what, source in (("module", module), ("state dict", module.state_dict())):
        with pytest.raises(shaver.BadInputError, match=rf"^the {what} is of no kind .* example_inputs.*embedding\.weight is missing"):
            shaver.score(source, ds)


def test_bad_modules() -> None:
    module = of_kind("fm")
    for match, options in [
        ("sum to 3", {"field_dims": [1, 2]}),
        ("expected tensors", {"example_inputs": [1]}),
        ("2 input_names for 1 example_inputs", {"example_inputs": [torch.zeros(2, 4, dtype=torch.int64)], "input_names": ["a", "b"]}),
        ("needs no field_dims", {"example_inputs": [torch.zeros(2, 4, dtype=torch.int64)], "field_dims": DIMS}),
        ("torch.onnx.export", {"example_inputs": [torch.zeros(2, 4)]}),
    ]:
        with pytest.raises(shaver.BadInputError, match=match):
            shaver.Model(module, **options)  # type: ignore[arg-type]
    mixed = {**module.state_dict(), "_bias": np.zeros(1, np.float32)}
    with pytest.raises(shaver.BadInputError, match="both arrays and tensors"):
        shaver.Model(mixed, field_dims=DIMS)
