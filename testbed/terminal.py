"""Makes consoles, tables and numbers for people.

Strangers' text may hold brackets or colons, which rich would read as markup or emoji, and control
characters. So style is given by ``style=`` or a :class:`rich.text.Text`, never inside a string.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from rich import box
from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.text import Text

from testbed.streams import printable, verbatim

Cell = str | Text
TEXT = 20


class _Console(Console):
    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text), **how)

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        return super().render(
            _literal(renderable) if isinstance(renderable, Text) else renderable, options
        )


def _literal(cell: Cell) -> Cell:
    plain = str(cell)
    shown = printable(plain)
    if shown == plain:
        return cell
    if isinstance(cell, str):
        return shown
    return Text(
        shown,
        cell.style,
        justify=cell.justify,
        overflow=cell.overflow,
        no_wrap=cell.no_wrap,
        end=cell.end,
    )


def console(
    width: int | None = None, *, file: IO[str] | None = None, stderr: bool = False
) -> Console:
    standard = sys.stderr if stderr else sys.stdout
    own = verbatim(standard)
    if file is None and own is not standard:
        file = own
    out = _Console(file=file, stderr=stderr, markup=False, emoji=False, highlight=False)
    if width is not None and not out.is_terminal:
        out.width = width
    return out


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell] | None],
    *,
    title: str = "",
    caption: str = "",
    words: Collection[str] = (),
    names: Collection[str] = (),
    whole: bool = True,
) -> Table:
    """A row that is None is a gap. The first column and those in ``names`` hold names: flush left,
    never broken. Those in ``words`` hold text, which is wrapped. All others hold numbers: flush
    right, never broken. Without ``whole``, columns that do not fit are left out."""
    literal = [None if row is None else [_literal(cell) for cell in row] for row in rows]
    return Table(
        [printable(head) for head in heads],
        literal,
        title,
        caption,
        list(map(printable, words)),
        list(map(printable, names)),
        whole,
    )


@dataclass(frozen=True)
class Table:
    """Where a console is too narrow the rest of the columns follows below, so that no number is cut
    off; each part repeats the first columns."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell] | None]
    title: str
    caption: str
    words: Collection[str]
    names: Collection[str]
    whole: bool

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Text | rich_table.Table]:
        if self.title:
            yield Text(printable(self.title), "table.title")
        parts = self._parts(options.max_width)
        yield from map(self._part, parts if self.whole else parts[:1])
        if self.caption:
            yield Text(printable(self.caption), "table.caption")

    def _parts(self, width: int) -> list[list[int]]:
        cells = [list(map(str, row)) for row in self.rows if row is not None]
        columns = [
            [head, *(row[number] for row in cells)] for number, head in enumerate(self.heads)
        ]
        widths = [max(map(_width, column)) for column in columns]
        widths = [
            2 + (min(least, TEXT) if head in self.words else least)
            for head, least in zip(self.heads, widths, strict=True)
        ]
        keys, rows = 1, len(set(map(tuple, cells)))
        while (
            len({tuple(row[:keys]) for row in cells}) < rows and 2 * sum(widths[: keys + 1]) < width
        ):
            keys += 1
        parts = [list(range(keys))]
        for number in range(keys, len(widths)):
            if sum(widths[k] for k in parts[-1]) + widths[number] > width and len(parts[-1]) > keys:
                parts.append(list(range(keys)))
            parts[-1].append(number)
        return parts

    def _part(self, columns: Sequence[int]) -> rich_table.Table:
        shown = any(map(str.strip, self.heads))
        result = rich_table.Table(
            box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_header=shown
        )
        for number in columns:
            head, text = self.heads[number], self.heads[number] in self.words
            left = text or number == 0 or head in self.names
            result.add_column(
                head,
                justify="left" if left else "right",
                no_wrap=not text,
                overflow="fold" if text else "ellipsis",
            )
        for row in self.rows:
            if row is None:
                result.add_section()
            else:
                result.add_row(*(row[number] for number in columns))
        return result


def fields(heads: Sequence[str], texts: Sequence[str], style: str = "") -> rich_table.Table:
    grid = rich_table.Table.grid(padding=(0, 2, 0, 0))
    for head, text in zip(heads, texts, strict=True):
        if text:
            grid.add_row(Text(printable(head), style), printable(text))
    return grid


def _width(cell: str) -> int:
    return max(map(cell_len, cell.split("\n")))


# --- numbers; a dash is what is not known ---------------------------------------------------------


def number(value: float | None, form: str = ",.1f", unit: str = "") -> str:
    if value is None:
        return "–"
    text = f"{value:{form}}"
    return (text if text.strip("-0.") else text.removeprefix("-")) + unit


def duration(ns: float | None) -> str:
    if ns is None:
        return "–"
    unit, name = next(
        ((u, n) for u, n in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")) if abs(ns) >= 0.9995 * u),
        (1.0, "ns"),
    )
    size = abs(ns) / unit
    return (
        f"{ns / unit:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f} {name}" if ns else "0 µs"
    )


def us(ns: float | None) -> str:
    return number(ns if ns is None else ns / 1e3, ",.1f")


def percent(share: float | None) -> str:
    return number(share, ".1%")


def kb(size: float | None) -> str:
    return number(size if size is None else size / 1e3, ",.1f")
