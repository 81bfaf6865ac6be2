"""The calibration's fit finds the numbers that rings were made with, and its file holds what it was
given."""

from __future__ import annotations

import tomllib

import pytest

from testbed.fluid.calibration import FILE, Calibration, Shape, stored
from tests.testbed.fluid.against import Measured, fit, written
from topologies import Fabric
from topologies.fabrics import load_fabric
from topologies.timing import fill_ns, frame_ns, ring_step_ns
from topologies.units import NS

FABRIC = Fabric("f", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=2)
TRUE = Calibration(efficiency=0.9, wait_packets=3.0, sharpness=8.0)
RATE = float(FABRIC.host_rate)
LARGE, MIDDLE, SMALL = 64 << 20, 1 << 20, 64 << 10


def ring(message_bytes: int, rate: float = RATE) -> Measured:
    shape = Shape(FABRIC, 4, message_bytes, 2)
    return Measured("r", shape, 0, rate, RATE, TRUE.step_ns(shape, rate, RATE))


def test_the_fit_finds_all_numbers() -> None:
    solved = fit([ring(LARGE), ring(SMALL), ring(MIDDLE), ring(MIDDLE, RATE / 2), ring(600 << 10)])
    assert (solved.efficiency, solved.wait_packets) == pytest.approx((0.9, 3.0), rel=1e-3)
    assert solved.sharpness == pytest.approx(8.0, rel=0.02)


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_rings_of_one_kind_are_not_enough(size: int) -> None:
    with pytest.raises(ValueError, match="large and with small"):
        fit([ring(size)] * 4)


def test_without_calibration_a_step_is_timings() -> None:
    ideal = Calibration()
    for size in (LARGE, SMALL):
        step = ideal.step_ns(Shape(FABRIC, 4, size, 2), RATE, RATE)
        assert step == pytest.approx(
            ring_step_ns(FABRIC, 4, size, 2, RATE * FABRIC.payload_share), rel=1e-6
        )


def test_a_shared_link_costs_nothing_while_stages_wait() -> None:
    """Small slices leave ports idle, so half of the shared links may be gone; large ones need all
    of them."""
    small, large = Shape(FABRIC, 4, SMALL, 2), Shape(FABRIC, 4, LARGE, 2)
    assert TRUE.step_ns(small, RATE / 2, RATE) == pytest.approx(
        TRUE.step_ns(small, RATE, RATE), rel=0.01
    )
    assert TRUE.step_ns(large, RATE / 2, RATE) == pytest.approx(
        2 * TRUE.step_ns(large, RATE, RATE), rel=0.01
    )
    # a port that is gone is not shared
    assert TRUE.step_ns(small, RATE / 2, RATE / 2) > 1.05 * TRUE.step_ns(small, RATE, RATE)


def test_edges_under_one_t0_fill_shorter_paths() -> None:
    near, far = (
        TRUE.bounds_ns(Shape(FABRIC, 4, 3 * 4 * FABRIC.mtu, 1, across=share), RATE, RATE)[1]
        for share in (0.0, 1.0)
    )
    # log2 of one more than three packets
    wait_ns = 2 * TRUE.wait_packets * frame_ns(FABRIC, FABRIC.mtu, FABRIC.nic_rate)
    saved = fill_ns(FABRIC, False) - fill_ns(FABRIC, True) + wait_ns
    assert far - near == pytest.approx(6 * saved)


def test_the_file_holds_the_numbers_and_their_runs() -> None:
    data = tomllib.loads(written(TRUE, [ring(LARGE), ring(SMALL)]))
    assert (data["efficiency"], data["wait_packets"], data["sharpness"]) == (0.9, 3.0, 8.0)
    assert [run["message_bytes"] for run in data["ring"]] == [LARGE, SMALL]


def test_the_stored_numbers_fit_their_runs() -> None:
    """Each of the runs that the file names is within 5 %, runs with dead links are among them, and
    other numbers do worse."""
    runs = tomllib.loads(FILE.read_text())["ring"]
    assert {run["hosts"] for run in runs} == {4, 8, 16} and sum(
        run["dead_links"] > 0 for run in runs
    ) >= 10

    def off(calibration: Calibration) -> list[float]:
        shapes = [
            Shape(load_fabric(run["fabric"]), run["hosts"], run["message_bytes"], run["slices"])
            for run in runs
        ]
        steps = [
            calibration.step_ns(s, run["rate_bps"], run["port_rate_bps"])
            for s, run in zip(shapes, runs, strict=True)
        ]
        return [step / run["measured_ns"] - 1 for step, run in zip(steps, runs, strict=True)]

    assert max(map(abs, off(stored()))) < 0.05
    assert sum(d * d for d in off(Calibration())) > 4 * sum(d * d for d in off(stored()))


def test_a_slice_of_one_packet_takes_a_packets_time() -> None:
    fabric = FABRIC.with_(planes=4)
    shape = Shape(fabric, 8, 8 * fabric.mtu, 1, across=0.0)
    one_way = (fabric.local_delay_ps + fabric.data_ps(local=True)) / NS
    whole, half = (
        shape.bounds_ns(fabric.nic_rate * ports, fabric.nic_rate * ports)[1] for ports in (4, 2)
    )
    assert whole == pytest.approx(shape.stages * one_way, rel=2e-3) and half == pytest.approx(
        whole, rel=2e-3
    )
    even = Shape(fabric, 8, 4 * 8 * fabric.mtu, 1, across=0.0)
    assert even.uneven_ns(4 * fabric.nic_rate) == 0 < even.uneven_ns(3 * fabric.nic_rate)
