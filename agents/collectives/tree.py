"""Tree all-reduce by recursive halving and doubling, over a power of two of ranks.

The message falls into slices that go through all stages independently, like a pipeline. Halving
stage t (0 .. L-1, n = 2^L): the rank and its partner at distance n / 2^(t+1) hold partial sums of
the same window. Each sends the half that the other keeps into the other's scratch of that stage,
and adds what it gets to its own half. After L stages rank r has the finished chunk r of the slice.
Doubling stage L + u: partners at distance 2^u send each other the window that they have, straight
to its place in the result.

A rank's input lies in its result, and so do its partial sums; later one partner writes there once,
in a doubling stage. The rank gave that very window to this partner in the halving, whose finished
sums were made from it. So what was read from there has arrived. A partner's message that comes
early is used in its turn.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from agents.collectives.base import Collective
from agents.collectives.data import Array, StepData, draw

MOST = 1 << 16
"""Most ranks: as many hosts have an inner address."""


def tree_sum(bases: list[Array]) -> Array:
    """The sum is the same on all ranks because a + b is b + a to the bit."""
    while len(bases) > 1:
        half = len(bases) // 2
        bases = [a + b for a, b in zip(bases[:half], bases[half:], strict=True)]
    return bases[0]


@lru_cache(maxsize=1)
def tree_total(n: int, count: int, dtype: str, seed: int) -> Array:
    return tree_sum(draw(n, count, dtype, seed))


class TreeAllReduce(Collective):
    """Result and message have the same size."""

    name: ClassVar[str] = "tree-allreduce"
    IN_PLACE: ClassVar[bool] = True

    @staticmethod
    def peers(n: int, rank: int) -> list[int]:
        return [rank ^ 1 << bit for bit in range(n.bit_length() - 1)]

    @staticmethod
    def refused(n: int) -> str:
        if not 2 <= n <= MOST:
            return f"2 to {MOST}"
        return (
            (
                f"it takes a power of two, like {1 << n.bit_length() - 1}; ring-allreduce takes "
                "any number"
            )
            if n & n - 1
            else ""
        )

    def lay_out(self) -> None:
        n, count = self.n, self.message_bytes // self.item
        self.levels = levels = n.bit_length() - 1
        self.whole = self.message_bytes // self.slices  # bytes of a slice of the message
        self.set_bytes = 2 * self.message_bytes - self.part
        self.arrivals = 2 * levels * self.slices
        self.result = self.placed(count, 0)
        self.scratch = self.placed(
            (self.message_bytes - self.part) // self.item, self.message_bytes
        )
        # where the window held before stage t begins, bytes within a slice; it is whole >> t long
        self.window = [0]
        for t in range(levels):
            self.window.append(
                self.window[t] + (self.rank >> (levels - 1 - t) & 1) * (self.whole >> t + 1)
            )
        self.stage = [0] * self.slices  # per slice: stages done
        self.got = [0] * self.slices  # and, bit by bit, stages whose message is here

    def drawn(self, dtype: str, seed: int) -> StepData:
        n, count = self.n, self.message_bytes // self.item
        return StepData(
            draw(n, count, dtype, seed)[self.rank], tree_total(n, count, dtype, seed), n
        )

    def send_first(self) -> None:
        self.stage = [0] * self.slices
        self.got = [0] * self.slices
        for j in range(self.slices):
            self._exchange(0, j)

    def _scratch_at(self, stage: int, j: int) -> int:
        return self.message_bytes - (self.message_bytes >> stage) + j * (self.whole >> stage + 1)

    def _exchange(self, stage: int, j: int) -> None:
        if stage < self.levels:
            size = self.whole >> stage + 1
            keep = self.window[stage + 1]
            give = 2 * self.window[stage] + size - keep  # the window's other half
            at = j * self.whole + give
            self.send(
                self.rank ^ self.n >> stage + 1,
                self.in_set(at, size),
                self.message_bytes + self._scratch_at(stage, j),
                stage,
                j,
            )
        else:
            up = stage - self.levels
            at = j * self.whole + self.window[self.levels - up]
            self.send(
                self.rank ^ 1 << up, self.in_set(at, self.whole >> self.levels - up), at, stage, j
            )

    def sends(self, peer: int, stage: int) -> bool:
        return stage < 2 * self.levels and peer == self.rank ^ (
            self.n >> stage + 1 if stage < self.levels else 1 << stage - self.levels
        )

    def arrived(self, peer: int, stage: int, j: int) -> None:
        self.got[j] |= 1 << stage
        while self.got[j] >> self.stage[j] & 1:
            self._use(self.stage[j], j)
            self.stage[j] += 1

    def _use(self, stage: int, j: int) -> None:
        if stage < self.levels:
            k = self.step & 1
            size = self.whole >> stage + 1
            kept = self.result[k][self.elements(j * self.whole + self.window[stage + 1], size)]
            self.given.reduce(
                kept, self.scratch[k][self.elements(self._scratch_at(stage, j), size)], out=kept
            )
        if stage + 1 < 2 * self.levels:
            self._exchange(stage + 1, j)
