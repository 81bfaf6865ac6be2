"""Consoles, tables and numbers for people. All consoles and tables of ours are made here, so that they look alike and show text literally.

A file name, a typed word or an error message may hold brackets or colons, which rich would read as markup or emoji. Style is given by
``style=`` or a :class:`rich.text.Text`, never inside a string. Used by all that print: the command line, the prompt, scenarios.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell = str | Text


def console(width: int | None = None, *, file: IO[str] | None = None, stderr: bool = False) -> Console:
    """A console on stdout, stderr or ``file``: as wide as the terminal, or ``width`` columns where there is none."""
    out = Console(file=file, stderr=stderr, markup=False, emoji=False, highlight=False)
    if width is not None and not out.is_terminal:
        out.width = width
    return out


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Cell] | None], *, title: str = "", caption: str = "",
    words: Collection[str] = (), names: Collection[str] = (),
) -> Table:  # fmt: skip
    """A table of cells; a row that is None is a gap.

    The first column and those in ``names`` hold names: flush left, never broken. Those in ``words`` hold text, which is wrapped. All others
    hold numbers: flush right, never broken.
    """
    result = Table(
        title=title or None, title_justify="left", caption=caption or None, caption_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
        padding=(0, 1, 0, 0), show_header=any(map(str.strip, heads)),
    )  # fmt: skip
    for number, head in enumerate(heads):
        text = head in words
        left = text or number == 0 or head in names
        result.add_column(head, justify="left" if left else "right", no_wrap=not text, overflow="fold" if text else "ellipsis")
    for row in rows:
        if row is None:
            result.add_section()
        else:
            result.add_row(*row)
    return result


# --- numbers; a dash is what is not known --------------------------------------------------------------------------


def number(value: float | None, form: str = ",.1f", unit: str = "") -> str:
    """A number with its unit; never "-0"."""
    if value is None:
        return "–"
    text = f"{value:{form}}"
    return (text if text.strip("-0.") else text.removeprefix("-")) + unit


def duration(ns: float | None) -> str:
    """A time with the unit in which it reads well, to three digits."""
    if ns is None:
        return "–"
    unit, name = next(((u, n) for u, n in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")) if abs(ns) >= 0.9995 * u), (1.0, "ns"))
    size = abs(ns) / unit
    return f"{ns / unit:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f} {name}" if ns else "0 µs"


def us(ns: float | None) -> str:
    """A time in µs, without the unit."""
    return number(ns if ns is None else ns / 1e3, ",.1f")


def percent(share: float | None) -> str:
    """A share of 1 in per cent."""
    return number(share, ".1%")


def kb(size: float | None) -> str:
    """Bytes in kB, without the unit."""
    return number(size if size is None else size / 1e3, ",.1f")
