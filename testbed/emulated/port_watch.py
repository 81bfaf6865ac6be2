"""Judges while a run goes whether the emulated ports keep their rates, and whether the counted
queue agrees with the kernel's own.

**Too fast.** A token bucket of B bytes lets at most rate * t + B bytes pass in any stretch of time
t. The most beyond rate * t in any stretch is found in one pass (Kadane's maximum sum).

**Too slow.** A port must keep its rate only while it had something to send. FIFO order tells: if
less data left between two looks than waited at the first, the queue was never empty. Successive
looks of that kind form a stretch in which the port had to go at its rate. A pause (PFC) ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.clock import WallClock
from testbed.dataplane.counters import Traffic
from testbed.emulated.bringup import MTU_ROOM, burst_bytes
from topologies.clos import Fabric
from topologies.units import BYTE

JUDGED_RTTS = 20
"""A shorter stretch is not judged: 2 % of it are less than half a base RTT, which no figure shows
[ours]."""
ON_THE_CABLE = 4
"""Frames that have left the kernel's queue and are not yet counted at the far end [ours]."""
COMPARE_EVERY = 4
"""One look in so many asks the kernel as well, which takes as long as the look [ours]."""
BUCKETS, CUT = 3, 4
"""HTB has a bucket for each class and one for the port, each may be overdrawn by a frame, and one
more may be half read [ours]."""


@dataclass(frozen=True)
class Look:
    before: int
    after: int
    traffic: Traffic


class PortWatch:
    """``queued`` gives what the kernel says waits of a port's data class, or None."""

    def __init__(
        self,
        fabric: Fabric,
        clock: WallClock,
        read: Callable[[], Traffic],
        queued: Callable[[int], int | None] = lambda port: None,
    ) -> None:
        self.fabric = fabric
        self._clock, self._read, self._queued = clock, read, queued
        ends = [(port, link) for link in fabric.links for port in (link.a, link.b)]
        ends.sort(key=lambda end: end[0].number)
        self._ends = ends
        # bytes per ps
        self.rate = np.array([link.rate for _, link in ends], dtype=np.float64) / BYTE
        self.frame = fabric.frame_bytes + MTU_ROOM
        self.at_switch = np.array([port.node not in fabric.hosts for port, _ in ends])
        count = len(ends)
        self.looks = 0
        self.excess, self._sum = np.zeros(count), np.zeros(count)
        self.busy_ps, self.busy_bytes, self.least = (
            np.zeros(count),
            np.zeros(count),
            np.full(count, np.inf),
        )
        self._stretch, self._busy_since, self._ended = (
            np.zeros(count),
            np.full(count, np.inf),
            np.zeros(count),
        )
        self.compared, self.equal, self.off = (
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.zeros(count),
        )
        self._last: Look | None = None
        self._first: Look | None = None

    def look(self) -> None:
        now = self._look()
        self.looks += 1
        if self._last is None:
            self._first = now
        else:
            self._judge(self._last, now)
        self._last = now
        if self.looks % COMPARE_EVERY == 0:
            self._compare(now)

    def _look(self) -> Look:
        before = self._clock.now()
        traffic = self._read()
        return Look(before, self._clock.now(), traffic)

    def _judge(self, was: Look, now: Look) -> None:
        departed = now.traffic.left - was.traffic.left
        # A stretch that begins at `was` may have begun before that was read: so its time is longer,
        # and its excess smaller.
        self._sum = (
            np.maximum(self._sum, -self.rate * (was.after - was.before))
            + departed
            - self.rate * (now.after - was.after)
        )
        self.excess = np.maximum(self.excess, self._sum)
        data_departed = now.traffic.data_left - was.traffic.data_left
        never_empty = data_departed < was.traffic.waiting - ON_THE_CABLE * self.frame
        never_empty &= now.traffic.paused_ns == was.traffic.paused_ns
        self._close(~never_empty)
        self._busy_since = np.where(
            never_empty & ~np.isfinite(self._busy_since), was.after, self._busy_since
        )
        self._stretch += np.where(never_empty, departed, 0.0)
        self._ended = np.where(never_empty, now.before, self._ended)

    def _close(self, ports: NDArray[np.bool_]) -> None:
        ended = ports & np.isfinite(self._busy_since)
        if not ended.any():
            return
        took = np.where(ended, self._ended - np.where(ended, self._busy_since, 0.0), 0.0)
        expected = self.rate * took
        judged = ended & (took >= JUDGED_RTTS * self.fabric.base_rtt_ps)
        self.busy_ps += np.where(judged, took, 0.0)
        self.busy_bytes += np.where(judged, self._stretch, 0.0)
        self.least = np.where(
            judged, np.minimum(self.least, self._stretch / np.maximum(expected, 1.0)), self.least
        )
        self._busy_since, self._stretch = (
            np.where(ended, np.inf, self._busy_since),
            np.where(ended, 0.0, self._stretch),
        )

    def _compare(self, now: Look) -> None:
        waiting = np.where(self.at_switch, now.traffic.waiting, 0.0)
        port = int(waiting.argmax())
        if waiting[port] < self.frame:
            return
        a = self._read()
        reported = self._queued(port)
        b = self._read()
        if reported is None:
            return
        low = a.data_admitted[port] - b.data_left[port] - b.data_flushed[port]
        high = b.data_admitted[port] - a.data_left[port] - a.data_flushed[port]
        self.compared[port] += 1
        self.equal[port] += low == high == reported
        self.off[port] = max(
            self.off[port], low - ON_THE_CABLE * self.frame - reported, reported - high
        )

    def result(self) -> dict[str, object]:
        self._close(np.ones(len(self._ends), dtype=bool))
        rows = []
        carried = (
            self._last.traffic.left - self._first.traffic.left
            if self._last and self._first
            else np.zeros(len(self._ends))
        )
        for number, (port, link) in enumerate(self._ends):
            if not carried[number]:
                continue
            least = float(self.least[number])
            rows.append(
                {
                    "port": port.name,
                    "link": link.name,
                    "rate_bps": link.rate,
                    "bytes": int(carried[number]),
                    "excess_bytes": round(float(self.excess[number])),
                    "allowed_bytes": allowed_bytes(link.rate, self.frame, self._clock),
                    "busy_ps": int(self.busy_ps[number]),
                    "busy_bytes": int(self.busy_bytes[number]),
                    "busy_share": round(least, 4) if np.isfinite(least) else None,
                    "compared": int(self.compared[number]),
                    "equal": int(self.equal[number]),
                    "off_bytes": int(self.off[number]),
                }
            )
        return {"looks": self.looks, "frame_bytes": self.frame, "ports": rows}


def allowed_bytes(rate: int, frame: int, clock: WallClock) -> int:
    """Compute by how much a port may exceed its ``rate`` (bits/s) in any stretch of time."""
    return BUCKETS * burst_bytes(rate, clock) + CUT * frame
