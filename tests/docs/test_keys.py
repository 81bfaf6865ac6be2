"""The documents' tables of keys are those of the parser."""

from __future__ import annotations

import pytest

from scenarios.schema.result_keys import FILES, reference, result_keys, results_schema
from tests.docs.keys import PAGES, RESULTS, table, with_table


@pytest.mark.parametrize("file", PAGES)
def test_the_page_has_the_table(file: str) -> None:
    page = PAGES[file].read_text()
    assert with_table(page, file) == page, "write it anew: python -m tests.docs.keys"


def test_the_page_of_results_is_made_of_their_structs() -> None:
    assert RESULTS.read_text(encoding="utf-8") == reference(), "write it anew: python -m tests.docs.keys"


def test_every_key_of_results_says_what_it_means() -> None:
    keys = result_keys()
    assert len(keys) > 300 and all(key.meaning and not key.meaning.endswith(".") for key in keys)
    assert {key.unit for key in keys if key.name.endswith("_ns")} == {"ns"}
    for file in FILES:
        properties = {key: of for part in results_schema(file)["$defs"].values() for key, of in part["properties"].items()}
        assert all(of.get("description") for key, of in properties.items() if (file, key) != ("log", "kind"))


def test_a_page_without_its_table_is_found() -> None:
    page = PAGES["fabric"].read_text()
    assert "hosts under a T0" in table("fabric")
    assert with_table(page.replace("hosts under a T0", "hosts"), "fabric") == page
    with pytest.raises(ValueError, match="begin"):
        with_table(page.replace("begin -->", "-->"), "fabric")
