"""Tables in a terminal: numbers as people read them, and one look for all. Called by scenarios.show.report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

Column = tuple[str, Callable[[Any], str | Text]]
"""(head, cell of a row); style only by Text, for names in cells may hold anything (testbed/terminal.py)."""


def world_words(rows: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], list[str]]:
    """Row -> its world, where rows are of more than one; else nothing. Results from before there were two are emulated."""
    mixed = len({row.get("world", "emulated") for row in rows}) > 1
    return lambda row: [str(row.get("world", "emulated"))] if mixed else []


def ms(value: float | None) -> str:
    """ns as ms for people, or a dash."""
    return "–" if value is None else f"{value / 1e6:,.0f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def kb(value: float | None) -> str:
    """Bytes as kB, or a dash."""
    return "–" if value is None else f"{value / 1e3:,.1f}"


def table(title: str, columns: Sequence[Column], rows: Sequence[Any]) -> Table:
    """The first column is words, the others are numbers, except a verdict."""
    made = Table(title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0), box=box.SIMPLE_HEAD)
    for number, (head, _) in enumerate(columns):
        made.add_column(head, justify="left" if number == 0 or head == "verdict" else "right", no_wrap=head != "verdict")
    for row in rows:
        made.add_row(*(cell(row) for _, cell in columns))
    return made
