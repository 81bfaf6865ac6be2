"""Send and receive as nccl-tests' sendrecv does it: rank r sends its whole buffer to r + 1 and
receives that of r - 1.

A rank's result depends on its predecessor alone, so only credit keeps it from running ahead of its
successor.
"""

from __future__ import annotations

from typing import ClassVar

from agents.collectives.base import Collective
from agents.collectives.data import StepData, draw
from agents.collectives.ring import ring_peers


class SendRecv(Collective):
    """The message is what each rank sends."""

    name: ClassVar[str] = "send-recv"
    CREDIT: ClassVar[bool] = True

    @staticmethod
    def peers(n: int, rank: int) -> list[int]:
        return ring_peers(n, rank)

    @staticmethod
    def parts(n: int) -> int:
        return 1

    def lay_out(self) -> None:
        self.set_bytes = self.message_bytes
        self.arrivals = self.slices
        self.result = self.placed(self.message_bytes // self.item, 0)

    def drawn(self, dtype: str, seed: int) -> StepData:
        bases = draw(self.n, self.message_bytes // self.item, dtype, seed)
        return StepData(bases[self.rank], bases[self.previous], 1)

    def send_first(self) -> None:
        for j in range(self.slices):
            at = j * self.slice
            self.send(self.next, self.views[self.step & 1][at : at + self.slice], at, 0, j)

    def sends(self, peer: int, stage: int) -> bool:
        return peer == self.previous and stage == 0

    def arrived(self, peer: int, stage: int, j: int) -> None:
        pass  # it is where it belongs
