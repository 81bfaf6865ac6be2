"""Finds how far another machine's monotonic clock is from ours, and how sure that is
(docs/how/machines.md).

Of many answers the quickest says most (the minimum filter of NTP, RFC 5905, section 10). The other
clock was read somewhere between question and answer, so the middle is wrong by half of the round
trip at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PINGS = 100
"""Questions for one estimate take some 20 ms on one machine, some seconds over a link of 20 ms
[ours]."""


class Reading(NamedTuple):
    before: int
    theirs: int
    after: int


class Offset(NamedTuple):
    """Adding ``wall_ns`` to a machine's clock gives ours, with an error of at most
    ``wall_unsure_ns``."""

    wall_ns: int
    wall_unsure_ns: int


def offset(readings: Iterable[Reading]) -> Offset:
    best = min(readings, key=lambda reading: reading.after - reading.before)
    return Offset(
        (best.before + best.after) // 2 - best.theirs, (best.after - best.before + 1) // 2
    )


def wall_unsure_ns(begin: Offset, end: Offset) -> int:
    """Bound how wrong the other machine's times are between two estimates of the shifted clock,
    which should differ from ours by 0: any difference is drift, or the first shift's error."""
    return max(abs(one.wall_ns) + one.wall_unsure_ns for one in (begin, end))
