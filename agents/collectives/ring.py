"""Ring all-reduce: reduce-scatter, then all-gather, in slices that flow through the ring like a
pipeline.

Rank r sends to r + 1, always straight to the chunk's place in the successor's result. In
reduce-scatter stage s it sends chunk (r - s), and the successor adds its own part. After n - 1
stages rank r holds the finished chunk (r + 1). In all-gather stage s it sends chunk (r + 1 - s). A
chunk's place is thus written twice by the predecessor in a step: with a partial sum, then with the
finished chunk, which exists only after the partial sum, sent on, went all round the ring. A
predecessor that is a step ahead has the finished chunks of the step between, to which this rank
added: so it has got half of that step's messages, and compared the result that lay here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import numpy as np

from agents.collectives.base import Collective
from agents.collectives.data import DTYPES, Array, StepData, draw
from agents.collectives.group import ARENA as ARENA


def ring_peers(n: int, rank: int) -> list[int]:
    return sorted({(rank + 1) % n, (rank - 1) % n})


def ring_sum(parts: list[Array]) -> Array:
    total = parts[0].copy()
    for part in parts[1:]:
        total = part + total
    return total


@lru_cache(maxsize=1)
def ring_total(n: int, count: int, dtype: str, seed: int) -> Array:
    """Chunk ``c`` begins its way at rank ``c``."""
    bases, chunk = draw(n, count, dtype, seed), count // n
    total = np.empty(count, DTYPES[dtype])
    for c in range(n):
        part = slice(c * chunk, (c + 1) * chunk)
        total[part] = ring_sum([bases[(c + k) % n][part] for k in range(n)])
    return total


class RingAllReduce(Collective):
    """Result and message have the same size."""

    name: ClassVar[str] = "ring-allreduce"
    # the last chunk that a rank adds to comes in half-way, and nobody has it before
    OVERLAP: ClassVar[bool] = True

    @staticmethod
    def peers(n: int, rank: int) -> list[int]:
        return ring_peers(n, rank)

    def lay_out(self) -> None:
        self.set_bytes = self.message_bytes
        self.arrivals = 2 * (self.n - 1) * self.slices
        self.result = self.placed(self.message_bytes // self.item, 0)
        self.own = np.empty(self.slice // self.item, self.dtype)  # a slice of the input

    def drawn(self, dtype: str, seed: int) -> StepData:
        n, count = self.n, self.message_bytes // self.item
        return StepData(
            draw(n, count, dtype, seed)[self.rank], ring_total(n, count, dtype, seed), n
        )

    def _fill(self, step: int, most: int) -> None:
        self.filled = len(self.data.base)  # each part when it is needed

    def send_first(self) -> None:
        first = self.elements(self.rank * self.part, self.part)
        self.data.fill(self.step, self.result[self.step & 1][first], first)
        for j in range(self.slices):
            self._pass_on(0, j)

    def _pass_on(self, stage: int, j: int) -> None:
        n = self.n
        chunk = (
            (self.rank + 1 - (stage - (n - 1))) % n if stage >= n - 1 else (self.rank - stage) % n
        )
        at = chunk * self.part + j * self.slice
        self.send(self.next, self.in_set(at, self.slice), at, stage, j)

    def sends(self, peer: int, stage: int) -> bool:
        return peer == self.previous and stage < 2 * (self.n - 1)

    def arrived(self, peer: int, stage: int, j: int) -> None:
        if stage < self.n - 1:
            part = self.elements(
                (self.rank - 1 - stage) % self.n * self.part + j * self.slice, self.slice
            )
            sums = self.result[self.step & 1][part]
            self.data.fill(self.step, self.own, part)
            self.given.reduce(self.own, sums, out=sums)
        if stage + 1 < 2 * (self.n - 1):
            self._pass_on(stage + 1, j)
