"""Writes ``report.html``: all results of a directory in one file that needs no network. Called by the runner and by ``mrcbed report``.

It reads only files: the summary, the manifest, the tables and the figures that scenarios.show.plots drew. The same files give the same
bytes. docs/report.md says how to read it.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

NAME = "report.html"


def rendered(template: Path, **values: Any) -> str:
    """Render a page from a template, with the ``style`` that all pages share."""
    import jinja2

    loader = jinja2.FileSystemLoader(template.parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
    return environment.get_template(template.name).render(style=style, **values)


def embedded(image: Path) -> str:
    """Write a PNG as a data: URI, so that the page needs no other file."""
    return "data:image/png;base64," + base64.b64encode(image.read_bytes()).decode("ascii")


def write_report(directory: Path) -> Path:
    """Write ``report.html`` beside ``summary.json`` and return its path. Raises :class:`scenarios.figures.stored.ResultsError`."""
    from scenarios.figures.stored import Stored
    from scenarios.show.html.content import content

    path = directory / NAME
    path.write_text(rendered(Path(__file__).parent / "report.html.j2", **content(Stored(directory))), encoding="utf-8")
    return path
