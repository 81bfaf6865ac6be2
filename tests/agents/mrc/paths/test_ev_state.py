"""The EV table, every pair of it."""

from __future__ import annotations

import pytest

from agents.mrc.paths import ev_state as s

WANTED = {
    # state: (marked, rotated, lost, proven, denied, allowed)
    s.GOOD: (s.SKIP, s.GOOD, s.ASSUMED_BAD, s.GOOD, s.DENIED, s.GOOD),
    s.SKIP: (s.SKIP, s.GOOD, s.ASSUMED_BAD, s.SKIP, s.DENIED, s.SKIP),
    s.ASSUMED_BAD: (s.ASSUMED_BAD, s.ASSUMED_BAD, s.ASSUMED_BAD, s.GOOD, s.DENIED, s.ASSUMED_BAD),
    s.DENIED: (s.DENIED, s.DENIED, s.DENIED, s.DENIED, s.DENIED, s.ASSUMED_BAD),
}


@pytest.mark.parametrize("state", WANTED, ids=lambda v: s.STATE_NAMES[v])
@pytest.mark.parametrize("event", range(6), ids=lambda v: s.EVENT_NAMES[v])
def test_every_pair(state: int, event: int) -> None:
    assert s.next_state(state, event) == WANTED[state][event]


def test_denied_ends_by_nothing_but_allow() -> None:
    assert [e for e in range(6) if s.next_state(s.DENIED, e) != s.DENIED] == [s.ALLOW]
