"""Ping-pong between two ranks: rank 0 writes, rank 1 answers with as much. A step at rank 0 is one
round trip, as ib_write_lat counts.

Rank 1 ends a step when rank 0's message is there; rank 0's next one proves that the answer arrived.
So each rank ends a step only after the other began it.
"""

from __future__ import annotations

from typing import ClassVar

from agents.collectives.base import Collective
from agents.collectives.data import StepData, draw


class PingPong(Collective):
    """The message is what goes one way."""

    name: ClassVar[str] = "ping-pong"

    @staticmethod
    def peers(n: int, rank: int) -> list[int]:
        return [1 - rank]

    @staticmethod
    def parts(n: int) -> int:
        return 1

    @staticmethod
    def refused(n: int) -> str:
        return "" if n == 2 else "it is between two"

    def lay_out(self) -> None:
        self.set_bytes = self.message_bytes
        self.arrivals = self.slices
        self.result = self.placed(self.message_bytes // self.item, 0)

    def drawn(self, dtype: str, seed: int) -> StepData:
        bases = draw(2, self.message_bytes // self.item, dtype, seed)
        return StepData(bases[self.rank], bases[1 - self.rank], 1)

    def send_first(self) -> None:
        if self.rank == 0:
            self._write()

    def _write(self) -> None:
        for j in range(self.slices):
            at = j * self.slice
            self.send(1 - self.rank, self.views[self.step & 1][at : at + self.slice], at, 0, j)

    def sends(self, peer: int, stage: int) -> bool:
        return stage == 0

    def arrived(self, peer: int, stage: int, j: int) -> None:
        if self.rank == 1 and self.remaining == 0:
            self._write()
