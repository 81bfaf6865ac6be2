"""The calibration's fit finds what rings were made with, and its file holds what it was given."""

from __future__ import annotations

import tomllib

import pytest

from testbed.errors import UserError
from testbed.fluid.calibration import FILE, Calibration, Ring, fit, stored, written
from topologies import Fabric

FABRIC = Fabric("f", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=2).real
MADE = Calibration(efficiency=0.9, wait_packets=3.0)
LARGE, SMALL = 64 << 20, 64 << 10


def ring(message_bytes: int) -> Ring:
    rate = float(FABRIC.host_rate)
    return Ring("r", FABRIC, 4, message_bytes, 2, 0, rate, MADE.ring_ns(FABRIC, 4, message_bytes, 2, rate))


def test_the_fit_finds_both_numbers() -> None:
    found = fit([ring(LARGE), ring(SMALL)])
    assert (found.efficiency, found.wait_packets) == pytest.approx((0.9, 3.0))


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_rings_of_one_kind_are_not_enough(size: int) -> None:
    with pytest.raises(UserError, match="large and with small"):
        fit([ring(size)])


def test_the_file_holds_the_numbers_and_their_runs() -> None:
    data = tomllib.loads(written(MADE, [ring(LARGE), ring(SMALL)]))
    assert data["efficiency"] == 0.9 and data["wait_packets"] == 3.0
    assert [run["message_bytes"] for run in data["ring"]] == [LARGE, SMALL]


def test_the_stored_numbers_are_those_that_its_runs_give() -> None:
    """Nobody typed them in: efficiency is the median of ideal by measured over the rings that send without pause."""
    data = tomllib.loads(FILE.read_text())
    ratios = sorted(run["ideal_ns"] / run["measured_ns"] for run in data["ring"])
    assert len(ratios) >= 6 and ratios[0] < stored().efficiency <= ratios[-1]
    assert {run["hosts"] for run in data["ring"]} >= {4, 16}
