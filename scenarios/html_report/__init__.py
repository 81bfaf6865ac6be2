"""``report.html``: all that a results directory says, in one file that needs no network. Called by the runner and by ``mrcbed report``.

It reads files only: the summary, the manifest, the tables and the figures that scenarios.plots drew. The same files give the same bytes.
docs/report.md says how to read it.
"""

from __future__ import annotations

from pathlib import Path

NAME = "report.html"


def write_report(directory: Path) -> Path:
    """Write ``report.html`` beside ``summary.json`` and return its path. Raises :class:`scenarios.plots.stored.ResultsError`."""
    import jinja2

    from scenarios.html_report.content import content
    from scenarios.plots.stored import Stored

    here = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = (here / "report.css").read_text(encoding="utf-8")
    text = environment.get_template("report.html.j2").render(style=style, **content(Stored(directory)))
    path = directory / NAME
    path.write_text(text, encoding="utf-8")
    return path
