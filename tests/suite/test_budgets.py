"""Budgets: what counts as over, and a table that fits the tree."""

from __future__ import annotations

import tomllib

import pytest

from tests.suite.budgets import SLACK, USUAL_S, Costs, budgets, table
from tests.suite.quick import ROOT


def test_over_is_what_takes_more_than_its_budget_on_the_tables_machine() -> None:
    costs = Costs()
    costs.add("dear.py::test_a[1]", 20.0, 1.0, reasoned=True)
    costs.add("dear.py::test_a[2]", 16.0, 2.0, reasoned=True)  # 8 there
    costs.add("grown.py::test_b", SLACK * USUAL_S * 2 + 0.2, 2.0, reasoned=False)
    costs.add("slow machine.py::test_c", SLACK * USUAL_S * 3, 3.1, reasoned=False)
    costs.add("quick.py::test_d", 0.1, 1.0, reasoned=False)
    assert costs.over({"dear.py": 20}) == ["grown.py"] and costs.over({"dear.py": 2}) == [
        "dear.py",
        "grown.py",
    ]
    assert costs.unexplained() == ["grown.py::test_b", "slow machine.py::test_c"]
    lines = list(costs.lines({"dear.py": 20}))
    assert lines[1] == "   28.0 of  20  dear.py" and lines[-3].startswith(
        "over its budget: grown.py"
    )
    assert not list(Costs().lines({}))


def test_the_table_is_read_as_it_is_written_and_keeps_what_is_dear() -> None:
    made = table({"tests/a.py": 7.6, "tests/b.py": USUAL_S, "tests/c.py": 31.2})
    assert tomllib.loads(made) == {"tests/c.py": 31, "tests/a.py": 8} and list(
        tomllib.loads(made)
    ) == ["tests/c.py", "tests/a.py"]


@pytest.mark.parametrize("file", budgets())
def test_a_file_of_the_table_is_there(file: str) -> None:
    assert (ROOT / file).is_file()
