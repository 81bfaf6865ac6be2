"""A program's completion queue: a ring, what the program has armed, and the channel that tells it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from agents.verbs import layout
from agents.verbs.rings import CompletionRing


class Channel:
    """A completion channel: our end of its socket. What does not fit there is dropped: a program that never reads is not waited for."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.cqs = 0

    def tell(self, handle: int) -> None:
        with suppress(OSError):
            self.sock.send(layout.CHANNEL_EVENT.pack(handle), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


class CompletionQueue:
    """``overflowed(handle)`` is called once, when an entry finds no room."""

    def __init__(self, handle: int, ring: CompletionRing, channel: Channel | None, overflowed: Callable[[int], None]) -> None:
        self.handle = handle
        self.ring = ring
        self.channel = channel
        self.overflowed = overflowed
        self.queue_pairs = 0
        self.failed = False

    def add(self, now: int, *fields: int) -> None:
        """Add an entry, fields as layout.CQE has them without the time ``now`` (ps), and send the event that is due."""
        if self.failed:
            return
        if not self.ring.room():
            self.failed = True
            self.ring.fail()
            self.overflowed(self.handle)
            return
        self.ring.put((*fields, max(now, 0)))
        armed = self.ring.armed()
        # A solicited event bit is not carried [ours]: a receive counts as solicited, as it is for all users known to us.
        if armed and self.channel is not None and (armed == 1 or fields[1] or not fields[10]):
            self.ring.disarm()
            self.channel.tell(self.handle)
