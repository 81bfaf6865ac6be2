"""Ring broadcast: what the root has goes round the ring, each rank passing it on slice by slice.

Every other rank sends an empty message round, as an all-gather does. So a rank ends a step only
after all have begun it, and two sets of buffers are enough here, too (base.py). A broadcast of
nearly nothing is thus a barrier.
"""

from __future__ import annotations

from typing import ClassVar

from agents.collectives.base import Collective
from agents.collectives.data import StepData, draw
from agents.collectives.ring import ring_peers

_NOTHING = memoryview(b"")


class Broadcast(Collective):
    name: ClassVar[str] = "broadcast"

    @staticmethod
    def peers(n: int, rank: int) -> list[int]:
        return ring_peers(n, rank)

    @staticmethod
    def parts(n: int) -> int:
        return 1

    def lay_out(self) -> None:
        self.set_bytes = self.message_bytes
        # whose empty messages come by
        others = self.n - 1 if self.rank == self.given.root else self.n - 2
        self.arrivals = others + (0 if self.rank == self.given.root else self.slices)
        self.result = self.placed(self.message_bytes // self.item, 0)

    def drawn(self, dtype: str, seed: int) -> StepData:
        bases = draw(self.n, self.message_bytes // self.item, dtype, seed)
        return StepData(bases[self.rank], bases[self.given.root], 1)

    def send_first(self) -> None:
        k = self.step & 1
        if self.rank != self.given.root:
            self.send(self.next, _NOTHING, 0, 0, 0)
            return
        for j in range(self.slices):
            at = j * self.slice
            self.send(self.next, self.views[k][at : at + self.slice], at, 0, j)
        self.result[k][:] = self.input[k]

    def sends(self, peer: int, stage: int) -> bool:
        return peer == self.previous and stage < self.n - 1

    def arrived(self, peer: int, stage: int, j: int) -> None:
        if stage + 1 == self.n - 1:
            return
        from_root = (self.rank - 1 - stage) % self.n == self.given.root
        at = j * self.slice
        self.send(
            self.next,
            self.in_set(at, self.slice) if from_root else _NOTHING,
            at if from_root else 0,
            stage + 1,
            j,
        )
