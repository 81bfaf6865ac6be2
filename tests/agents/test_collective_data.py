"""What a sum of everyone's inputs must be: NumPy's own, bit for bit, in the order of the algorithm;
and a wrong element is seen."""

from __future__ import annotations

import numpy as np
import pytest

from agents.collectives.data import DTYPES, Array, StepData, draw
from agents.collectives.ring import ring_sum
from agents.collectives.tree import tree_sum

COUNT = 240
ORDERS = {"ring": ring_sum, "tree": tree_sum}


def by_hand(order: str, a: list[Array]) -> Array:
    """Four ranks, written out."""
    total: Array = (
        a[3] + (a[2] + (a[1] + a[0])) if order == "ring" else (a[0] + a[2]) + (a[1] + a[3])
    )
    return total


def data(order: str, dtype: str, rank: int = 0) -> StepData:
    bases = draw(4, COUNT, dtype, 7)
    return StepData(bases[rank], ORDERS[order](bases), 4)


def inputs(dtype: str, step: int) -> list[Array]:
    made = []
    for rank in range(4):
        out = np.empty(COUNT, DTYPES[dtype])
        data("ring", dtype, rank).fill(step, out)
        made.append(out)
    return made


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("step", [0, 1, 7, 8, 1000])
def test_the_expected_result_is_the_sum_of_the_inputs_bit_for_bit(
    dtype: str, order: str, step: int
) -> None:
    assert data(order, dtype).wrong(step, by_hand(order, inputs(dtype, step))) == 0


def test_the_order_of_a_float_sum_shows() -> None:
    ring, tree = (by_hand(order, inputs("float32", 3)) for order in ORDERS)
    assert 0 < data("ring", "float32").wrong(3, tree) < COUNT
    assert 0 < data("tree", "float32").wrong(3, ring) < COUNT


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_agrees_with_a_plain_sum_in_double_width(dtype: str) -> None:
    arrays = inputs(dtype, 3)
    for order in ORDERS:
        total = by_hand(order, arrays)
        if dtype == "int32":
            wide = np.sum([a.astype(np.int64) for a in arrays], axis=0)
            # wraps as NumPy does
            assert np.array_equal(total, (wide & 0xFFFFFFFF).astype(np.uint32).view(np.int32))
        else:
            assert np.allclose(
                total, sum(a.astype(np.float64) for a in arrays), rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_wrong_element_is_counted(dtype: str) -> None:
    total = by_hand("ring", inputs(dtype, 5))
    for bad in ([0], [COUNT - 1], [3, 60, 61]):
        broken = total.copy()
        broken.view(np.uint32)[bad] ^= 1  # the last bit of a mantissa is enough
        assert data("ring", dtype).wrong(5, broken) == len(bad)
    # another step's result is not this one's
    assert data("ring", dtype).wrong(6, total) > COUNT // 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_only_moved_takes_one_term(dtype: str) -> None:
    bases = draw(2, COUNT, dtype, 7)
    moved = StepData(bases[0], bases[1], 1)
    out = np.empty(COUNT, DTYPES[dtype])
    StepData(bases[1], bases[0], 1).fill(9, out)
    assert moved.wrong(9, out) == 0 and moved.wrong(10, out) > COUNT // 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_ranks_differ_and_seeds_differ_and_repeat(dtype: str) -> None:
    a, b = draw(2, COUNT, dtype, 1)
    assert np.array_equal(a, draw(2, COUNT, dtype, 1)[0])
    assert np.array_equal(a, draw(5, COUNT, dtype, 1)[0]), "however many ranks there are"
    assert not np.array_equal(a, b)
    assert not np.array_equal(a, draw(2, COUNT, dtype, 2)[0])


def test_a_nan_is_wrong() -> None:
    total = by_hand("ring", inputs("float32", 0))
    total[5] = np.nan
    assert data("ring", "float32").wrong(0, total) == 1
