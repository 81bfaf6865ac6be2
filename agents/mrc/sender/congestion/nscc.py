"""Implements NSCC, the sender-based congestion control of UET 1.0 that MRC uses: delay and ECN
together move one window.

Theory of operation. Two signals with two meanings: ECN is fast and says that *some* queue on *this*
path is filling; delay sums the queues of the path. Their four combinations (d: RTT sample less base
RTT; T: target delay) are the algorithm:

    ============ ===================== ==================================================
    trigger      d < T                 d >= T
    ============ ===================== ==================================================
    not marked   proportional: grow    fair: grow slowly, by the same for everyone, or
                 by what is missing    flows that joined late would starve
                 to T; at d ~ 0 fast
    marked       nothing: spraying     multiplicative decrease, once per base RTT, by how
                 (SKIP) moves load     far the average of d exceeds T, at most by half
    ============ ===================== ==================================================

A trim takes the packet's size off the window. When packets were trimmed in a period and little got
through, QuickAdapt cuts the window to what did. With ECN off on the last hop (the MRC paper's
setting) incast shows as *not marked, d >= T*, where the table grows the window; only trims, losses
and the receiver's penalty hold it back. A SACK with a penalty brings the window down to what is in
flight, less penalty / 128 of the bytes it reports: UET's formula, one of three readings of MRC's
field [ours].

Constants are UET's, as in its reference simulator. docs/why/congestion.md has the differences from
that simulator [ours]. The chief one: the average of d is the mean of the samples of the last base
RTT, since the simulator's moving average reacts in tens of RTTs here.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from agents.mrc.config import Config
from agents.mrc.sender.congestion.base import Congestion
from agents.transport import LONG_AGO
from topologies.units import BYTE, US

REFERENCE_RTT: Final = 12 * US
"""Base RTT of the network that UET's constants were set for, at 100 Gb/s."""
REFERENCE_BDP: Final = 150_000.0
"""BDP of the same network, bytes."""
MAX_BDP: Final = 1.5
TARGET_TRIMMING: Final = 0.75
TARGET_DROPPING: Final = 1.0
DECREASE: Final = 0.8
LARGEST_DECREASE: Final = 0.5
QA_SHARE: Final = 8
"""QuickAdapt acts when less than this part of the largest window got through."""
ADJUST_PACKETS: Final = 8
NO_DELAY: Final = 12
"""A d below this part of the configured RTT counts as none: the simulator's 1 us of 12."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Nscc(Congestion):
    """The state of one QP. ``cwnd`` lies in [one packet, 1.5 BDP of the live planes + a SACK's
    worth of data]."""

    def __init__(self, config: Config, path_rtt: int) -> None:
        super().__init__(config, path_rtt)
        self.cfg_rtt = config.base_rtt
        self.no_delay = config.base_rtt // NO_DELAY
        self.base_rtt = path_rtt  # smallest seen, at first the configured one
        self.target = int(
            config.base_rtt * (TARGET_TRIMMING if config.trimming else TARGET_DROPPING)
        )
        self.qa_threshold = 1 << 62 if config.trimming else 4 * self.target
        self.window = 0.0  # cwnd before rounding
        self.max_wnd = 0.0
        self.alpha = 0.0
        self.fi = 0.0
        self.fs = 0.0
        self.eta = 0.0
        # Increase since the last adjustment.
        self.inc = 0.0
        self.received = 0
        self.adjusted_ps = LONG_AGO
        self.eta_ps = LONG_AGO
        self.fast_bytes = 0
        self.fast = False
        # Average of d.
        self.sampled = vec[i64]()  # when a sample came, and which, from ``oldest`` on
        self.samples = vec[i64]()
        self.oldest: i64 = 0
        self.sum: i64 = 0
        self.decreased_ps = LONG_AGO
        # QuickAdapt.
        self.qa_end = LONG_AGO  # before the first period
        self.achieved = 0  # bytes that got through in this period
        self.trimmed = 0  # bytes that were trimmed in it
        self.ignored = 0
        self.to_ignore = 0
        # The receiver's penalty.
        self.remembered = -1.0
        self._scale()
        self.window = self.max_wnd
        self._clamp()

    def _scale(self) -> None:
        rates = self.config.port_rate * self.live
        bdp = rates * self.cfg_rtt / BYTE
        a = bdp / REFERENCE_BDP
        b = self.target / REFERENCE_RTT
        # 1.5 BDP may be on the way; what the peer holds until its next SACK is not [ours].
        self.max_wnd = (
            max(MAX_BDP * rates * self.base_rtt / BYTE, float(self.mtu)) + self.config.sack_bytes
        )
        self.alpha = 4.0 * a * b * self.mtu / self.target
        self.fi = 5.0 * a * self.mtu
        self.fs = 0.25 * a
        self.eta = 0.15 * a * self.mtu

    def _clamp(self) -> None:
        if self.window > self.max_wnd:
            self.window = self.max_wnd
        if self.window < self.mtu:
            self.window = float(self.mtu)
        self.cwnd = int(self.window)

    def planes_changed(self, live: int) -> None:
        if live == self.live:
            return
        self.window = self.window * live / self.live
        if self.remembered >= 0:
            self.remembered = self.remembered * live / self.live
        self.live = live
        self._scale()
        self._clamp()

    # --- signals ----------------------------------------------------------------------------------

    def on_sack(
        self, now: int, news: int, in_flight: int, ecn: bool, rtt: int, penalty: int, restore: bool
    ) -> None:
        self.ignored += news
        self.received += news
        self.achieved += news
        grow = True
        if penalty:
            if self.remembered < 0:
                self.remembered = self.window
            self.window = max(
                float(self.mtu), min(self.window, float(in_flight)) - penalty * news / 128.0
            )
            grow = False
        elif restore and self.remembered >= 0:
            self.window = self.remembered
            self.remembered = -1.0
        if rtt >= 0:
            if rtt < self.base_rtt:
                self.base_rtt = rtt
                self._scale()
            d = rtt - self.base_rtt
            average = self._average(now, d)
            if not self._quick_adapt(now, in_flight, False, ecn, d):
                if not ecn:
                    if grow:
                        self._increase(news, d)
                elif d >= self.target:
                    self._leave_fast()
                    if average > self.target and now - self.decreased_ps >= self.base_rtt:
                        self.window *= max(
                            1.0 - DECREASE * (average - self.target) / average, LARGEST_DECREASE
                        )
                        self.decreased_ps = now
                if grow:
                    self._adjust(now)
        self._clamp()

    def on_nack(self, now: int, size: int, in_flight: int, trimmed: bool) -> None:
        if trimmed:
            self.ignored += size
            self.trimmed += size
            self._average(now, self.cfg_rtt)
        if not self._quick_adapt(now, in_flight, True, trimmed, 0):
            self.window -= size
        self._clamp()

    def on_loss(self, now: int, size: int) -> None:
        self.window -= size
        self._clamp()

    def on_wrong_loss(self, now: int, size: int) -> None:
        self.window += size
        self._clamp()

    # --- parts ------------------------------------------------------------------------------------

    def _average(self, now: int, d: int) -> float:
        self.sampled = append(self.sampled, now)
        self.samples = append(self.samples, d)
        self.sum += d
        limit: i64 = now - self.base_rtt
        first = self.oldest
        while self.sampled[first] < limit:
            self.sum -= self.samples[first]
            first += 1
        count = len(self.samples) - first
        if first > count and first >= 64:  # most are past: what is left moves to the front
            self.sampled = vec[i64]([self.sampled[first + k] for k in range(count)])
            self.samples = vec[i64]([self.samples[first + k] for k in range(count)])
            first = 0
        self.oldest = first
        return float(self.sum) / float(count)

    def _increase(self, news: int, d: int) -> None:
        if d >= self.target:
            self.inc += self.fi * news
            return
        if d < self.no_delay:
            self.fast_bytes += news
            if self.fast_bytes > self.window:
                self.fast = True
            if self.fast:
                self.window += self.fs * news
                return
        else:
            self._leave_fast()
        self.inc += self.alpha * news * (self.target - d)

    def _leave_fast(self) -> None:
        self.fast = False
        self.fast_bytes = 0

    def _adjust(self, now: int) -> None:
        if self.adjusted_ps == LONG_AGO:
            self.adjusted_ps = self.eta_ps = now
        if self.received >= ADJUST_PACKETS * self.mtu or now - self.adjusted_ps >= self.cfg_rtt:
            self.window += self.inc / max(self.window, float(self.mtu))
            self.inc = 0.0
            self.received = 0
            self.adjusted_ps = now
        if now - self.eta_ps >= self.cfg_rtt:
            self.window += self.eta
            self.eta_ps = now

    def _quick_adapt(self, now: int, in_flight: int, loss: bool, ecn: bool, d: int) -> bool:
        """Say whether a cut answers this signal: one just made, or one for what was in flight
        then."""
        if ecn and self.ignored < self.to_ignore:
            self.inc = 0.0
            self.received = 0
            return True
        if now < self.qa_end:
            return False
        acted = False
        if (
            self.qa_end != LONG_AGO
            and (self.trimmed > 0 or loss or d > self.qa_threshold)
            and self.achieved < self.max_wnd / QA_SHARE
        ):
            self.window = float(max(self.achieved, self.mtu))
            self.to_ignore = in_flight
            self.ignored = 0
            self.inc = 0.0
            self.received = 0
            self.event(
                now,
                "quick_adapt",
                before=self.cwnd,
                window=int(self.window),
                in_flight=in_flight,
                trimmed=self.trimmed,
            )
            acted = True
        self.trimmed = 0
        self.achieved = 0
        self.qa_end = now + self.base_rtt + self.target
        return acted
