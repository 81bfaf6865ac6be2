"""What a ring all-reduce must give: NumPy's own sum, bit for bit, on every rank and step; and a wrong element is seen."""

from __future__ import annotations

import numpy as np
import pytest

from agents.collectives.data import DTYPES, RingData

COUNT = 240


def inputs(dtype: str, ranks: int, step: int) -> list[np.ndarray]:
    made = []
    for rank in range(ranks):
        out = np.empty(COUNT, DTYPES[dtype])
        RingData(ranks, rank, COUNT, dtype, 7).fill(step, out)
        made.append(out)
    return made


def ring_sum(arrays: list[np.ndarray]) -> np.ndarray:
    """The reduction as the ring does it: chunk c starts at rank c and travels up."""
    n = len(arrays)
    chunk = COUNT // n
    total = np.empty_like(arrays[0])
    for c in range(n):
        part = slice(c * chunk, (c + 1) * chunk)
        acc = arrays[c][part]
        for k in range(1, n):
            acc = arrays[(c + k) % n][part] + acc
        total[part] = acc
    return total


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("step", [0, 1, 7, 8, 1000])
def test_the_expected_result_is_the_rings_sum_bit_for_bit(dtype: str, ranks: int, step: int) -> None:
    total = ring_sum(inputs(dtype, ranks, step))
    for rank in range(ranks):
        assert RingData(ranks, rank, COUNT, dtype, 7).wrong(step, total) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_agrees_with_a_plain_sum_in_double_width(dtype: str) -> None:
    arrays = inputs(dtype, 4, 3)
    total = ring_sum(arrays)
    if dtype == "int32":
        wide = sum(a.astype(np.int64) for a in arrays)
        assert np.array_equal(total, (wide & 0xFFFFFFFF).astype(np.uint32).view(np.int32))  # wraps as NumPy does
    else:
        assert np.allclose(total, sum(a.astype(np.float64) for a in arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_wrong_element_is_counted(dtype: str) -> None:
    data = RingData(4, 0, COUNT, dtype, 7)
    total = ring_sum(inputs(dtype, 4, 5))
    for bad in ([0], [COUNT - 1], [3, 60, 61]):
        broken = total.copy()
        broken.view(np.uint32)[bad] ^= 1  # the last bit of a mantissa is enough
        assert data.wrong(5, broken) == len(bad)
    assert data.wrong(6, total) > COUNT // 2  # another step's result is not this one's


@pytest.mark.parametrize("dtype", DTYPES)
def test_ranks_differ_and_seeds_differ_and_repeat(dtype: str) -> None:
    a = RingData(2, 0, COUNT, dtype, 1).base
    assert np.array_equal(a, RingData(2, 0, COUNT, dtype, 1).base)
    assert not np.array_equal(a, RingData(2, 1, COUNT, dtype, 1).base)
    assert not np.array_equal(a, RingData(2, 0, COUNT, dtype, 2).base)


def test_a_nan_is_wrong() -> None:
    total = ring_sum(inputs("float32", 2, 0))
    total[5] = np.nan
    assert RingData(2, 0, COUNT, "float32", 7).wrong(0, total) == 1
