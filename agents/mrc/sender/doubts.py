"""Keeps losses that a NACK may yet explain, where switches trim. Sans-IO.

A SACK that shows packet p missing can overtake the NACK for a trimmed p. So the packet is sent
again and its EV gets no new data at once. The verdict and the cut of the window follow a quarter of
the smoothed RTT later, unless the NACK has come [ours].
"""

from __future__ import annotations

from typing import NamedTuple

from agents.mrc.paths.path import Path
from agents.transport import NEVER


class Doubt(NamedTuple):
    path: Path
    sent_ps: int
    due_ps: int
    size: int
    rule: str


class Doubts:
    def __init__(self) -> None:
        self.open: dict[int, Doubt] = {}
        self.at = NEVER

    def add(self, psn: int, doubt: Doubt) -> None:
        self.open[psn] = doubt
        doubt.path.doubt()
        if doubt.due_ps < self.at:
            self.at = doubt.due_ps

    def drop(self, psn: int) -> Doubt:
        doubt = self.open.pop(psn)
        doubt.path.settle()
        if doubt.due_ps == self.at:
            self.at = min((d.due_ps for d in self.open.values()), default=NEVER)
        return doubt

    def due(self, now: int) -> list[Doubt]:
        return [self.drop(psn) for psn in [p for p, d in self.open.items() if d.due_ps <= now]]

    def drop_paths(self, paths: set[Path]) -> None:
        for psn, doubt in list(self.open.items()):
            if doubt.path in paths:
                self.drop(psn)

    def clear(self) -> None:
        for psn in list(self.open):
            self.drop(psn)
