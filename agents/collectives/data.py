"""Inputs of a collective and the exact results they must give, the same on every rank from one seed.

Each rank's base array is drawn once; a step's input is the base transformed so cheaply and exactly that the expected result needs no
second reduction: int32 adds the step number (wrapping, as NumPy does), float32 multiplies by a power of two, which is exact. The
float reference adds in the ring's order, so results are compared bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

DTYPES = {"float32": np.dtype(np.float32), "int32": np.dtype(np.int32)}


class RingData:
    """Inputs and expected sums of a ring all-reduce over ``ranks`` ranks of ``count`` elements each (a multiple of ``ranks``)."""

    def __init__(self, ranks: int, rank: int, count: int, dtype: str, seed: int) -> None:
        self.dtype = DTYPES[dtype]
        self.ranks = ranks
        self.floating = dtype == "float32"
        bases = [self._base(k, count, seed) for k in range(ranks)]
        self.base = bases[rank]
        chunk = count // ranks
        total = np.empty(count, self.dtype)
        for c in range(ranks):
            part = slice(c * chunk, (c + 1) * chunk)
            acc = bases[c][part].copy()
            for k in range(1, ranks):
                acc = bases[(c + k) % ranks][part] + acc
            total[part] = acc
        self.total = total

    def _base(self, rank: int, count: int, seed: int) -> NDArray[Any]:
        rng = np.random.default_rng((seed, rank))
        if self.floating:
            return rng.uniform(-1.0, 1.0, count).astype(np.float32)
        return rng.integers(-(1 << 30), 1 << 30, count, dtype=np.int32)

    def fill(self, step: int, out: NDArray[Any]) -> None:
        """This rank's input of a step."""
        if self.floating:
            np.multiply(self.base, np.float32(2.0 ** (step % 8 - 4)), out=out)
        else:
            np.add(self.base, np.int32(step), out=out)

    def wrong(self, step: int, result: NDArray[Any]) -> int:
        """How many elements of a result differ from NumPy's."""
        if self.floating:
            expected = self.total * np.float32(2.0 ** (step % 8 - 4))
        else:
            expected = self.total + np.int32(step * self.ranks)
        return int(np.count_nonzero(result != expected))
