"""Running commands: arguments, errors, logs, progress and cancelling."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest
from conftest import Planted, children, command, read

import shaver
from shaver import _binary, _command, _tensors
from shaver._scratch import scratch
from shaver._words import in_python

T = TypeVar("T")


def test_arguments() -> None:
    flags: dict[str, _command.Flag] = {
        "max_rows": 10,
        "sample": 0.1,
        "force": True,
        "tune": False,
        "nats": None,
        "out": Path("a b.arrow"),
        "scores": ["a,b.arrow", 'c".arrow', "d.arrow"],
        "methods": "all",
        "field": "-x",
        "list": {"history": 50, "a,b": 3},
        "max_time": timedelta(minutes=90),
    }
    assert _command.arguments(flags) == [
        "--max-rows=10",
        "--sample=0.1",
        "--force",
        "--tune=false",
        f"--out={Path('a b.arrow')}",
        '--scores="a,b.arrow","c"".arrow",d.arrow',
        "--methods=all",
        "--field=-x",
        '--list=history=50,"a,b=3"',
        "--max-time=5400000ms",
    ]


def test_errors_have_the_message_and_the_code_of_the_command(planted: Planted, tmp_path: Path) -> None:
    with pytest.raises(shaver.UsageError, match=r"unknown parameter: modell: did you mean model\?") as usage:
        _command.run(["score"], {"modell": "x"})
    assert usage.value.exit_code == 2
    with pytest.raises(shaver.BadInputError, match="no such file") as missing:
        shaver.evaluate(tmp_path / "none.pth", planted.dataset)
    assert missing.value.exit_code == 42
    with pytest.raises(shaver.Error, match="nats") as unreachable:
        shaver.score(planted.model, planted.dataset, nats="nats://127.0.0.1:1", wait="100ms")
    assert unreachable.value.exit_code == 1 and type(unreachable.value) is shaver.Error


def test_paths_are_no_flags(planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(shaver.BadInputError, match="--html=F is not a dataset"):
        shaver.Dataset.open("--html=F", planted.dataset)
    assert not list(tmp_path.iterdir())
    for call in (shaver.Scores.open, shaver.Dataset.open, shaver.Model):
        with pytest.raises(shaver.BadInputError, match="--help"):
            call("--help")
    (tmp_path / "--help").write_bytes(planted.scores.read_bytes())
    assert shaver.Scores.open("--help").document["rows"] == shaver.Scores.open(planted.scores).document["rows"]


def test_output_that_is_no_json(planted: Planted) -> None:
    with pytest.raises(shaver.Error, match=r"the command printed 'Measure the .*, expected JSON"):
        _command.document(["evaluate"], {"help": True})


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("--max-rows and --sample exclude each other", "max_rows and sample exclude each other"),
        ("expected one of --max-rows and --columns", "expected one of max_rows and fields"),
        ("name another file, or give --force to replace it", "name another file, or give force=True to replace it"),
        ('run "shaver scores inspect --field user s.arrow" first', 'run "shaver scores inspect --field user s.arrow" first'),
        ("file written by shaver sweep --calibrate --out", "file written by shaver sweep --calibrate --out"),
        ("shaver model inspect --help lists them; a--b -- c", "shaver model inspect --help lists them; a--b -- c"),
        ("cannot read --a--b.arrow (--scores)", "cannot read --a--b.arrow (scores)"),
    ],
)
def test_messages_name_parameters(message: str, words: str) -> None:
    assert in_python(message, {"columns": "fields"}, ["--a--b.arrow", "c"]) == words


def test_messages_name_no_temporary_files(planted: Planted) -> None:
    state = {name: np.array(array) for name, array in _tensors.read(planted.model)}
    dims = shaver.Scores.open(planted.scores).field_dims
    other = {**state, "embedding.weight": state["embedding.weight"] + 1}
    rows = pa.table({"click": [0, 1, 1], "user": [0, 1, 9]})
    calls: list[tuple[str, Callable[[], object]]] = [
        ("^the state dict does not say its field sizes: pass field_dims=", lambda: shaver.Model(state)),
        (
            r'^the state dict .*: give shaver\.Model what is true, for example field_names=\[.*\], kind="fm"; if .* use shaver\.Model\(module, example_inputs=',
            lambda: shaver.Model(
                {
                    "embedding_dict.a.weight": np.zeros((2, 3), np.float32),
                    **{f"linear_model.embedding_dict.{n}.weight": np.zeros((2, 1), np.float32) for n in "ab"},
                    "embedding_dict.b.weight": np.zeros((2, 3), np.float32),
                    "out.bias": np.zeros(1, np.float32),
                }
            ),
        ),
        (
            r"^the state dict: tensor int_layers\.0\.W_Res belongs to an AutoInt: use shaver\.Model\(module, example_inputs=\.\.\.\), which",
            lambda: shaver.Model({"embedding_dict.a.weight": np.zeros((2, 3), np.float32), "int_layers.0.W_Res": np.zeros((3, 3), np.float32)}),
        ),
        ("^vocabulary is a Table, expected a Dataset or the path", lambda: shaver.Dataset.from_frame(rows, label="click", vocabulary=rows)),
        ("^vocabulary is a dict: expected a Dataset or the path", lambda: shaver.Dataset.from_frame(rows, label="click", vocabulary={"user": {"1": 0}})),  # type: ignore[arg-type]
        ("^the state dict: field_dims sum to 3, but", lambda: shaver.Model(state, field_dims=[1, 2])),
        (r"scores\.arrow and the state dict: the scores were computed for another model", lambda: shaver.prune(other, planted.scores, sparsity=0.5)),
        ("^split: expected|^dataset .* has no split", lambda: shaver.evaluate(shaver.Model(state, field_dims=dims), planted.dataset, split="x")),  # type: ignore[arg-type]
        (
            r"^the frame: row 2: field 0 \(user\): id 9 is outside \[0,2\)",
            lambda: shaver.Dataset.from_frame(rows, label="click", ids="local", field_sizes=[2]),
        ),
        (
            r'^the frame val: the columns are \["click" "USER"\]',
            lambda: shaver.Dataset.from_frame({"train": rows, "val": rows.rename_columns(["click", "USER"])}, label="click", ids="local"),
        ),
        ("^the frame: .*row 1: label", lambda: shaver.Dataset.from_frame(rows.set_column(0, "click", pa.array([0, 3, 0])), label="click")),
        ("^the dataset has 1 field and the model", lambda: shaver.evaluate(planted.model, shaver.Dataset.from_frame(rows, label="click", split="1:1:1"))),
        ("^field_sizes needs ids", lambda: shaver.Dataset.from_frame(rows, label="click", field_sizes=[2])),
    ]
    for match, call in calls:
        with pytest.raises(shaver.Error, match=match) as error:
            call()
        assert str(scratch()) not in str(error.value)


def test_warnings_name_parameters(planted: Planted, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pruned = shaver.prune(planted.model, planted.scores, sparsity=0.5, out=tmp_path / "pruned.safetensors")
    shaver.evaluate(pruned, planted.dataset, split="train")
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1 and warnings[0].endswith(": judge by another split, such as test, or a dataset of other rows")


def test_warnings_of_an_import(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def rows(letter: str) -> pa.Table:
        return pa.table({"click": [0, 1, 1, 0] * 100, "user": [f"{letter}{i % 9}" for i in range(400)]})

    shaver.Dataset.from_frame(rows("a"), label="click", out=tmp_path / "first")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    shaver.Dataset.from_frame(rows("b"), label="click", vocabulary=tmp_path / "first", out=tmp_path / "second")
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert any("user: all 400 rows have a value that is not in the vocabulary" in text for text in warnings)


def test_scores_that_have_not_converged_are_in_the_error(planted: Planted, tmp_path: Path) -> None:
    out = tmp_path / "scores.arrow"
    with pytest.raises(shaver.UnconvergedError, match="not converged") as error:
        shaver.score(planted.model, planted.dataset, out=out, estimator="permutation", sample=0.1, until="error", bound=1e-9)
    assert error.value.exit_code == 3
    assert error.value.scores.path == str(out) and error.value.scores.to_arrow().num_rows == 3600


def test_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_binary, "__file__", str(tmp_path / "_binary.py"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(shaver.Error, match="neither in this package nor on PATH"):
        shaver.Dataset.open(tmp_path)


def test_log_and_progress(planted: Planted, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_command, "PROGRESS_EVERY", "20ms")
    total = sum(split["rows"] for split in shaver.Dataset.open(planted.dataset).document["splits"][:2])
    seen: list[shaver.Progress] = []
    with caplog.at_level(logging.INFO, logger="shaver"):
        shaver.score(planted.model, planted.dataset, estimator="permutation", splits=["train", "val"], passes=40, rows_per_shard=50, progress=seen.append)
    records = [record for record in caplog.records if record.name == "shaver"]
    assert any(record.message.startswith("scoring ") and record.fields["rows"] == total for record in records)  # type: ignore[attr-defined]
    assert all(record.levelno == logging.INFO for record in records)
    assert len(seen) > 1
    assert {(p.of, p.unit, p.total) for p in seen} == {("score", "rows", total)}
    assert all(0 <= one.done <= other.done <= total for one, other in itertools.pairwise(seen))


def test_progress_bar() -> None:
    progress = shaver.Progress(of="score", unit="rows", done=1500, total=3000, per_second=250.0, seconds_left=3700.0, note="hot")
    assert str(progress) == "1,500 of 3,000 rows, 250/s, hot, 1h01m left"
    assert progress.bar(79) == "score [=============              ] 1,500 of 3,000 rows, 250/s, hot, 1h01m left"
    assert progress.bar(30) == "score: 1,500 of 3,000 rows, 25"


class Started:
    """Remembers the commands that run starts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[subprocess.Popen[str]] = []
        start = subprocess.Popen

        def remember(*arguments: object, **options: object) -> subprocess.Popen[str]:
            process: subprocess.Popen[str] = start(*arguments, **options)  # type: ignore[call-overload]
            self.all.append(process)
            return process

        monkeypatch.setattr(subprocess, "Popen", remember)

    def ended(self) -> bool:
        """Reports whether no command exists any more, not even as a zombie."""
        for process in self.all:
            try:
                os.kill(process.pid, 0)
            except ProcessLookupError:
                continue
            return False
        return True


def interrupt_by_signal(progress: shaver.Progress) -> None:
    if 4 * progress.done >= progress.total:
        os.kill(os.getpid(), signal.SIGINT)


def interrupt_by_exception(progress: shaver.Progress) -> None:
    if 4 * progress.done >= progress.total:
        raise KeyboardInterrupt


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
@pytest.mark.parametrize("interrupt", [interrupt_by_signal, interrupt_by_exception])
def test_cancelled_job_leaves_no_process_and_continues(
    interrupt: Callable[[shaver.Progress], None], planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = shaver.Dataset.open(planted.dataset)
    model = shaver.Model(planted.model)
    out = tmp_path / "scores.arrow"

    def score(progress: Callable[[shaver.Progress], None] | None) -> shaver.Scores:
        game = {"estimator": "permutation", "baseline": "codebook", "splits": "train"}  # those of nightly score differ
        return shaver.score(model, dataset, out=out, **game, passes=40, rows_per_shard=50, checkpoint_every="10ms", progress=progress)  # type: ignore[arg-type]

    monkeypatch.setattr(_command, "PROGRESS_EVERY", "20ms")
    started = Started(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        score(interrupt)
    assert started.all and started.ended()
    assert not out.exists()
    with caplog.at_level(logging.INFO, logger="shaver"):
        scores = score(None)
    merged = [record.fields["merged"] for record in caplog.records if record.message.startswith("scoring ")]  # type: ignore[attr-defined]
    assert merged and merged[0] > 0, "the job began again"
    whole = tmp_path / "whole.arrow"
    command("score", "--model", planted.model, "--dataset", planted.dataset, "--estimator", "permutation", "--passes", "40", "--out", whole)
    assert Path(scores.path).read_bytes() == whole.read_bytes()


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_second_interrupt_kills_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deaf = tmp_path / "shaver"
    deaf.write_text('#!/bin/sh\ntrap "" INT\nwhile :; do sleep 0.1; done\n')
    deaf.chmod(0o755)
    monkeypatch.setattr(_command, "binary", lambda: str(deaf))
    started = Started(monkeypatch)
    timers = [threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)) for after in (0.5, 1.0)]
    for timer in timers:
        timer.start()
    with pytest.raises(KeyboardInterrupt):
        _command.run(["score"], {})
    assert started.all and started.ended()


def test_killed_command_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if os.name == "nt":
        pytest.skip("a shell script is the program")
    script = tmp_path / "shaver"
    script.write_text("#!/bin/sh\necho last words >&2\nkill -9 $$\n")
    script.chmod(0o755)
    monkeypatch.setattr(_command, "binary", lambda: str(script))
    with pytest.raises(shaver.Error, match="ended by signal 9\nlast words"):
        _command.run(["score"], {})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_command_ends_soon_after_a_killed_python(planted: Planted, tmp_path: Path) -> None:
    program = "import shaver, sys; shaver.score(sys.argv[1], sys.argv[2], out=sys.argv[3], estimator='permutation', passes=2000, rows_per_shard=50)"
    python = subprocess.Popen([sys.executable, "-c", program, str(planted.model), str(planted.dataset), str(tmp_path / "s.arrow")])
    try:
        found = wait_for(lambda: scorers(python.pid))
    finally:
        python.kill()
        python.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in found))


def scorers(parent: int) -> list[int]:
    """Returns the children of a process that run shaver score."""
    return [pid for pid in children(parent) if b"\0score\0" in read(Path(f"/proc/{pid}/cmdline"))]


def wait_for(condition: Callable[[], T]) -> T:
    for _ in range(200):
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError("nothing happened in 20 s")


def test_module_runs_the_program() -> None:
    ended = subprocess.run([sys.executable, "-m", "shaver", "--version"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0 and ended.stdout == command("--version")
