"""Watts, prices and failures of a design, by hand."""

from __future__ import annotations

import pytest

from topologies import budget
from topologies.budget import Parts
from topologies.sizing import NIC_RATE, SWITCH_RATE, Size


def test_a_design_of_two_tiers_by_hand() -> None:
    size = Size(65_536, NIC_RATE, SWITCH_RATE, 8, 2)
    assert (size.switches, size.optics, size.links) == (3_072, 262_144, 1_048_576)
    parts = Parts(switch_watts=1000, optic_watts=10, switch_price=2, optic_price=3, cable_price=5)
    assert budget.watts(size, parts) == 3_072_000 + 2_621_440
    assert budget.price(size, parts) == 2 * 3_072 + 3 * 262_144 + 5 * 131_072


def test_as_many_are_down_as_fail_while_one_is_repaired() -> None:
    size = Size(65_536, NIC_RATE, SWITCH_RATE, 8, 2)
    parts = Parts(link_failures=0.001, switch_failures=0.002, repair_hours=budget.HOURS)  # a month
    assert budget.links_down(size, parts) == pytest.approx(1048.576) and budget.switches_down(
        size, parts
    ) == pytest.approx(6.144)
    assert budget.links_down(size, Parts(link_failures=0.001, repair_hours=0)) == 0
