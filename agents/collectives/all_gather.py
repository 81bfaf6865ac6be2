"""Ring all-gather: every rank ends with everyone's part.

Rank r sends to r + 1: in stage 0 its own part, in stage s what arrived in stage s - 1, part (r -
s), straight to its place in the successor's result. Each place is written once in a step.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from agents.collectives.base import Collective
from agents.collectives.data import StepData, draw
from agents.collectives.ring import ring_peers


class AllGather(Collective):
    """The message is the whole output, n times what each rank puts in."""

    name: ClassVar[str] = "all-gather"

    @staticmethod
    def peers(n: int, rank: int) -> list[int]:
        return ring_peers(n, rank)

    @staticmethod
    def sizes(n: int, message_bytes: int) -> tuple[int, int]:
        return message_bytes // n, message_bytes

    def lay_out(self) -> None:
        self.set_bytes = self.message_bytes
        self.arrivals = (self.n - 1) * self.slices
        self.result = self.placed(self.message_bytes // self.item, 0)

    def drawn(self, dtype: str, seed: int) -> StepData:
        bases = draw(self.n, self.part // self.item, dtype, seed)
        return StepData(bases[self.rank], np.concatenate(bases), 1)

    def send_first(self) -> None:
        k = self.step & 1
        for j in range(self.slices):
            at = j * self.slice
            self.send(
                self.next, self.views[k][at : at + self.slice], self.rank * self.part + at, 0, j
            )
        self.result[k][self.elements(self.rank * self.part, self.part)] = self.input[k]

    def sends(self, peer: int, stage: int) -> bool:
        return peer == self.previous and stage < self.n - 1

    def arrived(self, peer: int, stage: int, j: int) -> None:
        if stage + 1 < self.n - 1:
            at = (self.rank - 1 - stage) % self.n * self.part + j * self.slice
            self.send(self.next, self.in_set(at, self.slice), at, stage + 1, j)
