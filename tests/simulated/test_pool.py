"""A switch's shared memory: what queues may hold of it under dynamic thresholds, computed by hand,
and that all of it is free again."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from agents.packets import dscp
from testbed.dataplane.counters import books
from testbed.simulated.pool import Pool
from tests.simulated.test_pfc import FRAME, over
from tests.simulated.test_queue import CUT, DOWN, LAST_HOP, TINY, UPLINK, Bench, frame
from topologies.clos import Fabric
from topologies.units import MS, US

FULL = TINY.frame_bytes
OTHER = "p0-t0-0-u1"
SIZE = 250_000
"""Of a T0 of `tiny`: four ports of 100 Gb/s, at 0.625 MB per Tb/s."""


class Shared(Bench):
    """``tiny`` with pools; NIC ports take any burst, and uplinks of the first T0 are slow."""

    def __init__(self, slow: Iterable[str] = (UPLINK,), **changes: object) -> None:
        changes = {"pool_mb_per_tbps": 0.625, "ecn": False, "buffer_bdp": 1000.0, **changes}
        super().__init__(**changes)
        self.fabric: Fabric = TINY.with_(**changes)
        self.pool: Pool = self.port(UPLINK).pool
        self.net.set_rates((self.names[name], TINY.nic_rate // 10) for name in slow)

    def levels(self, *names: str) -> list[int]:
        """The most that waits at these ports in the next 20 frames: one less may wait when a frame
        has just left."""
        most = [0] * len(names)
        for _ in range(20):
            self.net.run(self.net.time + FRAME)
            most = [
                max(level, int(self.port(name).waiting))
                for level, name in zip(most, names, strict=True)
            ]
        return most

    def burst(self, host: int, uplink: int, count: int) -> None:
        for _ in range(count):
            assert self.net.send(host, 0, over(uplink, host))

    def settle(self) -> None:
        """Wait until all is quiet: then nothing is held."""
        self.net.run(self.net.time + 20 * MS)
        assert self.net.quiet() and books(self.net.rows()) == []
        assert all(
            port.pool.used == 0 and port.held.size == port.held.beyond == 0 and not port.held.stops
            for port in self.net.ports
        )


def alone(alpha: float, size: int = SIZE) -> int:
    """The bytes of whole frames that the only busy queue may hold."""
    return int(alpha * size / (1 + alpha)) // FULL * FULL


@pytest.mark.parametrize("alpha", [0.0625, 0.5, 1.0, 8.0, 64.0])
def test_one_hot_queue_holds_alpha_of_one_plus_alpha_of_the_pool_to_the_frame(alpha: float) -> None:
    bench = Shared(pool_alpha=alpha)
    assert bench.pool.size == SIZE
    bench.burst(0, 0, 120)
    bench.net.run(bench.net.time + 120 * FRAME)
    row = bench.row(UPLINK)
    assert row["backlog_peak_bytes"] == bench.pool.peak == alone(alpha)
    assert row["drop_tail_packets"] > 0 and alone(alpha) - bench.port(UPLINK).waiting <= FULL
    bench.settle()
    assert bench.row(UPLINK)["drop_tail_packets"] + len(bench.got) == 120


@pytest.mark.parametrize("alpha", [0.5, 1.0, 8.0])
def test_two_hot_queues_hold_alpha_of_one_plus_two_alpha_each(alpha: float) -> None:
    bench = Shared((UPLINK, OTHER), pool_alpha=alpha)
    for host in (0, 1):
        bench.burst(host, host, 150)
    bench.net.run(bench.net.time + 100 * FRAME)
    levels = bench.levels(UPLINK, OTHER)
    assert all(abs(level - alpha * SIZE / (1 + 2 * alpha)) <= FULL for level in levels), levels
    assert bench.row(UPLINK)["drop_tail_packets"] and bench.row(OTHER)["drop_tail_packets"]
    assert bench.pool.used == bench.port(UPLINK).waiting + bench.port(OTHER).waiting
    bench.settle()


def test_a_queue_gives_way_when_another_becomes_hot() -> None:
    bench = Shared((UPLINK, OTHER), pool_alpha=1.0)
    bench.burst(0, 0, 240)
    bench.net.run(bench.net.time + 60 * FRAME)
    assert bench.levels(UPLINK) == [alone(1.0)]
    bench.burst(1, 1, 180)
    bench.net.run(bench.net.time + 140 * FRAME)
    levels = bench.levels(UPLINK, OTHER)
    assert all(abs(level - SIZE / 3) <= FULL for level in levels), levels
    bench.settle()


def test_without_a_pool_ports_have_their_own_buffers_and_nothing_is_counted() -> None:
    bench = Shared(pool_mb_per_tbps=0.0, buffer_bdp=2.0)
    bench.burst(0, 0, 50)
    bench.settle()
    assert (bench.pool.size, bench.pool.peak) == (0, 0)
    assert bench.port(UPLINK).limit == bench.fabric.port_bytes == bench.fabric.buffer_bytes


@pytest.mark.parametrize(("trim_bdp", "held"), [(0.5, TINY.plane_bdp / 2), (1000.0, SIZE / 2)])
def test_trimming_begins_at_its_own_threshold_or_at_the_pools(trim_bdp: float, held: float) -> None:
    bench = Shared(pool_alpha=1.0, trim_bdp=trim_bdp)
    for _ in range(100):
        bench.net.send(0, 0, frame(FULL))
    bench.net.run(bench.net.time + 100 * FRAME)
    row = bench.row(UPLINK)
    assert (
        row["backlog_peak_bytes"] == int(held) // FULL * FULL
        and bench.pool.used <= row["backlog_peak_bytes"]
    )
    assert row["trimmed"] > 0 and row["drop_tail_packets"] == 0
    bench.settle()
    cut = [made for _, made in bench.got if len(made) == CUT]
    assert len(cut) == bench.row(UPLINK)["trimmed"] and len(bench.got) == 100


def test_a_port_trims_earlier_where_others_fill_the_pool() -> None:
    bench, others = Shared(pool_alpha=1.0), 150_000
    bench.pool.used = others
    for _ in range(50):
        bench.net.send(0, 0, frame(FULL))
    bench.net.run(bench.net.time + 50 * FRAME)
    assert (
        bench.row(UPLINK)["backlog_peak_bytes"]
        == alone(1.0, SIZE - others)
        < bench.fabric.trim_bytes(False)
    )
    bench.pool.used -= others
    bench.settle()


@pytest.mark.parametrize("alpha", [0.125, 1.0, 8.0])
def test_a_sender_is_paused_at_the_dynamic_threshold_and_nothing_is_lost(alpha: float) -> None:
    bench = Shared(pfc=True, pool_alpha_lossless=alpha)
    bench.burst(0, 0, 150)
    held, beyond = bench.port("p0-t0-0-d0").held, 0
    for _ in range(100):
        bench.net.run(bench.net.time + FRAME)
        beyond = max(beyond, int(held.beyond))
        assert held.size - held.beyond == bench.pool.used
    assert bench.pool.peak == alone(alpha)  # what came until the pause took effect is in headroom
    assert (
        5 * FULL < beyond <= bench.fabric.pfc_headroom(TINY.nic_rate)
        and bench.row("h0-p0")["pauses"]
    )
    bench.settle()
    assert len(bench.got) == 150 and sum(row["drop_tail_packets"] for row in bench.net.rows()) == 0


@pytest.mark.parametrize("size_mb", [0.0625, 0.25])
@pytest.mark.parametrize("alpha", [1.0, 64.0])
def test_headroom_suffices_whatever_the_pool(alpha: float, size_mb: float) -> None:
    bench = Shared((LAST_HOP,), pfc=True, pool_alpha_lossless=alpha, pool_mb_per_tbps=size_mb)
    bench.burst(0, 0, 150)
    bench.burst(1, 1, 150)
    bench.settle()
    assert len(bench.got) == 300 and sum(row["drop_tail_packets"] for row in bench.net.rows()) == 0
    assert all(port.pool.peak <= port.pool.size for port in bench.net.ports if port.host < 0)
    assert bench.row("h0-p0")["pauses"] and bench.row("p0-t1-0-d1")["pauses"]


@pytest.mark.parametrize("pfc", [False, True])
def test_a_cable_that_goes_down_gives_back_what_waited_for_it(pfc: bool) -> None:
    bench = Shared(pfc=pfc)
    bench.burst(0, 0, 100)
    bench.net.run(bench.net.time + 60 * FRAME)
    assert bench.pool.used > 10 * FULL
    link = TINY.link("p0-t0-0:p0-t1-0")
    bench.net.set_link(link, up=False)
    assert bench.pool.used == 0
    bench.net.run(bench.net.time + 100 * US)
    bench.net.set_link(link, up=True)
    before = len(bench.got)
    bench.burst(0, 0, 10)
    bench.settle()
    assert len(bench.got) >= before + 10


def test_control_has_a_buffer_of_its_own_when_the_pool_is_full() -> None:
    bench = Shared()
    bench.pool.used = SIZE
    bench.net.send(0, 0, frame(200, dscp.CONTROL))
    bench.net.send(0, 0, frame(FULL, dscp.ROCE))
    bench.net.run(bench.net.time + 100 * US)
    assert len(bench.got) == 1 and bench.row(UPLINK)["drop_tail_packets"] == 1
    assert bench.port(DOWN).pool.used == 0


def test_each_switch_has_a_pool_of_its_own_rate() -> None:
    fabric = TINY.with_(hosts_per_t0=4, pool_mb_per_tbps=3.0)
    assert fabric.pool_bytes == (6 * 300_000, 2 * 300_000)
    bench = Shared()
    pools = {id(port.pool): port.pool.size for port in bench.net.ports if port.host < 0}
    assert list(pools.values()) == [SIZE if "t0" in name else SIZE // 2 for name in TINY.switches]
    assert all(port.pool.size == 0 for port in bench.net.ports if port.host >= 0)
