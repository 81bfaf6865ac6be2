"""Settings of ``make docs``: the Markdown pages of the repository as a site (Sphinx, furo, MyST)
that loads nothing from elsewhere.

The pages stay as a repository browser shows them. The README is the front page; the lists of
docs/README.md, and what they leave out, are the navigation.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
INCLUDED = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/*/*.md",
    "docs/*/*/*.md",
    "results/README.md",
]
FRONT, SHELVES = "README", ROOT / "docs" / "README.md"

project = "mrcbed"
author = "the maintainers of mrcbed"
html_title = "mrcbed"
root_doc = FRONT
source_suffix = {".md": "markdown"}
include_patterns = INCLUDED
exclude_patterns = [
    "build",
    "dist",
    ".*",
    "**/.*",
    "agents",
    "mrcbed",
    "tests",
    "testbed",
    "topologies",
    "scenarios",
]
extensions = ["myst_parser"]
myst_heading_anchors = 6  # links to headings as a repository browser makes them
highlight_language = "none"  # fenced blocks without a language are terminals
html_theme = "furo"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}
html_static_path = ["site"]
html_css_files = ["site.css"]

_LINK = re.compile(r"\]\(([\w./-]+)\.md\)")
_DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_ARROW = re.compile(r"^ +(\w+) --> (\w+): (.+)$", re.MULTILINE)
_SHELF = re.compile(r"^## (.+)\n+((?:- .*\n)+)", re.MULTILINE)


def pages() -> list[str]:
    """Names of all pages of the site, as Sphinx has them."""
    return sorted(
        str(path.relative_to(ROOT).with_suffix(""))
        for pattern in INCLUDED
        for path in ROOT.glob(pattern)
    )


def navigation(shelves: str) -> str:
    """Hidden lists of contents for the front page: what docs/README.md lists under each heading,
    and after them what is left."""
    shelf = {
        name: [f"docs/{target}" for target in _LINK.findall(links)]
        for name, links in _SHELF.findall(shelves)
    }
    listed = {page for group in shelf.values() for page in group}
    below = {str(Path(page).parent) for page in listed if Path(page).name == FRONT}
    rest = [
        page
        for page in pages()
        if page not in listed | {FRONT} and str(Path(page).parent) not in below
    ]
    return "".join(contents(name, group) for name, group in {**shelf, "More": rest}.items())


def contents(caption: str, listed: list[str]) -> str:
    """Return a hidden list of contents; titles are the pages' own."""
    lines = [f":caption: {caption}"] if caption else []
    return "\n".join(
        ["", "```{toctree}", ":hidden:", *lines, "", *(f"/{page}" for page in listed), "```", ""]
    )


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """The front page gets the navigation, a README of another folder the pages beside it."""
    if page == FRONT:
        source[0] += navigation(SHELVES.read_text(encoding="utf-8"))
    elif Path(page).name == FRONT:
        beside = [
            other for other in pages() if Path(other).parent == Path(page).parent and other != page
        ]
        source[0] += contents("", beside) if beside else ""


def draw_states(app: Sphinx, page: str, source: list[str]) -> None:
    """A diagram of states becomes a table: to draw it, a browser would need a program of some
    megabytes."""
    source[0] = _DIAGRAM.sub(lambda found: states(found[1]), source[0])


def states(arrows: str) -> str:
    rows = [f"| {before} | {event} | {after} |" for before, after, event in _ARROW.findall(arrows)]
    return "\n".join(["| state | event | next state |", "| --- | --- | --- |", *rows, ""])


def copy_front(app: Sphinx, error: Exception | None) -> None:
    """A browser that is given the folder shows index.html."""
    if error is None and app.builder.format == "html":
        shutil.copyfile(app.outdir / f"{FRONT}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_contents)
    app.connect("source-read", draw_states)
    app.connect("build-finished", copy_front)
