"""Recycles entropies: the EV of a packet that came through unmarked is used again, others are drawn
at random. Sans-IO.

This is REPS (Bonato et al., "Recycled Entropy Packet Spraying", arXiv 2407.21625, algorithm 1), for
the baseline with MRC's packets and NSCC but neither named paths nor verdicts.
"""

from __future__ import annotations

from random import Random
from typing import Final

from agents.mrc.paths.path import Path
from agents.transport import LONG_AGO

BUFFER: Final = 8
"""Most EVs that are kept (section 3.1)."""
FREEZING_RTTS: Final = 10
"""Only kept EVs are used for so many base RTTs after a loss [ours: the paper has 100 us, with about
8 us]."""


class Recycler:
    """``explore``: packets at random EVs before any is recycled, a BDP's."""

    def __init__(self, paths: list[Path], explore: int, freezing_ps: int, rng: Random) -> None:
        self.paths = paths
        self.explore = self.exploring = explore
        self.freezing_ps = freezing_ps
        self.rng = rng
        self.kept: list[Path] = []  # the latest at the end
        self.valid = 0  # of them, counted from the end, not used since
        self.frozen_until = LONG_AGO

    def came_through(self, now: int, path: Path) -> None:
        self.kept.append(path)
        if len(self.kept) > BUFFER:
            self.kept.pop(0)
        self.valid = min(self.valid + 1, len(self.kept))
        if self.frozen_until != LONG_AGO and now >= self.frozen_until:
            self.frozen_until = LONG_AGO
            self.exploring = self.explore

    def lost(self, now: int) -> None:
        if self.frozen_until == LONG_AGO and self.exploring == 0:
            self.frozen_until = now + self.freezing_ps

    def next(self) -> Path | None:
        if not self.paths:
            return None
        frozen = self.frozen_until != LONG_AGO
        if not self.kept or (self.exploring > 0 and not frozen) or (self.valid == 0 and not frozen):
            self.exploring = max(self.exploring - 1, 0)
            return self.paths[int(self.rng.random() * len(self.paths))]
        if self.valid > 0:
            path = self.kept[len(self.kept) - self.valid]
            self.valid -= 1
            return path
        path = self.kept.pop(0)  # frozen: round and round
        self.kept.append(path)
        return path
