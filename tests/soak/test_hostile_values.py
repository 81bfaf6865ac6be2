"""Every bad value at every place of a scenario, and thousands of wrong changes of shipped ones.
Needs neither root nor a fabric."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.properties.profiles import LONG
from tests.scenarios.schema.test_complaints import CHANGES, told
from tests.scenarios.schema.test_hostile_values import cases, tried

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]


def test_a_scenario_with_any_value_changed_is_refused_in_one_line_or_read() -> None:
    for case in cases():
        tried(*case)


@LONG
@given(*CHANGES)
def test_whatever_is_wrong_it_is_told_and_only_then(
    name: str, changes: list[tuple[str, str]]
) -> None:
    told(name, changes)
