"""The documents' tables of keys are those of the parser."""

from __future__ import annotations

import pytest

from tests.docs.keys import PAGES, table, with_table


@pytest.mark.parametrize("file", PAGES)
def test_the_page_has_the_table(file: str) -> None:
    page = PAGES[file].read_text()
    assert with_table(page, file) == page, "write it anew: python -m tests.docs.keys"


def test_a_page_without_its_table_is_found() -> None:
    page = PAGES["fabric"].read_text()
    assert "hosts under a T0" in table("fabric")
    assert with_table(page.replace("hosts under a T0", "hosts"), "fabric") == page
    with pytest.raises(ValueError, match="begin"):
        with_table(page.replace("begin -->", "-->"), "fabric")
