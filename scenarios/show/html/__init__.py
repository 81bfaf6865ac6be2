"""Makes pages in one file that needs no network. The same files give the same bytes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from scenarios.show.document import Cell, Document, Folded, Picture, Table, Words

NAME = "report.html"
LONG = 12  # A table with more rows is folded [ours].
HERE = Path(__file__).parent
KINDS = {Table: "table", Words: "words", Picture: "picture", Folded: "folded"}


def write_page(document: Document, path: Path) -> Path:
    import jinja2

    loader = jinja2.FileSystemLoader(HERE)
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (HERE / "report.css").read_text(encoding="utf-8")
    template = environment.get_template("page.html.j2")
    path.write_text(
        template.render(
            style=style, page=document, kind_of=lambda b: KINDS[type(b)], grid=grid, parts=parts
        ),
        encoding="utf-8",
    )
    return path


def parts(cell: Cell) -> list[tuple[str, str]]:
    return [(cell, "")] if isinstance(cell, str) else [(str(text), mark) for text, mark in cell]


def grid(table: Table) -> dict[str, Any]:
    classes = [
        "" if head in table.words else "num" if number else "name"
        for number, (head, _) in enumerate(table.columns)
    ]
    heads = [head.replace("\u00ad\n", "") for head, _ in table.columns]
    rows = [
        (table.mark(row), [parts(cell(row)) for _, cell in table.columns])
        for row in table.rows
        if row is not None
    ]
    if table.fold is None or len(rows) <= LONG:
        return {"heads": heads, "classes": classes, "rows": rows, "all": [], "words": ""}
    marked = [row for row in rows if row[0]]
    words = f"{len(rows) - len(marked)} of {len(rows)} {table.fold}" if table.fold else ""
    return {"heads": heads, "classes": classes, "rows": marked, "all": rows, "words": words}


def embedded(image: Path, heading: str) -> Picture:
    return Picture(
        heading,
        "",
        image.stem,
        "data:image/png;base64," + base64.b64encode(image.read_bytes()).decode("ascii"),
    )


def write_report(directory: Path) -> Path:
    """Raises :class:`scenarios.figures.stored.ResultsError`."""
    from scenarios.figures.stored import Stored
    from scenarios.show.html.content import content

    return write_page(content(Stored(directory)), directory / NAME)
