"""The documents' pages of keys are those of the parser."""

from __future__ import annotations

import pytest

from scenarios.schema.keys import keys
from scenarios.schema.result_keys import FILES, reference, result_keys, results_schema
from tests.docs.keys import PAGES, RESULTS, page, row


@pytest.mark.parametrize("file", PAGES)
def test_the_page_is_made_of_the_keys(file: str) -> None:
    assert PAGES[file].read_text(encoding="utf-8") == page(file), "write it anew: python -m tests.docs.keys"
    assert all(row(key) in page(file) for key in keys(file))


def test_the_page_of_results_is_made_of_their_structs() -> None:
    assert RESULTS.read_text(encoding="utf-8") == reference(), "write it anew: python -m tests.docs.keys"


def test_every_key_of_results_says_what_it_means() -> None:
    keys = result_keys()
    assert len(keys) > 300 and all(key.meaning and not key.meaning.endswith(".") for key in keys)
    assert {key.unit for key in keys if key.name.endswith("_ns")} == {"ns"}
    for file in FILES:
        properties = {key: of for part in results_schema(file)["$defs"].values() for key, of in part["properties"].items()}
        assert all(of.get("description") for key, of in properties.items() if (file, key) != ("log", "kind"))


def test_a_table_of_a_file_has_one_section() -> None:
    heads = [line for line in page("scenario").splitlines() if line.startswith("## ")]
    assert heads[:2] == ["## The file", "## `workload`"] and len(set(heads)) == len(heads)
    assert "hosts under a T0" in page("fabric")
