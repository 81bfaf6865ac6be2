"""Tracks round-trip times of one QP, plane by plane. Sans-IO."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from agents.transport import LONG_AGO


class RttTracker:
    """The smoothed RTT, and each plane's largest and smallest over one to two windows. All in
    ps."""

    def __init__(self, base_rtt: int, planes: int) -> None:
        self.base_rtt = base_rtt
        # of these paths when idle; the endpoint, which knows whether they cross a T1, says so
        self.path_rtt = base_rtt
        # of which links serialise what congestion control counts of a full packet; the endpoint
        # says so, too
        self.data_ps = 0
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
        """The peer determines samples. So the smoothed RTT is at least half of an idle path's:
        otherwise a peer that echoes the present time could set all timers to zero [ours]."""
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
        self.srtt = max(
            rtt if self.samples == 1 else self.srtt + (rtt - self.srtt >> 3), self.path_rtt >> 1
        )

    def recent_max(self, plane: int) -> int:
        high: i64 = self.base_rtt
        if self.max_now[plane] > high:
            high = self.max_now[plane]
        if self.max_before[plane] > high:
            high = self.max_before[plane]
        return high

    def largest(self) -> int:
        high = self.base_rtt
        for p in range(len(self.max_now)):
            high = max(high, self.recent_max(p))
        return high

    def soonest(self, size: int, full: int) -> int:
        """Return the time after a retransmission before which an answer must belong to the first
        copy; <= 0 while no RTT is known: 0.9 of the smallest round trip (timestamps are coarse),
        less what a short packet saves."""
        low = self.min_rtt if self.min_rtt < self.path_rtt else self.path_rtt
        return low * 9 // 10 - self.data_ps * (full - size) // full

    def as_full(self, rtt: int, size: int, full: int) -> int:
        """Return the RTT of a packet of ``full`` bytes, so that samples compare [ours]."""
        return rtt + self.data_ps * (full - size) // full

    def spread(self) -> int:
        high: i64 = 0
        for p in range(len(self.max_now)):
            m = self.max_now[p] if self.max_now[p] > self.max_before[p] else self.max_before[p]
            if m > high:
                high = m
        low = self.low_now
        if low == 0 or 0 < self.low_before < low:
            low = self.low_before
        return high - low if low else 0
