"""Tables of runs: columns that compute their cells from a row. Called by the other modules of scenarios.show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed import terminal
from testbed.terminal import Table, duration

Column = tuple[str, Callable[[Any], terminal.Cell]]
"""(head, function: row -> cell)."""


def world_words(rows: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], list[str]]:
    """Make a function: row -> [its world] if the rows have different worlds, else []. Older results without a world are emulated."""
    mixed = len({row.get("world", "emulated") for row in rows}) > 1
    return lambda row: [str(row.get("world", "emulated"))] if mixed else []


def delivered_after(fault: Mapping[str, Any]) -> str:
    """Write how long after a fault began the last packet that it lost had arrived after all; "–" if one never did."""
    return "–" if fault.get("delivered_ns") is None else duration(fault["delivered_ns"] - fault["at_ns"])


def table(title: str, columns: Sequence[Column], rows: Sequence[Any], caption: str = "") -> Table:
    """Make a table for the terminal. The first column holds names, a verdict is text, the others hold numbers."""
    cells = [[cell(row) for _, cell in columns] for row in rows]
    return terminal.table([head for head, _ in columns], cells, title=title, caption=caption, words=("verdict",))
