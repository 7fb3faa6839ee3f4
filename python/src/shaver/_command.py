"""Runs a command of the shaver program."""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import IO, Any

from ._binary import binary
from ._errors import BY_EXIT_CODE, BadInputError, Error
from ._progress import Display, Progress, ProgressOption, display
from ._words import in_python

Scalar = str | int | float | bool | os.PathLike[str] | timedelta

Flag = Scalar | Sequence[str | int | float | os.PathLike[str]] | Mapping[str, str | int | float] | None
"""The value of a flag. None leaves the flag out, a sequence is a list, and a mapping is a list of
NAME=VALUE."""

PROGRESS_EVERY = "500ms"  # time between two records of progress

LEAVE_WITHIN = 10.0  # seconds that a command has to end after an interrupt

log = logging.getLogger("shaver")

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


def arguments(flags: Mapping[str, Flag]) -> list[str]:
    """Returns flags as arguments of a command. The flag max_rows=10 becomes --max-rows=10."""
    found = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if value is True:
            found.append(flag)
        elif isinstance(value, Mapping):
            pairs = (f"{key}={_text(each)}" for key, each in value.items())
            found.append(f"{flag}={','.join(map(_element, pairs))}")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            found.append(f"{flag}={','.join(map(_element, value))}")
        else:
            found.append(f"{flag}={_text(value)}")
    return found


def path_of(path: object, what: str, expected: str) -> str:
    """Returns a path as text. what and expected name the parameter and what it takes, for the error about another type."""
    if isinstance(path, (str, os.PathLike)):
        return str(os.fspath(path))
    raise BadInputError(f"{what} is a {type(path).__name__}, expected {expected}")


def _text(value: object) -> str:
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return f"{round(value.total_seconds() * 1000)}ms"
    return str(value)


def _texts(value: Flag) -> list[str]:
    """Returns the value of a flag, or the elements of a list."""
    several = isinstance(value, Sequence) and not isinstance(value, str)
    return [_text(each) for each in value] if several else [_text(value)]  # type: ignore[union-attr]


def _element(value: object) -> str:
    """Returns an element of a list, in double quotes if it has a comma or a quote."""
    text = _text(value)
    if "," in text or '"' in text:
        return '"' + text.replace('"', '""') + '"'
    return text


@dataclass(frozen=True)
class Result:
    """What a command printed, and how it ended."""

    output: str
    exit_code: int
    message: str  # error message, or empty

    def document(self) -> dict[str, Any]:
        """Returns the JSON document that the command printed."""
        try:
            found = json.loads(self.output)
        except ValueError as error:
            raise Error(f"the command printed {self.output[:80]!r}, expected JSON") from error
        if not isinstance(found, dict):
            raise Error(f"the command printed {type(found).__name__}, expected a JSON object")
        return found

    def check(self) -> Result:
        """Raises the Error of the exit code, unless that is 0."""
        if self.exit_code == 0:
            return self
        raise BY_EXIT_CODE.get(self.exit_code, Error)(self.message, self.exit_code)


def run(
    command: Sequence[str],
    flags: Mapping[str, Flag],
    *,
    paths: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    progress: ProgressOption = False,
    accept: Collection[int] = (),
) -> Result:
    """Runs a command and returns what it printed.

    ``paths`` are its arguments that are not flags. ``names`` are the parameters of the caller by
    the flag that they become, where the names differ. Messages name parameters and not flags, and
    say what a temporary file holds.

    The log of the command goes to the logger "shaver". If the caller is interrupted, or showing
    the progress raises an exception, the command is cancelled, and has ended when run returns.
    Raises Error for exit codes other than 0, except those in accept.
    """
    line = [binary(), *command, *arguments(flags), *(["--", *paths] if paths else [])]
    log.debug("running %s", subprocess.list2cmdline(line))
    shown = display(progress)
    process = subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "SHAVER_LOG": "json", "SHAVER_PROGRESS": PROGRESS_EVERY},
        **_own_group(),
    )
    try:
        given = [*paths, *(text for value in flags.values() if not isinstance(value, Mapping) for text in _texts(value))]
        result = _follow(process, shown, lambda message: in_python(message, names or {}, given))
    except BaseException:
        _cancel(process)
        raise
    finally:
        shown.end()
    return result if result.exit_code in accept else result.check()


def document(command: Sequence[str], flags: Mapping[str, Flag], **options: Any) -> dict[str, Any]:
    """Runs a command with -o json and returns its document; see run."""
    return run(command, {**flags, "output": "json"}, **options).document()


def _own_group() -> dict[str, Any]:
    """Returns the arguments of Popen that give the command a process group of its own.

    Ctrl-C on a terminal then reaches only Python, which passes it on once.
    """
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _follow(process: subprocess.Popen[str], shown: Display, words: Callable[[str], str]) -> Result:
    """Reads what the command writes until it ends. words translates its messages."""
    assert process.stdout is not None and process.stderr is not None
    output: list[str] = []
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    readers = [
        threading.Thread(target=_read_all, args=(process.stdout, output), daemon=True),
        threading.Thread(target=_read_lines, args=(process.stderr, lines), daemon=True),
    ]
    for reader in readers:
        reader.start()
    errors: list[str] = []
    others: list[str] = []
    while True:
        try:
            # On Windows only a wait that ends can be interrupted.
            line = lines.get(timeout=0.2)
        except queue.Empty:
            continue
        if line is None:
            break
        _take(line.rstrip("\n"), shown, words, errors, others)
    for reader in readers:
        reader.join()
    code = process.wait()
    process.stdout.close()
    process.stderr.close()
    if code == 0 or errors:
        return Result("".join(output), code, "\n".join(errors))
    # The command did not end by itself.
    message = f"shaver ended with exit code {code}" if code > 0 else f"shaver was ended by signal {-code}"
    if code == 130:
        message = "shaver was interrupted"
    return Result("".join(output), code if code == 130 else 1, "\n".join([message, *others[-20:]]))


def _read_all(source: IO[str], into: list[str]) -> None:
    into.append(source.read())


def _read_lines(source: IO[str], into: queue.SimpleQueue[str | None]) -> None:
    for line in source:
        into.put(line)
    into.put(None)


def _take(line: str, shown: Display, words: Callable[[str], str], errors: list[str], others: list[str]) -> None:
    """Handles a line that the command wrote to stderr."""
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or "msg" not in record:
        text = line.removeprefix("warning: ")
        log.log(logging.INFO if text == line else logging.WARNING, "%s", words(text))
        others.append(line)
        return
    if record["msg"] == "progress" and "of" in record:
        shown.show(Progress.of_record(record))
        return
    message = words(str(record["msg"]))
    level = _LEVELS.get(str(record.get("level")), logging.INFO)
    if "exit_code" in record:
        if level == logging.ERROR:
            errors.append(message)
        return
    fields = {name: value for name, value in record.items() if name not in ("level", "ts", "msg")}
    log.log(level, "%s", " ".join([message, *(f"{name}={value}" for name, value in fields.items())]), extra={"fields": fields})


def _cancel(process: subprocess.Popen[str]) -> None:
    """Interrupts the command, and kills it if it does not end in time."""
    try:
        if process.poll() is None:
            if sys.platform == "win32":
                process.send_signal(signal.CTRL_BREAK_EVENT)
            else:
                process.send_signal(signal.SIGINT)
            process.wait(LEAVE_WITHIN)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # A second interrupt ends the wait.
        if process.poll() is None:
            process.kill()
        process.wait()
