"""Shows the progress of a command."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TextIO


@dataclass(frozen=True)
class Progress:
    """How far a command has got."""

    of: str  # what the command does, such as "score"
    unit: str  # what it counts, such as "rows"
    done: int
    total: int
    per_second: float  # recent rate
    seconds_left: float | None  # at that rate; None if the rate is 0
    note: str = ""

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Progress:
        """Returns the progress in a record of the command's log."""
        unit = str(record["unit"])
        left = record.get("seconds_left")
        return cls(
            of=str(record["of"]),
            unit=unit,
            done=int(record[unit]),
            total=int(record["total"]),
            per_second=float(record["per_second"]),
            seconds_left=None if left is None else float(left),
            note=str(record.get("note", "")),
        )

    def __str__(self) -> str:
        text = f"{self.done:,} of {self.total:,} {self.unit}, {self.per_second:,.0f}/s"
        if self.note:
            text += f", {self.note}"
        if self.seconds_left is not None:
            text += f", {_duration(self.seconds_left)} left"
        return text

    def bar(self, width: int) -> str:
        """Returns the progress with a bar in front of it, in at most width characters."""
        text = str(self)
        size = min(width - len(self.of) - len(text) - len(" [] "), 40)
        if size < 10:
            return f"{self.of}: {text}"[:width]
        full = int(size * min(self.done / max(self.total, 1), 1))
        return f"{self.of} [{'=' * full}{' ' * (size - full)}] {text}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{whole % 60:02d}s" if minutes else f"{whole}s"


ProgressOption = bool | Callable[[Progress], None] | None
"""How to show progress: None shows it on a terminal and in a notebook, False nowhere, and True
also elsewhere. A function is called with each Progress, in the thread of the caller."""


class Display(Protocol):
    """What shows the progress of one command."""

    def show(self, progress: Progress) -> None: ...

    def end(self) -> None: ...


def display(option: ProgressOption) -> Display:
    """Returns what shows the progress of a command."""
    if callable(option):
        return _Function(option)
    if option is not False:
        if _in_notebook():
            return _Notebook()
        if sys.stderr is not None and sys.stderr.isatty():
            return _Terminal(sys.stderr)
        if option:
            return _Lines()
    return _Nothing()


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


class _Nothing:
    def show(self, progress: Progress) -> None:
        pass

    def end(self) -> None:
        pass


class _Function(_Nothing):
    def __init__(self, function: Callable[[Progress], None]) -> None:
        self.function = function

    def show(self, progress: Progress) -> None:
        self.function(progress)


class _Lines(_Nothing):
    def show(self, progress: Progress) -> None:
        print(f"{progress.of}: {progress}", file=sys.stderr, flush=True)


class _Terminal:
    """Draws a bar on one line of a terminal, and removes it at the end."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.shown = 0

    def _draw(self, line: str) -> None:
        self.out.write(f"\r{line}{' ' * (self.shown - len(line))}\r{line}")
        self.out.flush()
        self.shown = len(line)

    def show(self, progress: Progress) -> None:
        self._draw(progress.bar(shutil.get_terminal_size().columns - 1))

    def end(self) -> None:
        if self.shown:
            self._draw("")


class _Notebook:
    """Updates one line of text in the output of a cell. The last line stays."""

    def __init__(self) -> None:
        self.handle: Any = None

    def show(self, progress: Progress) -> None:
        content = {"text/plain": progress.bar(100)}
        if self.handle is None:
            from IPython.display import display as show

            self.handle = show(content, raw=True, display_id=True)  # type: ignore[no-untyped-call,unused-ignore]
        else:
            self.handle.update(content, raw=True)

    def end(self) -> None:
        pass
