"""All-to-all: part p of rank r's input becomes part r of rank p's result.

Everything is posted at once, to r + 1 first, then r + 2 and so on, so that no rank is everybody's
first target. Each place of the result is written once in a step.
"""

from __future__ import annotations

from typing import ClassVar

from agents.collectives.base import Collective
from agents.collectives.data import StepData, draw


class AllToAll(Collective):
    """The message is the whole buffer of each rank, n parts, its own among them."""

    name: ClassVar[str] = "all-to-all"

    @staticmethod
    def peers(n: int, rank: int) -> list[int]:
        return [peer for peer in range(n) if peer != rank]

    def lay_out(self) -> None:
        self.set_bytes = self.message_bytes
        self.arrivals = (self.n - 1) * self.slices
        self.result = self.placed(self.message_bytes // self.item, 0)

    def drawn(self, dtype: str, seed: int) -> StepData:
        bases = draw(self.n, self.message_bytes // self.item, dtype, seed)
        expected = bases[0].copy()
        for peer, base in enumerate(bases):
            expected[self.elements(peer * self.part, self.part)] = base[
                self.elements(self.rank * self.part, self.part)
            ]
        return StepData(bases[self.rank], expected, 1)

    def send_first(self) -> None:
        k = self.step & 1
        for j in range(self.slices):
            for distance in range(1, self.n):
                peer = (self.rank + distance) % self.n
                at = peer * self.part + j * self.slice
                self.send(
                    peer,
                    self.views[k][at : at + self.slice],
                    self.rank * self.part + j * self.slice,
                    0,
                    j,
                )
        own = self.elements(self.rank * self.part, self.part)
        self.result[k][own] = self.input[k][own]

    def sends(self, peer: int, stage: int) -> bool:
        return stage == 0

    def arrived(self, peer: int, stage: int, j: int) -> None:
        pass  # it is where it belongs
