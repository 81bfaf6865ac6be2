"""The documents' pages of keys are those of the parser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.tools.keys import PAGES, every_fault, every_key, every_scenario, path_of
from scenarios.schema.keys import FILES, SCENARIO, keys
from scenarios.schema.result_keys import FILES as RESULTS
from scenarios.schema.result_keys import result_keys, results_schema
from testbed.faults.kinds import KINDS
from testbed.view import fold, run


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_as_generated(page: str) -> None:
    assert path_of(page).read_text(encoding="utf-8") == PAGES[page](), (
        "write it anew: python -m docs.tools.keys"
    )


def test_every_key_of_results_says_what_it_means() -> None:
    keys = result_keys()
    assert len(keys) > 300 and all(key.meaning and not key.meaning.endswith(".") for key in keys)
    assert {key.unit for key in keys if key.name.endswith("_ns")} == {"ns"}
    for file in RESULTS:
        properties = {
            key: of
            for part in results_schema(file)["$defs"].values()
            for key, of in part["properties"].items()
        }
        assert all(
            of.get("description")
            for key, of in properties.items()
            if (file, key) != ("log", "kind")
        )


def test_the_pages_have_every_row() -> None:
    heads = [line for line in every_key(SCENARIO).splitlines() if line.startswith("## ")]
    assert heads[:2] == ["## The file", "## `workload`"] and len(set(heads)) == len(heads)
    assert all(f"| `{key.dotted}`" in every_key(key.file) for file in FILES for key in keys(file))
    assert all(
        f"| `{name}` |" in every_fault() and kind.doc in every_fault()
        for name, kind in KINDS.items()
    )
    assert "| `demo` | A T0-T1 cable dies" in every_scenario()


def test_every_figure_table_command_and_frame_says_what_it_is() -> None:
    assert all("|  |" not in PAGES[page]() for page in PAGES)
    sources = "".join(
        Path(module.__file__ or "").read_text(encoding="utf-8") for module in (fold, run)
    )
    assert set(re.findall(r'"f": "(\w+)"', sources)) == fold.FRAMES.keys()
