"""A program's completion queue: a ring, what the program has armed, and the channel that tells
it."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from agents.verbs import layout
from agents.verbs.rings import CompletionRing


class Channel:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.cqs = 0

    def tell(self, handle: int) -> None:
        with suppress(OSError):
            self.sock.send(
                layout.CHANNEL_EVENT.pack(handle), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            )


class CompletionQueue:
    """``overflowed(handle)`` is called once, when an entry finds no room."""

    def __init__(
        self,
        handle: int,
        ring: CompletionRing,
        channel: Channel | None,
        overflowed: Callable[[int], None],
    ) -> None:
        self.handle = handle
        self.ring = ring
        self.channel = channel
        self.overflowed = overflowed
        self.queue_pairs = 0
        self.failed = False
        # held back by a fault: until when, ps, and the entry
        self.late: deque[tuple[int, tuple[int, ...]]] = deque()
        self.late_until = 0

    def delay(self, until: int) -> None:
        self.late_until = max(self.late_until, until)

    def deliver(self, now: int) -> None:
        while self.late and self.late[0][0] <= now:
            self._add(now, self.late.popleft()[1])

    def deliver_all(self, now: int) -> None:
        self.late_until = now
        while self.late:
            self._add(now, self.late.popleft()[1])

    def forget(self, qpn: int) -> None:
        if self.late:
            self.late = deque([entry for entry in self.late if entry[1][6] != qpn])

    def add(self, now: int, *fields: int) -> None:
        if (self.late or now < self.late_until) and len(self.late) < self.ring.entries:
            self.late.append((self.late_until, fields))
        else:
            self.deliver_all(now)  # also where more are held back than it has room for
            self._add(now, fields)

    def _add(self, now: int, fields: tuple[int, ...]) -> None:
        if self.failed:
            return
        if not self.ring.room():
            self.failed = True
            self.ring.fail()
            self.overflowed(self.handle)
            return
        self.ring.put((*fields, max(now, 0)))
        armed = self.ring.armed()
        # A solicited event bit is not carried [ours]: a receive counts as solicited, as it is for
        # all users known to us.
        if armed and self.channel is not None and (armed == 1 or fields[1] or not fields[10]):
            self.ring.disarm()
            self.channel.tell(self.handle)
