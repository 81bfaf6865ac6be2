"""Keeps losses that a NACK may yet explain, where switches trim. Sans-IO; used by the requester only.

NACK(p), sent for a trimmed packet, can be overtaken by a SACK that shows p missing. So the packet is sent again and its EV gets no new data
at once, but the verdict on the EV, and the cut of the window, follow a quarter of the smoothed RTT later, unless the NACK has come
meanwhile [ours].
"""

from __future__ import annotations

from typing import NamedTuple

from agents.mrc.paths.path import Path
from agents.transport import NEVER


class Doubt(NamedTuple):
    """One transmission that is missing."""

    path: Path
    sent_ps: int
    due_ps: int
    size: int
    rule: str


class Doubts:
    """Open doubts by PSN. ``at`` is when the first verdict is due, ps."""

    def __init__(self) -> None:
        self.open: dict[int, Doubt] = {}
        self.at = NEVER

    def add(self, psn: int, doubt: Doubt) -> None:
        """Enter a doubt; its path gets no new data from now on."""
        self.open[psn] = doubt
        doubt.path.doubt()
        if doubt.due_ps < self.at:
            self.at = doubt.due_ps

    def drop(self, psn: int) -> Doubt:
        """Remove a doubt that is explained or has become a verdict; it no longer keeps the path from new data."""
        doubt = self.open.pop(psn)
        doubt.path.settle()
        if doubt.due_ps == self.at:
            self.at = min((d.due_ps for d in self.open.values()), default=NEVER)
        return doubt

    def due(self, now: int) -> list[Doubt]:
        return [self.drop(psn) for psn in [p for p, d in self.open.items() if d.due_ps <= now]]

    def drop_paths(self, paths: set[Path]) -> None:
        """Drop the doubts on these paths: something else explains them."""
        for psn, doubt in list(self.open.items()):
            if doubt.path in paths:
                self.drop(psn)

    def clear(self) -> None:
        for psn in list(self.open):
            self.drop(psn)
