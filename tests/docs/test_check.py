"""The check finds what it is there for, on pages made for it, and finds nothing wrong in the pages
that ship."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.tools.check import ROOT, Tree, no_commands, pages, troubles

TREE = Tree(ROOT)


def found(folder: Path, text: str) -> list[str]:
    page = folder / "page.md"
    page.write_text(text)
    return [line.partition(": ")[2] for line in troubles(page, TREE)]


def test_the_pages_that_ship_name_only_what_exists() -> None:
    assert [line for page in pages(ROOT) for line in troubles(page, TREE)] == []


def test_the_source_names_only_commands_that_exist() -> None:
    files = [
        name
        for name in TREE.files
        if name.endswith((".py", ".j2", ".js", ".toml", ".yml", ".sh", "Makefile", "Vagrantfile"))
    ]
    assert len(files) > 900
    texts = {
        name: (ROOT / name).read_text() for name in files if name != "tests/docs/test_check.py"
    }
    assert [
        f"{name}: {match[0]}" for name, text in texts.items() for match in no_commands(text)
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "[gone](gone.md)",
        "[no such heading](page.md#gone)\n# Here",
        "[no such heading](#gone)",
        "![no figure](gone.png)",
        "in `agents/mrc/gone.py`",
        "in agents/gone/ too",
        "see `testbed.world.Gone`",
        "see `scenarios.runner`",
        "```\npython -m testbed.gone\n```",
        "`gone.py` is the file",
        "`test_what_is_not_there` holds it",
        "`mrcbed plott DIR` draws",
        "give a directory that mrcbed plot wrote",
        "```\n$ sudo .venv/bin/mrcbed fabric plot\n```",
    ],
)
def test_what_does_not_exist_is_found(tmp_path: Path, text: str) -> None:
    assert len(found(tmp_path, text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "# A heading, `code` and (more)\n[there](#a-heading-code-and-more)",
        "# Twice\n# Twice\n[the second](page.md#twice-1)",
        "[elsewhere](https://example.org/gone) [mail](mailto:a@example.org)",
        (
            "`agents/mrc/endpoint.py`, `agents/mrc/`, `testbed.world.World`, `clos.py`, "
            "`results/<run>/`, `agents.parquet`"
        ),
        (
            "`mrcbed results plot DIR` draws what mrcbed run wrote, and mrcbed itself is here; "
            "`mrcbed fabric --help`"
        ),
        "`code with [brackets](gone.md)`, and\n```\n[fenced](gone.md)\n```",
    ],
)
def test_what_exists_passes(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


def test_the_readme_stays_short() -> None:
    """Its tables aside, which are generated."""
    text = (ROOT / "README.md").read_text()
    assert len(re.sub(r"<!-- table: .*?<!-- end -->", "", text, flags=re.DOTALL).split()) < 820
