"""Adaptive routing in simulated T0s: the uplink with the least backlog for each packet, and none
that leads nowhere."""

from __future__ import annotations

from agents.packets import dscp
from testbed.dataplane.counters import books
from testbed.simulated.network import Network
from tests.simulated.test_queue import TINY, Bench, frame
from topologies.units import US

ADAPTIVE = TINY.with_(name="tiny-adaptive", routing="adaptive")
UPLINKS = ("p0-t0-0-u0", "p0-t0-0-u1")


class Choosing(Bench):
    def __init__(self) -> None:
        super().__init__()
        self.net = Network(ADAPTIVE)
        self.net.describe(ADAPTIVE, 0)
        self.net.stations[2] = self

    def sent_over(self, count: int, **waiting: int) -> list[int]:
        """Send frames that name uplink 0, one after the other, past so many bytes of backlog; how
        many took each uplink."""
        before = [self.row(name)["admitted_packets"] for name in UPLINKS]
        for _ in range(count):
            assert self.one(frame(1000, dscp.ROCE), **waiting) is not None
        return [
            self.row(name)["admitted_packets"] - was
            for name, was in zip(UPLINKS, before, strict=True)
        ]


def test_idle_uplinks_take_turns_and_the_source_names_none_of_them() -> None:
    assert Choosing().sent_over(20) == [10, 10]


def test_the_least_loaded_uplink_takes_every_packet() -> None:
    bench = Choosing()
    assert bench.sent_over(20, p0_t0_0_u0=5000) == [0, 20]
    assert bench.sent_over(20, p0_t0_0_u0=5000, p0_t0_0_u1=6000) == [20, 0]


def test_a_burst_from_two_hosts_is_spread_evenly_and_arrives_in_any_order() -> None:
    bench = Choosing()
    for _ in range(50):
        for host in (0, 1):
            bench.net.send(host, 0, frame(4000, dscp.ROCE, src=host))
    bench.net.run(bench.net.time + 100 * US)
    shares = [bench.row(name)["admitted_packets"] for name in UPLINKS]
    assert sum(shares) == 100 and abs(shares[0] - shares[1]) <= 2
    assert len(bench.got) == 100 and books(bench.net.rows()) == []


def test_an_uplink_whose_cable_is_down_is_passed_over_at_once() -> None:
    bench = Choosing()
    bench.net.set_link(TINY.link("p0-t0-0:p0-t1-0"), up=False)
    assert bench.sent_over(10) == [0, 10]
    bench.net.set_link(TINY.link("p0-t0-0:p0-t1-0"), up=True)
    assert bench.sent_over(10) == [5, 5]


def test_a_t1_that_has_lost_the_far_t0_is_avoided_once_the_network_has_converged() -> None:
    bench = Choosing()
    far = TINY.link("p0-t0-1:p0-t1-1")
    bench.net.set_link(far, up=False)
    got = [bench.one(frame(1000, dscp.ROCE)) is not None for _ in range(10)]
    assert got.count(True) == 5, "its own ports are all that a switch knows"
    bench.net.reroute([far])
    assert bench.sent_over(10) == [10, 0]
    bench.net.reroute([])
    bench.net.set_link(far, up=True)
    assert bench.sent_over(10) == [5, 5]


def test_without_any_way_the_named_one_is_taken_and_counts_the_drop() -> None:
    bench = Choosing()
    for name in ("p0-t0-0:p0-t1-0", "p0-t0-0:p0-t1-1"):
        bench.net.set_link(TINY.link(name), up=False)
    assert bench.one(frame(1000, dscp.ROCE)) is None
    assert bench.row(UPLINKS[0])["drop_link_down_packets"] == 1
