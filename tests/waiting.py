"""Waiting for other processes and the kernel: the one place of the rootless tests that reads a
clock.

A test waits for a condition, never for a time: how long that takes on a slow machine is no fault,
so only what never comes fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from testbed.machine.slowness import patient

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: object = "", seconds: float = 60, pause: float = 0.02
) -> T:
    """The first true value of ``condition``; fails with ``what`` (a callable is asked) if none
    comes. ``seconds`` are a quick machine's."""
    end = time.monotonic() + patient(seconds)
    while not (value := condition()):
        assert time.monotonic() < end, (
            what() if callable(what) else what or f"not within {seconds} s"
        )
        time.sleep(pause)
    return value


def holds(condition: Callable[[], object], seconds: float) -> bool:
    """Whether ``condition`` stays true for so long: for what must *not* happen, where nothing would
    tell that it never will."""
    end = time.monotonic() + seconds
    while condition():
        if time.monotonic() >= end:
            return True
        time.sleep(0.01)
    return False
