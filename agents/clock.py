"""Time for whoever steers agents from outside: to read it, to let it pass, to wait until an agent says something.

Two kinds: the machine's own, here, and that of a simulated fabric (testbed/simulated/cluster.py), where time passes because somebody waits.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol


class Heard(Protocol):
    """The part of an agent that is used here: selectors can wait on it."""

    def fileno(self) -> int: ...


class Clock(Protocol):
    """All times monotonic ns."""

    virtual: bool
    """Whether this time is independent of the machine's: then the machine's load does not matter."""

    def now(self) -> int:
        """The present time."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def waiter(self, agents: Sequence[Any]) -> AbstractContextManager[Callable[[float], None]]:
        """A function that waits until one of the agents has sent something, at most so many seconds; valid inside the ``with``."""


def run_until_completion(device: Any, timeout: float) -> list[Any]:
    """Turn a device's loop until its engine has completions or ``timeout`` seconds went by; the completions."""
    end = time.monotonic_ns() + int(timeout * 1e9)
    while True:
        device.turn(end)
        completions: list[Any] = device.engine.completions()
        if completions or time.monotonic_ns() >= end:
            return completions


class RealClock:
    """The machine's."""

    virtual = False

    def now(self) -> int:
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @contextmanager
    def waiter(self, agents: Sequence[Heard]) -> Iterator[Callable[[float], None]]:
        with selectors.DefaultSelector() as selector:
            for agent in agents:
                selector.register(agent.fileno(), selectors.EVENT_READ)

            def wait(seconds: float) -> None:
                selector.select(seconds)

            yield wait


REAL: Clock = RealClock()
