"""The queue of one egress port in virtual time: the rules that the switches' programs follow,
decided and counted without a kernel.

Two classes share the link. Control and trimmed headers go first, but have at most half the rate
while data waits. What is on the wire no longer waits, so it is in no backlog: as a token bucket
lets a frame go when its turn begins.
"""

from __future__ import annotations

from collections import deque
from random import Random

from agents.packets import dscp
from topologies.clos import DATA_HEADERS, Fabric

TRIM_BYTES = DATA_HEADERS + 4
"""What a switch leaves of a trimmed frame: every header, the immediate's included."""
HIGH_CLASSES = frozenset({dscp.CONTROL, dscp.TRIMMED, dscp.TRIMMED_LASTHOP, dscp.RETX_HIGH})
TRIMMABLE = frozenset({dscp.TRIMMABLE, dscp.TRIMMABLE_RETX, dscp.RETX_HIGH})
HIGH_SHARE = 4
"""The high class has a buffer of its own, this part of the data class's [ours]."""


def dscp_of(frame: bytes) -> int:
    """Of the outer header."""
    return (frame[14] << 8 | frame[15]) >> 6 & 0x3F


def is_high(frame: bytes) -> bool:
    """Whether the frame goes before data."""
    return dscp_of(frame) in HIGH_CLASSES


def with_ce(frame: bytes) -> bytes:
    """The frame, marked."""
    return frame[:15] + bytes([frame[15] | dscp.CE << 4]) + frame[16:]


def trimmed(frame: bytes, to: int) -> bytes:
    """The frame's headers under DSCP ``to``; the outer length says what is left, the inner ones
    what was there. ECN stays."""
    kept = frame[:TRIM_BYTES]
    word = int.from_bytes(kept[14:16], "big") & ~(0x3F << 6) | to << 6
    return (
        kept[:14]
        + word.to_bytes(2, "big")
        + kept[16:18]
        + (len(kept) - 54).to_bytes(2, "big")
        + kept[20:]
    )


class Egress:
    """One port. ``switch`` is False for a host's NIC, which only drops at the tail; ``last_hop`` is
    True from T0 to a host."""

    def __init__(
        self, fabric: Fabric, rate: int, switch: bool, last_hop: bool, rng: Random
    ) -> None:
        self.fabric = fabric
        self.rate = rate
        self.switch = switch
        self.last_hop = last_hop
        self.rng = rng
        self.data: deque[bytes] = deque()
        self.high: deque[bytes] = deque()
        self.backlog = 0  # bytes of data waiting
        self.high_backlog = 0
        self.sending = False
        self.debt = 0  # bytes that the high class has sent more than its half while data waited
        self.marked = 0
        self.trimmed = 0
        self.dropped = 0
        self.peak = 0
        self._area = 0  # backlog x time, byte nanoseconds
        self._since = 0

    def offer(self, now: int, frame: bytes) -> bool:
        """Take a frame in, marked or trimmed as its class and the backlog ask; False if it was
        dropped."""
        klass = dscp_of(frame)
        trims = self.switch and self.fabric.trimming and klass in TRIMMABLE
        waiting = self.high_backlog if klass in HIGH_CLASSES else self.backlog
        trims = trims and waiting + len(frame) > self.fabric.trim_bytes(self.last_hop)
        if klass in HIGH_CLASSES and not trims:
            return self._admit_high(frame)
        if trims:
            if not self._admit_high(
                trimmed(frame, dscp.TRIMMED_LASTHOP if self.last_hop else dscp.TRIMMED)
            ):
                return False
            self.trimmed += 1
            return True
        if self.backlog + len(frame) > self.fabric.buffer_bytes:
            self.dropped += 1
            return False
        if self.switch and self._marks(frame, klass):
            frame = with_ce(frame)
            self.marked += 1
        self.data.append(frame)
        self._waiting(now, len(frame))
        return True

    def _admit_high(self, frame: bytes) -> bool:
        if self.high_backlog + len(frame) > max(4096, self.fabric.buffer_bytes // HIGH_SHARE):
            self.dropped += 1
            return False
        self.high.append(frame)
        self.high_backlog += len(frame)
        return True

    def _marks(self, frame: bytes, klass: int) -> bool:
        """A linear ramp, off on the last hop unless the fabric or RoCE asks for it; only what is
        ECT(0) or ECT(1)."""
        if not self.fabric.ecn or (
            self.last_hop and not self.fabric.last_hop_ecn and klass != dscp.ROCE
        ):
            return False
        if frame[15] >> 4 & 3 not in (1, 2):
            return False
        low, high = self.fabric.ecn_bytes
        return self.backlog > low and self.rng.random() * (high - low) < self.backlog - low

    def _waiting(self, now: int, change: int) -> None:
        self._area += self.backlog * (now - self._since)
        self._since = now
        self.backlog += change
        self.peak = max(self.peak, self.backlog)

    def take(self, now: int) -> bytes | None:
        """The frame whose turn it is; None when nothing waits."""
        if self.high and (not self.data or self.debt < self.fabric.frame_bytes):
            frame = self.high.popleft()
            self.high_backlog -= len(frame)
            self.debt = self.debt + len(frame) if self.data else 0
            return frame
        if not self.data:
            return None
        frame = self.data.popleft()
        self._waiting(now, -len(frame))
        self.debt = max(0, self.debt - len(frame))
        return frame

    def flush(self, now: int) -> int:
        """The cable went down: all that waits is gone; returns how many frames."""
        gone = len(self.data) + len(self.high)
        self.data.clear()
        self.high.clear()
        self._waiting(now, -self.backlog)
        self.high_backlog = 0
        return gone

    def mean(self, now: int) -> float:
        """Bytes of data that waited, averaged over the time since 0."""
        return (self._area + self.backlog * (now - self._since)) / max(1, now)

    def serialisation(self, frame: bytes) -> int:
        """Time of the frame on the wire, ns."""
        return len(frame) * 8_000_000_000 // self.rate
