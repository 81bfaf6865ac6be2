"""PFC on simulated switches: who is paused, when, for how long, and that nothing is lost meanwhile.
Every figure computed by hand."""

from __future__ import annotations

import pytest

from agents.packets import dscp
from testbed.dataplane.counters import books
from tests.simulated.test_queue import LAST_HOP, NIC, TINY, UPLINK, Bench, frame
from topologies.addressing import ev, path_address
from topologies.units import BYTE, MS, US

FULL = TINY.frame_bytes
FRAME = FULL * BYTE // TINY.nic_rate
FROM_T1 = ("p0-t1-0-d1", "p0-t1-1-d1")


def over(uplink: int, host: int = 0) -> bytes:
    """A full RoCE frame from a host to h2 by this uplink of plane 0."""
    sent = bytearray(frame(FULL, dscp.ROCE, src=host))
    sent[38:54] = path_address(TINY, 0, 2, ev(0, uplink))
    return bytes(sent)


class Lossless(Bench):
    """``stopped``: (time, whether paused) of h0's port on plane 0."""

    def __init__(self, xoff_bdp: float = 0.5) -> None:
        super().__init__(pfc=True, pfc_xoff_bdp=xoff_bdp)
        self.fabric = TINY.with_(pfc=True, pfc_xoff_bdp=xoff_bdp)
        self.stopped: list[tuple[int, bool]] = []
        self.net.stations[0] = self

    def port_paused(self, plane: int, paused: bool) -> None:
        self.stopped.append((self.net.time, paused))

    def burst(self, host: int, uplink: int, count: int) -> None:
        for _ in range(count):
            assert self.net.send(host, 0, over(uplink, host))

    def settle(self) -> None:
        self.net.run(self.net.time + MS)
        assert self.net.quiet() and books(self.net.rows()) == []
        assert all(
            port.held.size == 0 and not port.held.stops and not port.pause.on
            for port in self.net.ports
        )


def test_two_senders_on_one_uplink_lose_nothing_and_share_it() -> None:
    bench = Lossless()
    for host in (0, 1):
        bench.burst(host, 0, 500)
    bench.settle()
    assert len(bench.got) == 1000 and sum(row["drop_tail_packets"] for row in bench.net.rows()) == 0
    for nic, ingress in (("h0-p0", "p0-t0-0-d0"), ("h1-p0", "p0-t0-0-d1")):
        assert bench.row(nic)["pauses"] > 3
        assert bench.port(ingress).held.limit == bench.fabric.pfc_bytes[
            0
        ] + bench.fabric.pfc_headroom(TINY.nic_rate)
    assert bench.row(UPLINK)["pauses"] == 0
    # the uplink never stood still: two full queues took turns
    assert bench.got[-1][0] - bench.got[0][0] == pytest.approx(999 * FRAME, rel=1e-6)


def test_without_pfc_the_same_load_is_dropped() -> None:
    bench = Bench()
    for _ in range(500):
        bench.net.send(0, 0, over(0))
        bench.net.send(1, 0, over(0))
    bench.net.run(bench.net.time + MS)
    assert len(bench.got) < 1000
    assert "pauses" not in bench.row(NIC)


def test_a_sender_stops_pfc_ns_after_the_frame_that_crosses_xoff() -> None:
    bench = Lossless()
    xoff, _ = bench.fabric.pfc_bytes
    begun = bench.net.time
    for host in (0, 1):
        bench.burst(host, 0, 200)
    bench.net.run(begun + 200 * FRAME)
    # Of every two frames that come in, one of each host, one has left when the next two come: each
    # host's backlog grows by half a frame a frame time, and one more frame of the first is on the
    # wire.
    at, paused = bench.stopped[0]
    assert paused
    # frames of h0 that had come when the limit was crossed
    came = (at - bench.fabric.pfc_ps - begun) // FRAME
    assert came / 2 * FULL == pytest.approx(xoff, abs=2 * FULL)
    assert (at - bench.fabric.pfc_ps - begun) % FRAME == 0
    bench.settle()


def test_congestion_at_the_last_hop_spreads_from_switch_to_switch_to_the_senders() -> None:
    bench = Lossless()
    bench.burst(0, 0, 800)
    bench.burst(1, 1, 800)
    bench.settle()
    assert len(bench.got) == 1600 and sum(row["drop_tail_packets"] for row in bench.net.rows()) == 0
    for names in (FROM_T1, ("p0-t0-0-u0", "p0-t0-0-u1"), ("h0-p0", "h1-p0")):
        for name in names:
            row = bench.row(name)
            assert row["pauses"] >= 1 and row["paused_ps"] >= row["longest_pause_ps"] > 0, name
    assert bench.row(LAST_HOP)["pauses"] == 0
    firsts = [bench.port(name).pause.since for name in ("p0-t1-0-d1", "p0-t0-0-u0", "h0-p0")]
    assert firsts[0] > 0


def test_what_is_not_in_the_lossless_class_is_trimmed_and_dropped_as_ever() -> None:
    bench = Lossless()
    for _ in range(300):
        for host in (0, 1):
            bench.net.send(host, 0, frame(FULL, dscp.TRIMMABLE, src=host))
    bench.net.run(bench.net.time + MS)
    assert bench.row(UPLINK)["trimmed"] > 0 and bench.row("h0-p0")["pauses"] == 0


def test_a_cable_that_goes_down_lets_go_of_all_that_waited_for_it() -> None:
    bench = Lossless()
    for host in (0, 1):
        bench.burst(host, 0, 200)
    bench.net.run(bench.net.time + 60 * FRAME)
    assert bench.port("p0-t0-0-d0").held.size > 0 and bench.stopped
    link = TINY.link("p0-t0-0:p0-t1-0")
    bench.net.set_link(link, up=False)
    bench.net.run(bench.net.time + 100 * US)
    bench.settle()
    assert bench.row(UPLINK)["drop_link_down_packets"] > 0
    assert bench.stopped[-1][1] is False
    bench.net.set_link(link, up=True)
    before = len(bench.got)
    bench.burst(0, 0, 10)
    bench.settle()
    assert len(bench.got) == before + 10


def test_a_paused_nic_whose_cable_is_pulled_is_not_paused_when_it_is_back() -> None:
    bench = Lossless()
    for host in (0, 1):
        bench.burst(host, 0, 300)
    while not bench.stopped:
        bench.net.run(bench.net.time + FRAME)
    nic = TINY.link("h0:p0-t0-0")
    bench.net.set_link(nic, up=False)
    assert bench.stopped[-1][1] is False
    bench.net.set_link(nic, up=True)
    bench.settle()
    before = len(bench.got)
    bench.burst(0, 0, 5)
    bench.settle()
    assert len(bench.got) == before + 5
