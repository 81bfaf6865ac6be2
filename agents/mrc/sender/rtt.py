"""Tracks round-trip times of one QP, plane by plane: what "recent" means when a packet is called overdue or lost. Sans-IO."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from agents.transport import LONG_AGO


class RttTracker:
    """The smoothed RTT, and the largest and smallest of each plane over the last one to two windows. All in ps."""

    def __init__(self, base_rtt: int, planes: int) -> None:
        self.base_rtt = base_rtt
        self.path_rtt = base_rtt  # of these paths when idle; the endpoint, which knows whether they cross a T1, says so
        self.data_ps = 0  # of which links serialise what congestion control counts of a full packet; the endpoint says so, too
        self.window = 4 * base_rtt  # [ours]
        self.srtt = base_rtt
        self.min_rtt = 0  # smallest ever seen; 0: none yet
        self.samples = 0
        self.begun = LONG_AGO
        self.max_now = vec[i64]([0] * planes)
        self.max_before = vec[i64]([0] * planes)
        self.low_now = 0
        self.low_before = 0

    def sample(self, now: int, plane: int, rtt: int) -> None:
        """Take one valid sample: from the trigger of a SACK, or a probe's answer. The peer determines it, and timers are multiples of the
        smoothed RTT. So that is at least half of an idle path's RTT; otherwise a peer that echoes the present time could set all timers to
        zero [ours]."""
        if now - self.begun > self.window:
            for p in range(len(self.max_now)):
                # A plane without a sample keeps its last value: silence is not a shorter RTT.
                if self.max_now[p]:
                    self.max_before[p] = self.max_now[p]
                    self.max_now[p] = 0
            self.low_before = self.low_now
            self.low_now = 0
            self.begun = now
        if rtt > self.max_now[plane]:
            self.max_now[plane] = rtt
        if self.low_now == 0 or rtt < self.low_now:
            self.low_now = rtt
        if self.min_rtt == 0 or rtt < self.min_rtt:
            self.min_rtt = rtt
        self.samples += 1
        self.srtt = max(rtt if self.samples == 1 else self.srtt + (rtt - self.srtt >> 3), self.path_rtt >> 1)

    def recent_max(self, plane: int) -> int:
        """Return the largest recent RTT of a plane, at least the configured base RTT."""
        high: i64 = self.base_rtt
        if self.max_now[plane] > high:
            high = self.max_now[plane]
        if self.max_before[plane] > high:
            high = self.max_before[plane]
        return high

    def largest(self) -> int:
        """Return the largest recent RTT of any plane, at least the configured base RTT."""
        high = self.base_rtt
        for p in range(len(self.max_now)):
            high = max(high, self.recent_max(p))
        return high

    def soonest(self, size: int, full: int) -> int:
        """Return the bound for an answer after a retransmission of ``size`` bytes: one that comes sooner must answer the first copy; <= 0
        while no RTT is known. 0.9 of the smallest round trip (timestamps are coarse), less what a packet shorter than ``full`` saves on its
        links."""
        low = self.min_rtt if self.min_rtt < self.path_rtt else self.path_rtt
        return low * 9 // 10 - self.data_ps * (full - size) // full

    def as_full(self, rtt: int, size: int, full: int) -> int:
        """Return the RTT that a packet of ``full`` bytes would have had where one of ``size`` took ``rtt``, so that samples compare
        [ours]."""
        return rtt + self.data_ps * (full - size) // full

    def spread(self) -> int:
        """Return the largest minus the smallest recent RTT over all planes."""
        high: i64 = 0
        for p in range(len(self.max_now)):
            m = self.max_now[p] if self.max_now[p] > self.max_before[p] else self.max_before[p]
            if m > high:
                high = m
        low = self.low_now
        if low == 0 or 0 < self.low_before < low:
            low = self.low_before
        return high - low if low else 0
