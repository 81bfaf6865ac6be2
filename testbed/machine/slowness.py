"""Measures how much slower this machine is than the one for which limits of time are written, and
adapts the limits.

It is measured when first asked for, in some hundredths of a second: limits are needed before any
calibration, and under the load of now.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache

from testbed.errors import UserError

ROUNDS, LOOPS = 3, 100_000
USUAL_S = 0.004
"""A round on one core of an ordinary machine with two [measured: 0.0027 s on a quick day, three
times that on a slow one]."""
MOST = 50.0
"""On a slower machine something is broken [ours]."""
PATIENCE = "MRCBED_PATIENCE"


@lru_cache(maxsize=1)
def slowness() -> float:
    asked = os.environ.get(PATIENCE) or "1"
    try:
        if not 1 <= (least := float(asked)) <= MOST:
            raise ValueError
    except ValueError:
        raise UserError(f"{PATIENCE}={asked}: give a factor of 1 to {MOST:g}, or drop it") from None
    return min(MOST, max(least, sorted(_round_s() for _ in range(ROUNDS))[ROUNDS // 2] / USUAL_S))


def patient(seconds: float) -> float:
    return seconds * slowness()


def remark() -> str:
    return (
        (
            f"; this machine is {slowness():.0f} times slower than an ordinary one, which was "
            "allowed for"
        )
        if slowness() >= 2
        else ""
    )


def _round_s() -> float:
    began, total = time.perf_counter(), 0
    for i in range(LOOPS):
        total += i & 7
    return time.perf_counter() - began
