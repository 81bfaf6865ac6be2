"""The offset between two machines' clocks, from questions that take a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from testbed.machines.clocks import Offset, Reading, offset, wall_unsure_ns

WAYS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=20)


@given(st.integers(-(10**15), 10**15), WAYS)
def test_the_truth_lies_within_the_stated_bound(true: int, ways: list[tuple[int, int]]) -> None:
    """However long questions and answers take on their ways, and however unequal the ways are."""
    now, readings = 10**12, []
    for there, back in ways:
        readings.append(Reading(now, now + there - true, now + there + back))
        now += there + back + 1000
    found = offset(readings)
    assert abs(found.wall_ns - true) <= found.wall_unsure_ns
    assert found.wall_unsure_ns == min((there + back + 1) // 2 for there, back in ways)


def test_what_clocks_drifted_apart_is_part_of_the_bound() -> None:
    assert wall_unsure_ns(Offset(100, 5000), Offset(-30_000, 4000)) == 34_000
    assert wall_unsure_ns(Offset(-9000, 1000), Offset(0, 500)) == 10_000
