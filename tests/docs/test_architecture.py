"""docs/why/architecture.md and the linter state the same floors."""

from __future__ import annotations

import re
import tomllib

import pytest

from docs.tools.check import ROOT

PAGE = (ROOT / "docs" / "why" / "architecture.md").read_text()
CONTRACTS = {
    c["id"]: c
    for c in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
}


def floors_of_page(heading: str) -> list[set[str]]:
    """Of the first table after a heading: the modules that the first cell of each row names, from
    the top down."""
    table = re.search(r"\n\|.*?\n(?=\n)", PAGE[PAGE.index(heading) :], re.DOTALL)
    assert table
    first_cells = [row.split("|")[1] for row in table.group().strip().splitlines()[2:]]
    return [
        {
            path.strip("/").removesuffix(".py").replace("/", ".")
            for path in re.findall(r"`([\w./]+)`", cell)
        }
        for cell in first_cells
    ]


@pytest.mark.parametrize(
    ("contract", "heading"),
    [("floors", "## Rooms"), ("scenarios", "Inside `scenarios/`"), ("agents", "Inside `agents/`")],
)
def test_the_page_has_the_floors_of_the_linter(contract: str, heading: str) -> None:
    inside = "".join(f"{room}." for room in CONTRACTS[contract].get("containers", ()))
    layers = [
        {inside + room.strip() for room in layer.split("|")}
        for layer in CONTRACTS[contract]["layers"]
    ]
    assert [floor for floor in floors_of_page(heading) if floor != {"tests"}] == layers


def test_the_page_names_the_sans_io_packages() -> None:
    line = next(line for line in PAGE.splitlines() if "are *sans-IO*" in line)
    named = {path.strip("/").replace("/", ".") for path in re.findall(r"`([\w/]+)`", line)}
    assert named >= set(CONTRACTS["sans-io"]["source_modules"])
