"""Holds connections to a server until it is known who connected: a bounded number, each for a
bounded time.

Any user of the machine can open connections by the thousand. Whoever holds one open, by half a
request or by not reading the answer, loses it to those who come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

MOST = 64
REQUEST_S = 5.0
"""A request and its answer take milliseconds [ours]."""
BACKLOG = 32
"""Connections that the kernel holds until they are accepted [ours]. All of them come before a new
one. With one user connecting without pause, a client got its answer after 10 ms at the median with
32, 280 ms with 128, and with 1024 not within a second."""
MOST_IN_TURNS = 8 * BACKLOG
"""A server may accept :data:`BACKLOG` connections in a turn: each is then read before as many push
it out [ours]."""

C = TypeVar("C")


class Crowd(Generic[C]):
    """``later(seconds, act, connection)`` calls ``act(connection)`` then, unless what it returns is
    cancelled. ``close`` ends a connection."""

    def __init__(
        self,
        later: Callable[..., Any],
        close: Callable[[C], None],
        seconds: float = REQUEST_S,
        most: int = MOST,
    ) -> None:
        self._later, self._end, self._seconds, self._most = later, close, seconds, most
        self._timers: dict[C, Any] = {}  # oldest first

    def join(self, connection: C) -> None:
        while len(self._timers) >= self._most:
            self._close(next(iter(self._timers)))
        self._timers[connection] = self._later(self._seconds, self._close, connection)

    def leave(self, connection: C) -> None:
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _close(self, connection: C) -> None:
        self.leave(connection)
        self._end(connection)
