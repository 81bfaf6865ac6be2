"""Losses that a NACK may yet explain, where switches trim. Sans-IO; used by the requester only.

NACK(p), sent for a trimmed packet, can be overtaken by a SACK that shows p missing. So the packet goes again and its EV rests at once, but
the verdict on the EV, and the cut of the window, fall a quarter of the smoothed RTT later, unless the NACK came meanwhile [ours].
"""

from __future__ import annotations

from typing import NamedTuple

from agents.mrc.paths.path_set import PathSet
from agents.transport import NEVER


class Doubt(NamedTuple):
    """One transmission that is missing."""

    ev: int
    sent_ns: int
    due_ns: int
    size: int
    rule: str


class Doubts:
    """By PSN. ``at``: when the first verdict is due, ns."""

    def __init__(self, paths: PathSet) -> None:
        self.paths = paths
        self.open: dict[int, Doubt] = {}
        self.at = NEVER

    def add(self, psn: int, doubt: Doubt) -> None:
        """The EV rests from now on."""
        self.open[psn] = doubt
        self.paths.doubts[doubt.ev] += 1
        if doubt.due_ns < self.at:
            self.at = doubt.due_ns

    def drop(self, psn: int) -> Doubt:
        """Explained, or judged: the EV no longer rests for it."""
        doubt = self.open.pop(psn)
        self.paths.doubts[doubt.ev] -= 1
        if doubt.due_ns == self.at:
            self.at = min((d.due_ns for d in self.open.values()), default=NEVER)
        return doubt

    def due(self, now: int) -> list[Doubt]:
        """Those whose time is over, dropped."""
        return [self.drop(psn) for psn in [p for p, d in self.open.items() if d.due_ns <= now]]

    def drop_evs(self, evs: set[int]) -> None:
        """Drop those on any of these EVs: something else explains them."""
        for psn, doubt in list(self.open.items()):
            if doubt.ev in evs:
                self.drop(psn)

    def clear(self) -> None:
        """Drop all."""
        for psn in list(self.open):
            self.drop(psn)
