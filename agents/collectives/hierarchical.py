"""Hierarchical all-reduce over two groups of ranks: reduce-scatter in each group, one exchange
between the groups, all-gather in each.

Ranks 0 .. m-1 are one group and m .. 2m-1 the other: the sites of a fabric, if ranks are packed.
After m - 1 stages of reduce-scatter the group's rank l holds the group's sum of chunk l + 1, in the
scratch of the last stage. It sends that to its twin, the rank of the same place in the other group,
and adds what it gets. So each byte of a group's sum goes to the other group once, and each slice
waits once for the way between them.

The sum is the same on both sides, because a + b is b + a to the bit. A twin may be ahead: what it
sends has a place of its own. Each place of the result is written once in a step, and what is sent
from the scratch is not written again in it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import numpy as np

from agents.collectives.base import Collective
from agents.collectives.data import DTYPES, Array, StepData, draw
from agents.collectives.ring import ring_sum


@lru_cache(maxsize=1)
def two_level_total(n: int, count: int, dtype: str, seed: int) -> Array:
    """In each group chunk ``c`` begins its way at the group's rank ``c``."""
    bases, m = draw(n, count, dtype, seed), n // 2
    chunk = count // m
    total = np.empty(count, DTYPES[dtype])
    for c in range(m):
        part = slice(c * chunk, (c + 1) * chunk)
        near, far = (
            ring_sum([bases[first + (c + k) % m][part] for k in range(m)]) for first in (0, m)
        )
        total[part] = near + far
    return total


class HierarchicalAllReduce(Collective):
    """Result and message have the same size."""

    name: ClassVar[str] = "hierarchical-allreduce"

    @staticmethod
    def peers(n: int, rank: int) -> list[int]:
        m = n // 2
        first = rank // m * m
        ring = {first + (rank + 1) % m, first + (rank - 1) % m} - {rank}
        return sorted(ring | {(rank + m) % n})

    @staticmethod
    def parts(n: int) -> int:
        return n // 2

    @staticmethod
    def refused(n: int) -> str:
        odd = (
            "it takes an even number, half of them in each group; ring-allreduce takes any"
            if n % 2
            else ""
        )
        return Collective.refused(n) or odd

    def lay_out(self) -> None:
        self.m = m = self.n // 2
        first = self.rank // m * m
        self.place = self.rank - first  # within the group
        self.successor = first + (self.place + 1) % m
        self.predecessor = first + (self.place - 1) % m
        self.twin = (self.rank + m) % self.n
        self.own = (self.place + 1) % m  # the chunk whose sum it finishes
        self.set_bytes = self.message_bytes + m * self.part
        self.arrivals = (2 * m - 1) * self.slices
        self.result = self.placed(self.message_bytes // self.item, 0)
        # of each stage before all-gather, the exchange last
        self.scratch = self.placed(m * self.part // self.item, self.message_bytes)
        self.summed = [False] * self.slices  # the group's sum of the own chunk is there
        self.exchanged = [False] * self.slices  # and the other group's

    def drawn(self, dtype: str, seed: int) -> StepData:
        count = self.message_bytes // self.item
        return StepData(
            draw(self.n, count, dtype, seed)[self.rank],
            two_level_total(self.n, count, dtype, seed),
            self.n,
        )

    def send_first(self) -> None:
        self.summed = [self.m == 1] * self.slices
        self.exchanged = [False] * self.slices
        for j in range(self.slices):
            at = self.place * self.part + j * self.slice
            memory = self.views[self.step & 1][at : at + self.slice]
            if self.m == 1:
                self.send(self.twin, memory, self._scratch_at(0, j), 0, j)
            else:
                self.send(self.successor, memory, self._scratch_at(0, j), 0, j)

    def _scratch_at(self, stage: int, j: int) -> int:
        return self.message_bytes + stage * self.part + j * self.slice

    def sends(self, peer: int, stage: int) -> bool:
        return (
            peer == (self.twin if stage == self.m - 1 else self.predecessor)
            and stage < 2 * self.m - 1
        )

    def arrived(self, peer: int, stage: int, j: int) -> None:
        if stage == self.m - 1:
            self.exchanged[j] = True
        elif stage >= self.m:
            if stage + 1 < 2 * self.m - 1:
                self._gather(stage + 1, (self.own - 1 - (stage - self.m)) % self.m, j)
            return
        else:
            self._reduce(stage, j)
        if self.summed[j] and self.exchanged[j]:
            self._finish(j)

    def _reduce(self, stage: int, j: int) -> None:
        k = self.step & 1
        chunk = (self.place - 1 - stage) % self.m
        at = self._scratch_at(stage, j)
        sums = self.scratch[k][self.elements(at - self.message_bytes, self.slice)]
        self.given.reduce(
            self.input[k][self.elements(chunk * self.part + j * self.slice, self.slice)],
            sums,
            out=sums,
        )
        last = stage == self.m - 2
        self.summed[j] = last
        self.send(
            self.twin if last else self.successor,
            self.in_set(at, self.slice),
            self._scratch_at(stage + 1, j),
            stage + 1,
            j,
        )

    def _finish(self, j: int) -> None:
        k = self.step & 1
        at = self.elements(self.own * self.part + j * self.slice, self.slice)
        theirs = self.scratch[k][
            self.elements((self.m - 1) * self.part + j * self.slice, self.slice)
        ]
        if self.m == 1:
            self.given.reduce(self.input[k][at], theirs, out=self.result[k][at])
            return
        ours = self.scratch[k][self.elements((self.m - 2) * self.part + j * self.slice, self.slice)]
        self.given.reduce(ours, theirs, out=self.result[k][at])
        self._gather(self.m, self.own, j)

    def _gather(self, stage: int, chunk: int, j: int) -> None:
        at = chunk * self.part + j * self.slice
        self.send(self.successor, self.in_set(at, self.slice), at, stage, j)
