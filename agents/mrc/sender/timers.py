"""Runs the tail probe and the retransmission timer of one queue pair, from its latest progress.
Sans-IO. Times are ps."""

from __future__ import annotations

from agents.mrc.config import Config
from agents.transport import LONG_AGO


class Timers:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.rto_ps = config.rto
        self.firings = 0  # RTOs without progress
        self.fired_ps = LONG_AGO  # the last of them
        self.progress_ps = LONG_AGO
        # posted after idling: the timers start with the next look at the clock
        self.starting = False
        self.tail_probes = 0  # without progress
        self.patience = 0  # without progress, if a program set one; 0: as the configuration says

    def limit(self, patience: int) -> None:
        self.patience = patience

    def posted(self) -> None:
        self.starting = True

    def start(self, now: int) -> None:
        self.starting = False
        self.progress_ps = now

    def progressed(self, now: int) -> None:
        self.progress_ps = now
        self.firings = 0
        self.tail_probes = 0

    def answered(self, now: int) -> None:
        """The network answers: no reason to fire [ours]."""
        self.progress_ps = now

    def probed(self) -> None:
        self.tail_probes = min(self.tail_probes + 1, 16)

    def probe_at(self, srtt: int) -> int:
        return self.progress_ps + (2 * srtt << self.tail_probes)

    def rto_at(self) -> int:
        c = self.config
        n = self.firings
        # Count from the last firing, not from a common start: a process that slept through several
        # must not use them up at once.
        since = self.progress_ps if self.progress_ps > self.fired_ps else self.fired_ps
        at = since + (self.rto_ps if n < c.linear else self.rto_ps << min(n - c.linear + 1, 32))
        return min(at, self.progress_ps + self.patience) if self.patience else at

    def fire(self, now: int) -> bool:
        """Returns False when the retries are used up."""
        self.firings += 1
        self.fired_ps = now
        c = self.config
        if self.patience:
            return now < self.progress_ps + self.patience
        return self.firings <= c.linear + c.exponential or c.exponential >= 25
