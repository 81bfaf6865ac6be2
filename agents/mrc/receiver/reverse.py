"""Chooses the paths for answers: one EV per plane that is known to work in our direction. Sans-IO.

Best is one that a SACK or an EV Probe confirmed, then one by which data came.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from agents.transport import LONG_AGO, NEVER

QUIET: Final = 4
"""An EV or plane that brought nothing for so many base RTTs, while others did, no longer counts as
working [ours]."""


class ReverseEvs:
    def __init__(self, base_rtt: int) -> None:
        self.quiet = QUIET * base_rtt
        self.evs: list[int] = []
        self.heard_ps = vec[i64]()  # when something last showed that the EV works
        # when data last came by its plane; NEVER before any did: such a plane has not gone quiet
        self.data_ps = vec[i64]()
        self.newest_ps = LONG_AGO  # when data last came at all
        self.turn = 0

    def start(self, evs: list[int], plane: int) -> None:
        self.turn = plane
        self.evs = evs
        self.data_ps = vec[i64]([NEVER] * len(evs))
        self.heard_ps = vec[i64]([LONG_AGO] * len(evs))

    def arrived(self, now: int, plane: int, ev: int) -> None:
        """Data by an EV confirms the plane's reverse EV, or replaces it if nothing has confirmed it
        lately."""
        if self.evs[plane] == ev:
            self.heard_ps[plane] = now
        elif now - self.heard_ps[plane] > self.quiet:
            self.evs[plane] = ev
            self.heard_ps[plane] = now
        self.data_ps[plane] = now
        self.newest_ps = now

    def confirmed(self, now: int, ev: int) -> None:
        plane = ev >> 16
        self.evs[plane] = ev
        self.heard_ps[plane] = now
        if self.data_ps[plane] < now:
            self.data_ps[plane] = now

    def refuted(self, ev: int) -> None:
        plane = ev >> 16
        if self.evs[plane] == ev:
            self.heard_ps[plane] = LONG_AGO

    def next(self) -> int:
        """A plane that went quiet while others did not is passed over [ours]."""
        n = len(self.evs)
        limit = self.newest_ps - self.quiet
        for _ in range(n):
            k = self.turn
            self.turn = k + 1 if k + 1 < n else 0
            if self.data_ps[k] >= limit:
                return self.evs[k]
        return self.evs[0]
