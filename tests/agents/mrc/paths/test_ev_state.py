"""The EV table, every pair of it."""

from __future__ import annotations

import pytest

from agents.mrc.paths import ev_state as s

WANTED: dict[int, tuple[int | None, ...]] = {
    # state: (marked, rotated, lost, proven, denied, allowed); None: cannot happen
    s.GOOD: (s.SKIP, None, s.ASSUMED_BAD, None, s.DENIED, None),
    s.SKIP: (s.SKIP, s.GOOD, s.ASSUMED_BAD, None, s.DENIED, None),
    s.ASSUMED_BAD: (s.ASSUMED_BAD, None, s.ASSUMED_BAD, s.GOOD, s.DENIED, None),
    s.DENIED: (s.DENIED, None, s.DENIED, None, None, s.ASSUMED_BAD),
}


@pytest.mark.parametrize("state", WANTED, ids=lambda v: s.STATE_NAMES[v])
@pytest.mark.parametrize("event", range(6), ids=lambda v: s.EVENT_NAMES[v])
def test_every_pair(state: int, event: int) -> None:
    after = WANTED[state][event]
    if after is None:
        with pytest.raises(
            ValueError, match=f"{s.STATE_NAMES[state]} cannot be {s.EVENT_NAMES[event]}"
        ):
            s.next_state(state, event)
    else:
        assert s.next_state(state, event) == after


def test_denied_ends_by_nothing_but_allow() -> None:
    assert [
        event for (state, event), after in s.TRANSITIONS.items() if state == s.DENIED != after
    ] == [s.ALLOW]
