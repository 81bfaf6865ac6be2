"""Collectives in many more orders than `make test` tries, and over more lossy engines. Needs
neither root nor a fabric.

MRCBED_SOAK_ORDERS: seeds of each collective and number of ranks (default 100).
"""

from __future__ import annotations

import os

import pytest

from agents.collectives.data import DTYPES
from tests.agents.test_collectives import NAMES, SERVED, orders, over_mrc

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]
SEEDS = int(os.environ.get("MRCBED_SOAK_ORDERS", "100"))


@pytest.mark.parametrize(("name", "n"), SERVED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_in_whatever_order_things_come(name: str, n: int, dtype: str) -> None:
    orders(name, n, dtype, range(SEEDS))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("n", "qps", "dtype"), [(2, 1, "int32"), (4, 2, "float32"), (8, 1, "float32")]
)
def test_exact_over_mrc_with_loss_copies_and_reordering(
    name: str, n: int, qps: int, dtype: str
) -> None:
    assert sum(over_mrc(name, n, qps, dtype, seed) for seed in range(max(5, SEEDS // 10))) > 0
