"""``python -m tests.suite.half SECONDS``: take half of each core for so long; the suite must pass
beside it (docs/how/testing.md)."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time

PERIOD_S = 0.1
"""Half of each is work [ours]: longer than a time slice, shorter than what a person waits for."""


def take_half(core: int, seconds: float) -> None:
    """Of one core; ends by itself."""
    os.sched_setaffinity(0, {core})
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        while time.monotonic() < now + PERIOD_S / 2:
            pass
        time.sleep(PERIOD_S / 2)


if __name__ == "__main__":
    halves = [
        multiprocessing.Process(target=take_half, args=(core, float(sys.argv[1])))
        for core in sorted(os.sched_getaffinity(0))
    ]
    for half in halves:
        half.start()
    for half in halves:
        half.join()
