"""Section 7 of the protocol once more, written from its text, plain and slow: what the engine's
NSCC must agree with at every event.

Its only liberties are the ones that the text leaves to us: the mean over the last base RTT, that
what gathers under QuickAdapt is void, and that a trim speaks for the period in which it came.
Bytes and picoseconds, floats throughout, every sample kept for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Plain:
    """``rate`` bytes/ps of a port; ``cfg_rtt``, ``base_rtt`` ps; ``mtu`` as counted."""

    rate: float
    cfg_rtt: float
    base_rtt: float
    mtu: float
    trimming: bool
    planes: int = 1
    sack_bytes: float = 16_384
    inc: float = 0.0
    received: float = 0.0
    last_adjust: float | None = None
    last_eta: float = 0.0
    fast_bytes: float = 0.0
    fast: bool = False
    history: list[tuple[float, float]] = field(default_factory=list)
    last_decrease: float | None = None
    period_ends: float | None = None
    achieved: float = 0.0
    trigger: bool = False
    ignored: float = 0.0
    to_ignore: float = 0.0
    remembered: float | None = None

    def __post_init__(self) -> None:
        self.t = (0.75 if self.trimming else 1.0) * self.cfg_rtt
        self.window = self.max_wnd

    @property
    def cwnd(self) -> int:
        return int(self.window)

    @property
    def a(self) -> float:
        return self.planes * self.rate * self.cfg_rtt / 150e3

    @property
    def max_wnd(self) -> float:
        return max(self.mtu, 1.5 * self.planes * self.rate * self.base_rtt) + self.sack_bytes

    def clamp(self) -> None:
        self.window = max(self.mtu, min(self.window, self.max_wnd))

    def planes_changed(self, planes: int) -> None:
        self.window *= planes / self.planes
        if self.remembered is not None:
            self.remembered *= planes / self.planes
        self.planes = planes
        self.clamp()

    def average(self, now: float, d: float) -> float:
        self.history.append((now, d))
        recent = [x for at, x in self.history if now - at <= self.base_rtt]
        return sum(recent) / len(recent)

    def on_sack(
        self,
        now: float,
        news: float,
        in_flight: float,
        ecn: bool,
        rtt: float | None,
        penalty: int,
        restore: bool,
    ) -> None:
        self.ignored += news
        self.received += news
        self.achieved += news
        if penalty:
            if self.remembered is None:
                self.remembered = self.window
            self.window = max(self.mtu, min(self.window, in_flight) - penalty * news / 128)
        elif restore and self.remembered is not None:
            self.window = self.remembered
            self.remembered = None
        if rtt is not None:
            self.base_rtt = min(self.base_rtt, rtt)
            d = rtt - self.base_rtt
            average = self.average(now, d)
            if not self.quick_adapt(now, in_flight, False, ecn, d):
                if not ecn and not penalty:
                    self.grow(news, d)
                if ecn and d >= self.t:
                    self.fast = False
                    self.fast_bytes = 0
                    due = self.last_decrease is None or now - self.last_decrease >= self.base_rtt
                    if average > self.t and due:
                        self.window *= max(1 - 0.8 * (average - self.t) / average, 0.5)
                        self.last_decrease = now
                if not penalty:
                    self.adjust(now)
        self.clamp()

    def grow(self, news: float, d: float) -> None:
        if d >= self.t:
            self.inc += 5 * self.a * self.mtu * news
            return
        if d < self.cfg_rtt / 12:
            self.fast_bytes += news
            self.fast = self.fast or self.fast_bytes > self.window
            if self.fast:
                self.window += 0.25 * self.a * news
                return
        else:
            self.fast = False
            self.fast_bytes = 0
        b = self.t / 12e6
        self.inc += 4 * self.a * b * self.mtu / self.t * news * (self.t - d)

    def adjust(self, now: float) -> None:
        if self.last_adjust is None:
            self.last_adjust = self.last_eta = now
        if self.received >= 8 * self.mtu or now - self.last_adjust >= self.cfg_rtt:
            self.window += self.inc / max(self.window, self.mtu)
            self.inc = self.received = 0
            self.last_adjust = now
        if now - self.last_eta >= self.cfg_rtt:
            self.window += 0.15 * self.a * self.mtu
            self.last_eta = now

    def quick_adapt(self, now: float, in_flight: float, loss: bool, ecn: bool, d: float) -> bool:
        if ecn and self.ignored < self.to_ignore:
            self.inc = self.received = 0
            return True
        if self.period_ends is not None and now < self.period_ends:
            return False
        wanted = self.trigger or loss or (not self.trimming and d > 4 * self.t)
        acts = self.period_ends is not None and wanted and self.achieved < self.max_wnd / 8
        if acts:
            self.window = max(self.achieved, self.mtu)
            self.to_ignore = in_flight
            self.ignored = self.inc = self.received = 0
        self.trigger = False
        self.achieved = 0
        self.period_ends = now + self.base_rtt + self.t
        return acts

    def on_nack(self, now: float, size: float, in_flight: float, trimmed: bool) -> None:
        if trimmed:
            self.ignored += size
            self.trigger = True
            self.average(now, self.cfg_rtt)
        if not self.quick_adapt(now, in_flight, True, trimmed, 0):
            self.window -= size
        self.clamp()

    def on_loss(self, now: float, size: float) -> None:
        self.window -= size
        self.clamp()

    def on_wrong_loss(self, now: float, size: float) -> None:
        self.window += size
        self.clamp()
