"""Draws inputs of a collective and the exact results they must give, the same on every rank from
one seed.

Each rank's base array is a part of one sequence. A step's input is the base, transformed so exactly
that the expected result needs no second reduction: int32 adds the step number (wrapping), float32
multiplies by a power of two. Sums are made in the collective's own order, so results are compared
bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

# NumPy would import it on first use, when root is dropped and the clone may be out of reach
import numpy.random
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

DTYPES = {"float32": np.dtype(np.float32), "int32": np.dtype(np.int32)}
TYPES = DTYPES | {
    name: np.dtype(name)
    for name in (
        "float16",
        "float64",
        "int8",
        "int16",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    )
}
Array = NDArray[Any]
Types = Mapping[str, np.dtype[np.generic]]
ALL = slice(None)


APART = 1009
"""Elements between two ranks' base arrays. A prime: no misplaced data is that far off."""


def draw(ranks: int, count: int, dtype: str, seed: int) -> list[Array]:
    """The arrays are to be read only."""
    sequence = _sequence((ranks - 1) * APART + count, dtype, seed)
    return [sequence[rank * APART : rank * APART + count] for rank in range(ranks)]


@lru_cache(maxsize=1)
def _sequence(count: int, dtype: str, seed: int) -> Array:
    rng = numpy.random.default_rng(seed)
    sequence: Array
    if dtype == "float32":
        sequence = rng.random(count, np.float32)
        sequence *= np.float32(2.0)
        sequence -= np.float32(1.0)
    else:
        sequence = rng.integers(-(1 << 30), 1 << 30, count, dtype=np.int32)
    sequence.flags.writeable = False
    return sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class StepData:
    def __init__(self, base: Array, expected: Array, terms: int) -> None:
        self.base = base
        self.expected = expected
        self.terms = terms
        self.floating = base.dtype == np.float32

    # A channel's data (channel.py) is a user's: it overrides both.

    def fill(self, step: int, out: Array, part: slice = ALL) -> None:
        """``out``: as long as the part."""
        if self.floating:
            np.multiply(self.base[part], np.float32(2.0 ** (step % 8 - 4)), out=out)
        else:
            np.add(self.base[part], np.int32(step), out=out)

    def wrong(self, step: int, result: Array, part: slice = ALL) -> int:
        expected: Array
        if self.floating:
            expected = self.expected[part] * np.float32(2.0 ** (step % 8 - 4))
        else:
            expected = self.expected[part] + np.int32(step * self.terms)
        return int(np.count_nonzero(result[part] != expected))
