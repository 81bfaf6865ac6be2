"""Random fault schedules on the simulated 16 hosts, over two processes. Needs neither root nor a
fabric.

MRCBED_SOAK_SCHEDULES: how many (default 1000). MRCBED_SOAK_SEED: number of the first (default 1).
"""

from __future__ import annotations

import os
import time

import pytest

from scenarios.sets.many_schedules import describe, figures, repeat_command, run_many

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]


def test_every_schedule_ends_well() -> None:
    count, first = (
        int(os.environ.get("MRCBED_SOAK_SCHEDULES", "1000")),
        int(os.environ.get("MRCBED_SOAK_SEED", "1")),
    )
    begun = time.monotonic()
    outcomes = run_many(range(first, first + count), 2)
    print(describe(figures(outcomes, time.monotonic() - begun, 2)))
    assert [f"{o.broken}; again: {repeat_command(o)}" for o in outcomes if o.broken] == []
