"""Clocks of the network's time: ps since a run began, however much real time that takes
(docs/why/time.md).

:class:`WallClock` alone joins network time and this machine's: it runs ``dilation`` times slower.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from topologies.units import NS


class Heard(Protocol):
    def fileno(self) -> int: ...


class Clock(Protocol):
    """Time for a program that steers agents from outside: it reads it, lets it pass, and waits
    until an agent says something."""

    virtual: bool
    """Whether this time is independent of the machine's: then the machine's load does not
    matter."""

    def now(self) -> int: ...

    def sleep(self, length: int) -> None: ...

    def patience(self, seconds: float) -> int:
        """Convert seconds of waiting for a machine to time: a virtual clock's machine is never
        late, and it takes any."""

    def waiter(
        self, agents: Sequence[Any]
    ) -> AbstractContextManager[Callable[[int], Iterable[int]]]:
        """Make a function that waits until an agent has sent something, at most so much time. It
        gives, in order, the places of those that may have sent something or have ended; valid
        inside the ``with``."""


class WallClock:
    """A clock that follows this machine's. ``dilation``: seconds of this machine per second of the
    network. ``origin``: where this machine's monotonic clock was at 0, ns."""

    virtual = False

    def __init__(self, dilation: float = 1.0, origin: int | None = None) -> None:
        self.dilation, self.origin = dilation, time.monotonic_ns() if origin is None else origin
        self._per_ns = NS / dilation

    def to_dict(self) -> dict[str, float]:
        """Return the arguments that make the same clock in another process of this machine."""
        return {"dilation": self.dilation, "origin": self.origin}

    def now(self) -> int:
        return int((time.monotonic_ns() - self.origin) * self._per_ns)

    def at(self, wall_ns: int) -> int:
        """Convert a reading of this machine's monotonic clock, ns, to time."""
        return int((wall_ns - self.origin) * self._per_ns)

    def span(self, wall_ns: float) -> int:
        """Convert ns of this machine's clock to the time that passes meanwhile."""
        return int(wall_ns * self._per_ns)

    def wall_ns(self, length: int) -> int:
        """Convert a length of time to ns of this machine's clock."""
        return int(length / self._per_ns)

    def wall_s(self, length: int) -> float:
        """Convert a length of time to seconds of this machine's clock."""
        return length / self._per_ns / 1e9

    def until(self, when: int, most: float = 1.0) -> float:
        """Return the seconds of this machine from now to a time, from 0 to ``most``."""
        return min(max(self.wall_s(when - self.now()), 0.0), most)

    def patience(self, seconds: float) -> int:
        return self.span(seconds * 1e9)

    def sleep(self, length: int) -> None:
        time.sleep(self.wall_s(length))

    @contextmanager
    def waiter(self, agents: Sequence[Heard]) -> Iterator[Callable[[int], Iterable[int]]]:
        with selectors.DefaultSelector() as selector:
            for agent in agents:
                selector.register(agent.fileno(), selectors.EVENT_READ)

            def wait(length: int) -> Iterable[int]:
                selector.select(self.wall_s(length))
                # all of them: a call's answer may have brought others' notes along
                return range(len(agents))

            yield wait


def run_until_completion(device: Any, timeout: int, clock: WallClock) -> list[Any]:
    end = clock.now() + timeout
    while True:
        device.turn(end)
        completions: list[Any] = device.engine.completions()
        if completions or clock.now() >= end:
            return completions
