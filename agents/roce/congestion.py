"""How much a queue pair may have in the network, and how fast it may send.

The requester asks and reports here and nowhere else, so that DCQCN (a rate that CNPs cut) can take this one's place.
It never sees a packet.
"""

from __future__ import annotations

from agents.transport import NEVER


class FixedWindow:
    """A window that never changes, and optionally a fixed rate (what NICs offer as a QP's packet pacing).

    ``window`` in bytes of frames; ``rate`` in bits/s, 0 for the port's.
    """

    def __init__(self, window: int, rate: int = 0) -> None:
        self.window: int = window
        self.rate: int = rate
        self.next_send_ns: int = -NEVER
        """No packet before this time."""

    def on_sent(self, now: int, frame_bytes: int) -> None:
        """A data frame of this many bytes left."""
        if self.rate:
            start = self.next_send_ns if self.next_send_ns > now else now
            self.next_send_ns = start + frame_bytes * 8_000_000_000 // self.rate

    def on_ack(self, now: int, frame_bytes: int) -> None:
        """Frames of this many bytes were acknowledged: a fixed window does not care."""

    def on_loss(self, now: int) -> None:
        """The requester goes back because of a NAK or its timer: a fixed window does not care."""
