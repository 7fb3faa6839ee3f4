"""The parameters of the calls are flags of the program, with its defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from conftest import Planted, command

import shaver
from shaver import _command, _compress, _dataset, _evaluate, _explain, _prune, _remove, _scores, _sweep

# Flags that no call needs as a parameter.
EVERYWHERE = {"help", "output", "scratch", "model", "model-output"}


@dataclass(frozen=True)
class Call:
    function: Callable[..., Any]
    commands: tuple[tuple[str, ...], ...]
    own: set[str]  # parameters that are no flags
    rest: set[str]  # flags that are only among **flags
    renamed: dict[str, str] = field(default_factory=dict)  # flags by parameter, where the names differ
    differ: frozenset[str] = frozenset()  # parameters with another default than the flag

    def flag(self, parameter: str) -> str:
        """Returns the flag of a parameter."""
        return self.renamed.get(parameter, parameter.replace("_", "-"))


# Flags of the connection, and of the machine.
CLUSTER = {"creds", "lease", "nkey", "ranges", "replicas", "rows-per-shard", "run", "store", "tlsca", "tlscert", "tlskey", "user-file", "verify"}
MACHINE = {"checkpoint-every", "log", "page", "verbose", "wait-inputs"}
# Flags that remove whole fields and columns, for a file and in place of scores.
SLICES = {"columns", "drop-fields", "fields"}
# Flags that make several models.
SEVERAL = {"layers"}
# Flags that choose entries, and store them.
ENTRIES = {
    "aggregate",
    "bytes",
    "calibrate",
    "dense",
    "field-minimum",
    "parameters",
    "protect",
    "scores",
    "sparsity",
    "table-budget",
    "tune",
    "values",
}
# Flags of a nightly job, which has a command of its own.
NIGHTLY = {"full-every", "hysteresis", "max-inherited-error", "previous", "previous-model", "state"}

CALLS = [
    Call(shaver.score, (("score",),), {"progress"}, CLUSTER | MACHINE | NIGHTLY | {"players"}),
    Call(
        shaver.fields,
        (("score",),),
        {"pairs", "progress"},
        CLUSTER | MACHINE | NIGHTLY | {"audit", "draws", "endpoints", "flips", "freeze", "fresh-days", "fresh-weight", "parts", "players", "sparsity"},
        differ=frozenset({"baseline", "bound", "estimator", "splits"}),
    ),
    Call(shaver.prune, (("prune",),), {"in_place", "progress"}, NIGHTLY | SLICES | SEVERAL | {"table-budget"}),
    Call(shaver.remove, (("prune",),), {"progress"}, NIGHTLY | ENTRIES | SEVERAL),
    Call(shaver.sweep, (("sweep",),), {"progress"}, set()),
    Call(shaver.compress, (("compress",),), {"progress"}, set()),
    Call(shaver.evaluate, (("evaluate",),), {"progress"}, set()),
    Call(shaver.explain, (("explain",),), set(), set()),
    Call(shaver.check, (("check",),), {"progress"}, set()),
    Call(shaver.report, (("report",),), set(), set()),
    Call(
        shaver.Dataset.from_frame,
        (("dataset", "import", "parquet"), ("dataset", "import", "csv")),
        {"frame", "progress"},
        {"at", "catalog", "counted", "fresh", "list-separator", "memory", "positive", "raw", "test", "train", "val", "where"},
        {"fields": "columns"},
        frozenset({"ids", "label"}),
    ),
]

each_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.function.__name__)


def defaults(call: Call) -> dict[str, str | None]:
    """Returns the defaults of the flags that a call's commands print as help."""
    found: dict[str, str | None] = {}
    for arguments in call.commands:
        text = re.sub(r"\nExamples:\n.*?\n\n", "\n", command(*arguments, "--help-all"), flags=re.S)
        for entry in re.split(r"\n(?= {2,6}(?:-\w, )?--[a-z])", text)[1:]:
            name = re.search(r"--([a-z][a-z-]*)", entry)
            assert name is not None
            default = re.search(r"\(default ([^()]*)\)", " ".join(entry.split()))
            found.setdefault(name[1], default[1].strip('"') if default else None)
    return found


def parameters(call: Call) -> dict[str, inspect.Parameter]:
    """Returns the parameters of a call, without **flags."""
    every = inspect.signature(call.function).parameters
    return {name: each for name, each in every.items() if each.kind is not each.VAR_KEYWORD}


def documented(call: Call) -> dict[str, str]:
    """Returns the types of the parameters in the docstring, which say the default."""
    text = inspect.getdoc(call.function)
    assert text is not None and re.search(r"--help(-all)?`` prints all of them", " ".join(text.split()))
    section = re.search(r"\nParameters\n-+\n(.*?)\n\n\w+\n-+\n", text, re.S)
    assert section is not None
    return dict(re.findall(r"^(\w+) : (.*)$", section[1], re.M))


@each_call
def test_parameters_are_flags(call: Call) -> None:
    flags = set(defaults(call)) - EVERYWHERE
    named = {call.flag(name) for name in parameters(call) if name not in call.own}
    assert named - flags - EVERYWHERE == set(), "parameters that are no flags"
    assert flags - named - call.rest == set(), "flags that are neither parameters nor left to **flags"


@each_call
def test_docstrings_have_types_and_defaults(call: Call) -> None:
    """A default that is a value, such as 0.9 or "rms", is in the docstring as the program has it."""
    types = documented(call)
    assert list(types) == list(parameters(call))
    programs = defaults(call)
    for name in set(types) - call.own - call.differ:
        default = programs.get(call.flag(name))
        stated = re.search(r", default (.*)$", types[name])
        if stated is not None and default is not None:
            assert re.sub(r"[()\" ]", "", stated[1]).replace("_", "-").startswith(re.sub(r'[" ]|--', "", default)), name
        elif default is not None and default != "none":
            assert not re.fullmatch(r"[\w.,:-]+", default), f"{name}, by default {default}"


@each_call
def test_parameters_have_types_and_are_keywords(call: Call) -> None:
    for name, each in parameters(call).items():
        assert each.annotation is not each.empty, name
        if each.default is not each.empty:
            assert each.kind is each.KEYWORD_ONLY, name


class Captured(Exception):
    """Ends a call before its command runs."""


@each_call
def test_parameters_reach_their_flags(call: Call, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parameter becomes the flag of its name."""
    seen: dict[str, object] = {}
    before = _command.run

    def run(arguments: Any, flags: dict[str, _command.Flag], **options: Any) -> _command.Result:
        if tuple(arguments) not in call.commands:
            return before(arguments, flags, **options)
        seen.update(flags)
        raise Captured

    def document(arguments: Any, flags: dict[str, _command.Flag], **options: Any) -> dict[str, Any]:
        return run(arguments, {**flags, "output": "json"}, **options).document()

    for module in (_compress, _dataset, _evaluate, _explain, _prune, _remove, _scores, _sweep):
        for function in (run, document):
            if hasattr(module, function.__name__):
                monkeypatch.setattr(module, function.__name__, function)
    needed: dict[str, Any] = {
        "model": planted.model,
        "dataset": planted.dataset,
        "scores": planted.scores,
        "frame": planted.rows,
        "label": "label",
    }
    needed = {name: value for name, value in needed.items() if name in parameters(call)}
    if call.function is shaver.compress:
        needed["out"] = "unused.safetensors"
    # The values of parameters that Python reads. All others are passed on.
    read: dict[str, Any] = {"against": planted.model, "fields": ["user"], "dense": ["user"], "weight": "hour"}
    required = {name: read[name] for name, each in parameters(call).items() if each.default is each.empty and name in read}
    for name, parameter in parameters(call).items():
        if name in needed or name in call.own:
            continue
        value = read.get(name, True if parameter.default is False else f"value of {name}")
        others: dict[str, Any] = {"out": "unused.safetensors"} if name == "force" or call.function is shaver.prune else {}
        if name == "field_sizes":
            others["ids"] = "local"
        if call.function is shaver.remove:
            others["max_rise"] = 0.01
        seen.clear()
        with pytest.raises(Captured):
            call.function(**{**needed, **required, **others, name: value})
        reached = {key.replace("_", "-"): each for key, each in seen.items()}
        assert str(reached[call.flag(name)]) == str(value), name
