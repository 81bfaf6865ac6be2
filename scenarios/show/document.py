"""What readers see of results, made once for the terminal and for a page: sections of tables, sentences and pictures.

:func:`rich` makes what a console prints; :mod:`scenarios.show.html` writes pages.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from rich.text import Text

from testbed import terminal

Cell = str | Sequence[tuple[str, str]]
"""A text, or its parts, each with its mark: a key of :data:`STYLES`, "" or, for a link on a page, "#" and the key of a section."""
Column = tuple[str, Callable[[Any], Cell]]
"""(head, function: row -> cell). A soft hyphen before a line break of a head is seen only where the line is broken."""
PAGE, TERMINAL = "page", "terminal"
"""Where a block is shown that is not shown on both."""
STYLES = {"good": "green", "bad": "bold red", "doubt": "yellow", "soft": "dim", "strong": "bold", "": ""}
"""Mark -> style in a terminal; on a page a mark is a class of scenarios/show/html/report.css."""
HEAD = 9
"""In a terminal, heads are broken into lines above so many characters."""


@dataclass(frozen=True)
class Table:
    """Rows with a cell per column. The first column has names; those in ``words`` have text; the others have numbers."""

    columns: Sequence[Column]
    rows: Sequence[Any]
    title: str = ""
    note: str = ""
    words: Collection[str] = ("verdict",)
    details: Collection[str] = ()
    """Heads of the columns that only a page has."""
    aside: Collection[str] = ()
    """Heads of the columns that a terminal leaves out of its short form."""
    mark: Callable[[Any], str] = lambda row: ""
    """The mark of a row on a page: "bad", "doubt" or ""."""
    fold: str | None = None
    """A long table shows only its marked rows on a page until it is opened; the text says what the others are. None: never folded."""
    on: str = ""


@dataclass(frozen=True)
class Words:
    """A sentence. Kinds: head, sub, note, lead, banner, pre (a command or a file); "" for plain text."""

    text: Cell
    kind: str = "note"
    on: str = ""


@dataclass(frozen=True)
class Picture:
    """A picture on a page: ``source`` is a data: URI, ``warning`` says which runs in it are not trustworthy."""

    heading: str
    caption: str
    name: str
    source: str
    warning: str = ""
    on: str = PAGE


@dataclass(frozen=True)
class Folded:
    """Blocks that a page shows when they are opened."""

    summary: str
    blocks: Sequence[Block]
    on: str = PAGE


Block = Table | Words | Picture | Folded


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading; ``key`` names it in links."""

    key: str
    heading: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """A page: a heading with the verdict beside it, what is said first, and sections."""

    title: str
    head: Sequence[Block]
    sections: Sequence[Section]
    verdict: str = ""


def plain(heads: Sequence[str], rows: Sequence[Sequence[Cell] | None], **more: Any) -> Table:
    """Make a table of cells; a row that is None is a gap."""
    return Table([(head, itemgetter(number)) for number, head in enumerate(heads)], rows, **more)


def rich(block: Table | Words, short: bool = False) -> terminal.Table | Text:
    """Make what a console prints."""
    if isinstance(block, Words):
        text = _text(block.text)
        text.style = "dim" if block.kind == "note" else ""
        return text
    columns = [column for column in block.columns if column[0] not in block.details and not (short and column[0] in block.aside)]
    heads = [head.replace("\u00ad", "-") if "\n" in head else textwrap.fill(head, HEAD, break_long_words=False) for head, _ in columns]
    words = [head for head, (name, _) in zip(heads, columns, strict=True) if name in block.words]
    rows = [None if row is None else [_text(cell(row), number == 0) for number, (_, cell) in enumerate(columns)] for row in block.rows]
    return terminal.table(heads, rows, title=block.title, caption=block.note, words=words)


def _text(cell: Cell, name: bool = False) -> Text:
    """Make a cell for a terminal; below a name, what tells it apart from others is dim."""
    if isinstance(cell, str):
        first, *more = cell.partition("\n") if name else (cell,)
        cell = [(first, ""), ("".join(more), "soft")]
    return Text.assemble(*((part, STYLES.get(mark, "")) for part, mark in cell))
