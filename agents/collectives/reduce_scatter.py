"""Ring reduce-scatter: rank r ends with the sum of everyone's chunk r.

Rank r sends to r + 1. In stage s it sends chunk (r - 1 - s): in stage 0 its own part, later what
arrived with its own part added. It adds in place, in the scratch of the stage in which the chunk
arrived: nobody writes there again in the same step.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from agents.collectives.base import Collective
from agents.collectives.data import StepData, draw
from agents.collectives.ring import ring_peers, ring_sum


class ReduceScatter(Collective):
    """The message is each rank's whole input, n times what it receives."""

    name: ClassVar[str] = "reduce-scatter"

    @staticmethod
    def peers(n: int, rank: int) -> list[int]:
        return ring_peers(n, rank)

    @staticmethod
    def sizes(n: int, message_bytes: int) -> tuple[int, int]:
        return message_bytes, message_bytes // n

    def lay_out(self) -> None:
        self.set_bytes = self.part * (self.n - 1)
        self.arrivals = (self.n - 1) * self.slices
        self.scratch = self.placed(self.set_bytes // self.item, 0)
        self.result = [np.empty(self.part // self.item, self.dtype) for _ in range(2)]

    def drawn(self, dtype: str, seed: int) -> StepData:
        n = self.n
        bases = draw(n, self.message_bytes // self.item, dtype, seed)
        part = self.elements(self.rank * self.part, self.part)
        return StepData(
            bases[self.rank], ring_sum([bases[(self.rank + 1 + k) % n][part] for k in range(n)]), n
        )

    def send_first(self) -> None:
        for j in range(self.slices):
            at = (self.rank - 1) % self.n * self.part + j * self.slice
            self.send(
                self.next, self.views[self.step & 1][at : at + self.slice], j * self.slice, 0, j
            )

    def sends(self, peer: int, stage: int) -> bool:
        return peer == self.previous and stage < self.n - 1

    def arrived(self, peer: int, stage: int, j: int) -> None:
        k = self.step & 1
        chunk = (self.rank - 2 - stage) % self.n
        at = stage * self.part + j * self.slice
        own = self.input[k][self.elements(chunk * self.part + j * self.slice, self.slice)]
        sums = self.scratch[k][self.elements(at, self.slice)]
        if stage == self.n - 2:
            self.given.reduce(
                own, sums, out=self.result[k][self.elements(j * self.slice, self.slice)]
            )
        else:
            self.given.reduce(own, sums, out=sums)
            self.send(self.next, self.in_set(at, self.slice), at + self.part, stage + 1, j)
