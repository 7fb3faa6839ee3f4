"""Small tables for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST = 12  # rows of a table that are shown
WIDTH = 160  # of a bar, in pixels


@dataclass(frozen=True)
class Bars:
    """Bars from 0, on an axis from low to high, which holds 0."""

    low: float
    high: float

    def of(self, value: float, low: float | None, high: float | None) -> Picture:
        """Returns a bar as long as value, with a line from low to high, which may be unknown."""
        least, most = sorted((self._at(0), self._at(value)))
        line = ""
        if low is not None and high is not None:
            line = f'<path d="M{self._at(low)} 7H{self._at(high)}" stroke="currentColor"/>'
        bar = f'<rect x="{least}" y="2" width="{round(most - least, 1)}" height="10" fill="#2f6db3"/>'
        return Picture(f'<svg width="{WIDTH}" height="14">{bar}{line}</svg>')

    def _at(self, x: float) -> float:
        return round(WIDTH * (x - self.low) / ((self.high - self.low) or 1), 1)


@dataclass(frozen=True)
class Picture:
    """A cell of a table that is a picture."""

    markup: str


def page(title: str, facts: str, *tables: str) -> str:
    """Returns what _repr_html_ returns: a title and facts, which are plain text, and tables."""
    return f"<div><p><b>{html.escape(title)}</b> {html.escape(facts)}</p>{''.join(tables)}</div>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, most: int = MOST) -> str:
    """Returns a table of plain texts and pictures. Columns of numbers are on the right.

    It has no colours of its own, because those of a notebook are light or dark.
    """
    texts = [[cell if isinstance(cell, Picture) else _text(cell) for cell in row] for row in rows]
    right = [all(_is_number(row[i]) for row in texts) for i in range(len(head))]

    def line(cells: Sequence[str | Picture], tag: str) -> str:
        aligned = (f'<{tag} style="text-align: {"right" if right[i] else "left"}">{_markup(cell)}</{tag}>' for i, cell in enumerate(cells))
        return f"<tr>{''.join(aligned)}</tr>"

    body = "".join(line(cells, "td") for cells in texts[:most])
    rest = f"<p>and {len(texts) - most:,} more</p>" if len(texts) > most else ""
    return f'<table style="margin-bottom: 0.8em"><thead>{line(head, "th")}</thead><tbody>{body}</tbody></table>{rest}'


def difference(document: Mapping[str, Any] | None) -> tuple[str, str]:
    """Returns a difference and its 95% interval, which is empty if the rows do not determine one."""
    if document is None:
        return "", ""
    value, low, high = (document.get(name) for name in ("value", "low", "high"))
    return f"{value:+.6f}", "" if low is None or high is None else f"[{low:+.6f}, {high:+.6f}]"


def _text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:.6f}"
    return str(cell)


def _markup(cell: str | Picture) -> str:
    return cell.markup if isinstance(cell, Picture) else html.escape(cell)


def _is_number(text: str | Picture) -> bool:
    return isinstance(text, str) and (text == "" or text[0] in "+-0123456789[")
