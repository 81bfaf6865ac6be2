"""Ring all-reduce: reduce-scatter, then all-gather, in slices that flow through the ring like a pipeline.

Rank r sends to r + 1. In reduce-scatter stage s it sends chunk (r - s) into the successor's scratch of that stage, and the successor adds
its own part. After n - 1 stages rank r holds the finished chunk (r + 1). In all-gather stage s it sends chunk (r + 1 - s) straight to its
place in the successor's result. A chunk's place in the result is thus written twice in a step: by the rank itself with its partial sum,
then by its predecessor with the finished chunk, which exists only after the partial sum, sent on, went all round the ring.
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
    OVERLAP: ClassVar[bool] = True  # the last chunk that a rank adds to comes in half-way, and nobody has it before

    @staticmethod
    def peers(n: int, rank: int) -> list[int]:
        return ring_peers(n, rank)

    def lay_out(self) -> None:
        n, count = self.n, self.message_bytes // self.item
        scratch = self.part * (n - 1)
        self.set_bytes = self.message_bytes + scratch
        self.arrivals = 2 * (n - 1) * self.slices
        self.result = self.placed(count, 0)
        self.scratch = self.placed(scratch // self.item, self.message_bytes)

    def drawn(self, dtype: str, seed: int) -> StepData:
        n, count = self.n, self.message_bytes // self.item
        return StepData(draw(n, count, dtype, seed)[self.rank], ring_total(n, count, dtype, seed), n)

    def send_first(self) -> None:
        for j in range(self.slices):
            self._pass_on(0, j)

    def _pass_on(self, stage: int, j: int) -> None:
        n = self.n
        gather = stage >= n - 1
        chunk = (self.rank + 1 - (stage - (n - 1))) % n if gather else (self.rank - stage) % n
        at = chunk * self.part + j * self.slice
        memory = self.in_set(at, self.slice) if stage else self.views[self.step & 1][at : at + self.slice]
        self.send(self.next, memory, at if gather else self.message_bytes + stage * self.part + j * self.slice, stage, j)

    def sends(self, peer: int, stage: int) -> bool:
        return peer == self.previous and stage < 2 * (self.n - 1)

    def arrived(self, peer: int, stage: int, j: int) -> None:
        k = self.step & 1
        if stage < self.n - 1:
            chunk = (self.rank - 1 - stage) % self.n
            own = self.elements(chunk * self.part + j * self.slice, self.slice)
            incoming = self.elements(stage * self.part + j * self.slice, self.slice)
            self.given.reduce(self.input[k][own], self.scratch[k][incoming], out=self.result[k][own])
        if stage + 1 < 2 * (self.n - 1):
            self._pass_on(stage + 1, j)
