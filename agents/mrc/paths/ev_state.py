"""Defines the life of one entropy value as a table.

Theory of operation. An EV names one path. A sender knows a path only by what becomes of the packets
it put there. So every transition below is caused by something the sender observed, or by an
operator:

1. Only GOOD EVs carry data.
2. SKIP is congestion: the path works and is busy. The rotation passes it over once, and it is GOOD
   again.
3. ASSUMED_BAD is loss: a packet vanished without having been trimmed, so the path is taken for dead
   at once. No data goes there until several probes in a row came back clean; each flap doubles how
   many. One loss outranks any single success.
4. DENIED is set by a person or controller, and only they end it.
5. Success on a path that is not ASSUMED_BAD is no event. Marks and losses of packets that were
   under way when the path left use still come, and change nothing.

The states and the first three rules are the specification's; the counts are ours. A pair that is
not in the table cannot happen, and raises ValueError. docs/why/protocol.md draws it.
"""

from __future__ import annotations

from typing import Final

GOOD: Final = 0
SKIP: Final = 1
ASSUMED_BAD: Final = 2
DENIED: Final = 3
STATE_NAMES: Final = ("GOOD", "SKIP", "ASSUMED_BAD", "DENIED")

MARKED: Final = 0  # a SACK said SKIP_ONCE
ROTATED: Final = 1  # the rotation came by
LOST: Final = 2  # an untrimmed loss, or the receiver said ALWAYS_SKIP
PROVEN: Final = 3  # enough clean probe answers in a row, or a verdict of loss undone
DENY: Final = 4
ALLOW: Final = 5  # a denied path must prove itself before use
EVENT_NAMES: Final = ("marked", "rotated", "lost", "proven", "denied", "allowed")

TRANSITIONS: Final[dict[tuple[int, int], int]] = {
    (GOOD, MARKED): SKIP,
    (GOOD, LOST): ASSUMED_BAD,
    (GOOD, DENY): DENIED,
    (SKIP, MARKED): SKIP,
    (SKIP, ROTATED): GOOD,
    (SKIP, LOST): ASSUMED_BAD,
    (SKIP, DENY): DENIED,
    (ASSUMED_BAD, MARKED): ASSUMED_BAD,
    (ASSUMED_BAD, LOST): ASSUMED_BAD,
    (ASSUMED_BAD, PROVEN): GOOD,
    (ASSUMED_BAD, DENY): DENIED,
    (DENIED, MARKED): DENIED,
    (DENIED, LOST): DENIED,
    (DENIED, ALLOW): ASSUMED_BAD,
}


def next_state(state: int, event: int) -> int:
    after = TRANSITIONS.get((state, event))
    if after is None:
        raise ValueError(f"an EV that is {STATE_NAMES[state]} cannot be {EVENT_NAMES[event]}")
    return after
