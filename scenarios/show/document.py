"""Results as readers see them: sections of tables, sentences and pictures, for a terminal or a
page."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from rich.text import Text

from testbed import terminal

Cell = str | Sequence[tuple[str, str]]
"""A text, or parts with marks: keys of :data:`STYLES`, "" or, for a link on a page, "#" and a
section's key."""
Column = tuple[str, Callable[[Any], Cell]]
"""(head, function: row -> cell). A soft hyphen before a line break of a head shows only where the
line is broken."""
PAGE, TERMINAL = "page", "terminal"
STYLES = {
    "good": "green",
    "bad": "bold red",
    "doubt": "yellow",
    "soft": "dim",
    "strong": "bold",
    "": "",
}
"""Mark -> style in a terminal; on a page, it is a CSS class (html/report.css)."""
HEAD = 9  # In a terminal, longer heads are broken into lines.


@dataclass(frozen=True)
class Table:
    """The first column has names; those in ``words`` have text; the others have numbers."""

    columns: Sequence[Column]
    rows: Sequence[Any]
    title: str = ""
    note: str = ""
    words: Collection[str] = ("verdict",)
    details: Collection[str] = ()  # heads of columns that only a page has
    aside: Collection[str] = ()  # heads of columns that the short form in a terminal drops
    mark: Callable[[Any], str] = lambda row: ""  # of a row on a page: "bad", "doubt" or ""
    fold: str | None = None
    """What the unmarked rows are, which a page hides until they are opened. None: never folded."""
    on: str = ""


@dataclass(frozen=True)
class Words:
    """Kinds: head, sub, note, lead, banner, pre (a command or a file); "" for plain text."""

    text: Cell
    kind: str = "note"
    on: str = ""


@dataclass(frozen=True)
class Picture:
    """``source`` is a data: URI; ``warning`` says which runs are not trustworthy."""

    heading: str
    caption: str
    name: str
    source: str
    warning: str = ""
    on: str = PAGE


@dataclass(frozen=True)
class Folded:
    summary: str
    blocks: Sequence[Block]
    on: str = PAGE


Block = Table | Words | Picture | Folded


@dataclass(frozen=True)
class Section:
    key: str
    heading: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    title: str
    head: Sequence[Block]
    sections: Sequence[Section]
    verdict: str = ""


def plain(heads: Sequence[str], rows: Sequence[Sequence[Cell] | None], **more: Any) -> Table:
    return Table([(head, itemgetter(number)) for number, head in enumerate(heads)], rows, **more)


def rich(block: Table | Words, short: bool = False) -> terminal.Table | Text:
    if isinstance(block, Words):
        text = _text(block.text)
        text.style = "dim" if block.kind == "note" else ""
        return text
    columns = [
        column
        for column in block.columns
        if column[0] not in block.details and not (short and column[0] in block.aside)
    ]
    heads = [
        head.replace("\u00ad", "-")
        if "\n" in head
        else textwrap.fill(head, HEAD, break_long_words=False)
        for head, _ in columns
    ]
    words = [head for head, (name, _) in zip(heads, columns, strict=True) if name in block.words]
    rows = [
        None
        if row is None
        else [_text(cell(row), number == 0) for number, (_, cell) in enumerate(columns)]
        for row in block.rows
    ]
    return terminal.table(
        heads, rows, title=block.title, caption=block.note, words=words, whole=not short
    )


def _text(cell: Cell, name: bool = False) -> Text:
    if isinstance(cell, str):
        first, *more = cell.partition("\n") if name else (cell,)
        cell = [(first, ""), ("".join(more), "soft")]
    return Text.assemble(*((part, STYLES.get(mark, "")) for part, mark in cell))
