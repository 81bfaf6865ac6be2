"""``make docs``: the pages build without a warning, every page is in the navigation, and no page
loads anything from elsewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs.tools.check import ROOT

NEEDED = ("sphinx", "furo", "myst_parser")
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED),
    reason="Sphinx is not installed: make docs installs it",
)
REMOTE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
LOADING = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "link": ("href",),
    "use": ("href", "xlink:href"),
    "image": ("href", "xlink:href"),
    "input": ("src",),
    "track": ("src",),
    "base": ("href",),
    "form": ("action",),
}
"""Attributes that make a browser load something, or send something; an anchor does neither until a
reader follows it."""
IN_STYLES = re.compile(
    r"url\(\s*[\"']?\s*(?:https?:)?//|@import\s+[\"']?\s*(?:https?:)?//", re.IGNORECASE
)


class Loads(HTMLParser):
    """Collects the remote addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.remote: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (
                (name in LOADING.get(tag, ()) and REMOTE.match(value))
                or (name == "style" and IN_STYLES.search(value))
            ):
                self.remote.append(value)
            if (
                tag == "meta"
                and value
                and name == "content"
                and re.match(r"\d+;\s*url=", value, re.IGNORECASE)
            ):
                self.remote.append(value)


def loads(text: str) -> list[str]:
    parser = Loads()
    parser.feed(text)
    styles = re.findall(r"<style.*?</style>", text, re.DOTALL | re.IGNORECASE)
    return parser.remote + [style for style in styles if IN_STYLES.search(style)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    line = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-c",
        "docs",
        "-d",
        str(out / "doctrees"),
        ".",
    ]
    done = subprocess.run(
        [*line, str(out / "site")], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return out / "site"


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.org/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/css">',
        '<img src="HTTP://example.org/a.png">',
        '<p style="background: url(https://example.org/a.png)">',
        "<style>@import 'https://example.org/x.css';</style>",
        '<meta http-equiv="refresh" content="0; url=https://example.org/">',
    ],
)
def test_what_loads_from_elsewhere_is_found(text: str) -> None:
    assert len(loads(text)) == 1


def test_a_link_that_a_reader_may_follow_is_no_load() -> None:
    assert (
        loads(
            '<a href="https://example.org/">there</a><img src="../a.png"><script '
            'src="x.js"></script>'
        )
        == []
    )


def test_no_page_and_no_style_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    assert {
        str(page.relative_to(site)): found for page in pages if (found := loads(page.read_text()))
    } == {}
    styles = list(site.rglob("*.css"))
    assert styles and not [style.name for style in styles if IN_STYLES.search(style.read_text())]
    scripts = [script for script in site.rglob("*.js") if script.name != "searchindex.js"]
    code = {
        s.name: re.findall(r"(?:fetch|import|open)\(\s*[\"'`]\s*(?:https?:)?//", s.read_text())
        for s in scripts
    }
    assert code and not any(code.values())


def test_every_page_and_every_shelf_is_in_the_navigation(site: Path) -> None:
    front = (site / "index.html").read_text()
    assert front == (site / "README.html").read_text()
    shelves = re.findall(r"^## (.+)$", (ROOT / "docs" / "README.md").read_text(), re.MULTILINE)
    captions = re.findall(r'class="caption"[^>]*><span class="caption-text">(.+?)</span>', front)
    assert len(shelves) == 4 and captions == [*shelves, "More"]
    tree = front[front.index('class="sidebar-tree"') : front.index("</aside>")]
    reachable = {target.partition("#")[0] for target in re.findall(r'href="([^"]+)"', tree)}
    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    assert (
        built - reachable
        == {"index.html", "README.html", "genindex.html", "search.html"} - reachable
    )


def test_diagrams_of_states_are_tables(site: Path) -> None:
    page = (site / "docs" / "why" / "protocol.html").read_text()
    assert "stateDiagram" not in page
    assert re.search(
        r"<td><p>GOOD</p></td>\s*<td><p>lost</p></td>\s*<td><p>ASSUMED_BAD</p></td>", page
    )
