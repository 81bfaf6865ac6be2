"""The virtual network obeys the queue rules and the fabric's figures: what engine tests conclude
rests on it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from agents.mrc.endpoint import Endpoint
from agents.packets import dscp, headers
from agents.transport import NEVER
from tests.agents.nic.egress import TRIM_BYTES, Egress, dscp_of, is_high
from tests.agents.virtual import VirtualNetwork, connect
from tests.fabrics import near
from topologies import addressing
from topologies.clos import Fabric
from topologies.paths import path_evs
from topologies.units import MS, NS, US

TINY = near(Fabric("tiny", 2, 2, 2, 2))
MIDDLE = "p0-t0-0-u0"


def frame(
    klass: int, length: int = TINY.frame_bytes, ecn: int = dscp.ECT0, path: bytes = bytes(16)
) -> bytes:
    """Outer header right, the rest a count."""
    head = headers.head(
        (bytes(16), path), (bytes(16), bytes(16)), 0, klass, ecn, length - headers.HEAD
    )
    made = head + bytes(k & 0xFF for k in range(length - len(head)))
    assert len(made) == length and dscp_of(made) == klass
    return made


def ecn_of(data: bytes) -> int:
    return data[15] >> 4 & 3


def port(last_hop: bool = False, switch: bool = True, seed: int = 0, **changes: Any) -> Egress:
    fabric = TINY.with_(**changes)
    return Egress(fabric, fabric.nic_rate, switch, last_hop, Random(seed))


def filled(egress: Egress, data_bytes: int) -> Egress:
    """``data_bytes`` of unmarkable data wait."""
    egress.data.append(bytes(data_bytes))
    egress.backlog = data_bytes
    return egress


# --- the rules, one port --------------------------------------------------------------------------


def marks(backlog: int, sent: bytes, last_hop: bool = False, **changes: Any) -> float:
    """Share of packets marked at a standing backlog."""
    egress = port(last_hop, trimming=False, **changes)
    for _ in range(1000):
        filled(egress, backlog)
        assert egress.offer(0, sent)
        got = egress.data.pop()
        assert (
            ecn_of(got) in (ecn_of(sent), dscp.CE)
            and got[:14] + got[16:] == sent[:14] + sent[16:]
            and dscp_of(got) == dscp_of(sent)
        )
    return egress.marked / 1000


def test_marking_is_a_ramp_between_its_thresholds() -> None:
    low, high = TINY.ecn_bytes
    data = frame(dscp.TRIMMABLE)
    assert [marks(b, data) for b in (0, low, high, 2 * high)] == [0, 0, 1, 1]
    assert [marks(low + (high - low) * k // 4, data) for k in (1, 2, 3)] == pytest.approx(
        [0.25, 0.5, 0.75], abs=0.05
    )


@pytest.mark.parametrize(
    ("sent", "last_hop", "changes", "share"),
    [
        (frame(dscp.NO_TRIM, ecn=dscp.ECT0), False, {}, 1),
        (frame(dscp.NO_TRIM, ecn=1), False, {}, 1),
        (frame(dscp.NO_TRIM, ecn=dscp.NOT_ECT), False, {}, 0),
        (frame(dscp.NO_TRIM), False, {"ecn": False}, 0),
        (frame(dscp.NO_TRIM), True, {}, 0),
        (frame(dscp.NO_TRIM), True, {"last_hop_ecn": True}, 1),
        (frame(dscp.ROCE), True, {}, 1),
        (frame(dscp.ROCE), True, {"ecn": False}, 0),
    ],
)
def test_who_is_marked_where(
    sent: bytes, last_hop: bool, changes: dict[str, Any], share: float
) -> None:
    assert marks(TINY.ecn_bytes[1], sent, last_hop, **changes) == share


@pytest.mark.parametrize("last_hop", [False, True])
@pytest.mark.parametrize("klass", [dscp.TRIMMABLE, dscp.TRIMMABLE_RETX])
@pytest.mark.parametrize("length", [110, 141, 142, 143, TINY.frame_bytes])
def test_trimming_cuts_to_the_headers_and_says_so(last_hop: bool, klass: int, length: int) -> None:
    threshold = TINY.trim_bytes(last_hop)
    sent = frame(klass, length)
    egress = filled(port(last_hop), threshold - length)
    assert egress.offer(0, sent) and egress.trimmed == 0
    egress = filled(port(last_hop), threshold - length + 1)
    assert (
        egress.offer(0, sent)
        and egress.trimmed == 1
        and not egress.marked
        and egress.backlog == threshold - length + 1
    )
    cut = egress.take(0)
    assert cut is not None and len(cut) == min(length, TRIM_BYTES) == min(length, 142)
    assert (
        dscp_of(cut) == (dscp.TRIMMED_LASTHOP if last_hop else dscp.TRIMMED)
        and ecn_of(cut) == dscp.ECT0
    )
    assert int.from_bytes(cut[18:20], "big") == len(cut) - 54
    assert cut[:14] + cut[16:18] + cut[20:] == (sent[:14] + sent[16:18] + sent[20:])[: len(cut) - 4]
    again = filled(port(not last_hop), 8 * TINY.plane_bdp)
    assert again.offer(0, cut) and again.take(0) == cut and again.trimmed == 0


@pytest.mark.parametrize(
    ("egress", "klass"),
    [
        (port(), dscp.NO_TRIM),
        (port(), dscp.ROCE),
        (port(trimming=False), dscp.TRIMMABLE),
        (port(switch=False), dscp.TRIMMABLE),
    ],
)
def test_what_is_not_trimmed_drops_at_the_tail(egress: Egress, klass: int) -> None:
    sent = frame(klass, ecn=dscp.NOT_ECT)
    filled(egress, TINY.buffer_bytes - len(sent))
    assert egress.offer(0, sent) and not egress.offer(0, sent)
    assert (egress.trimmed, egress.dropped, egress.peak) == (0, 1, TINY.buffer_bytes)
    assert egress.offer(0, frame(dscp.CONTROL, 154, dscp.NOT_ECT))


def test_the_high_class_has_a_buffer_of_its_own() -> None:
    egress = port()
    control = frame(dscp.CONTROL, 154, dscp.NOT_ECT)
    fit = 0
    while egress.offer(0, control):
        fit += 1
    assert fit == TINY.buffer_bytes // 4 // 154 and egress.dropped == 1 and egress.backlog == 0


def test_high_goes_first_with_half_the_rate_at_most() -> None:
    egress = port(buffer_bdp=20.0)
    control = frame(dscp.CONTROL, 1000, dscp.NOT_ECT)
    data = frame(dscp.NO_TRIM, 1000)
    for _ in range(100):
        assert egress.offer(0, data) and egress.offer(0, control)
    order = [is_high(egress.take(0) or b"") for _ in range(200)]
    assert order[:5] == [True] * 5, "up to a full packet goes at once"
    for end in range(10, 100, 10):
        assert abs(sum(order[:end]) - end // 2) <= 5
    assert egress.take(0) is None
    for _ in range(20):
        assert egress.offer(0, control)
    assert all(is_high(egress.take(0) or b"") for _ in range(20))


def test_the_mean_backlog_is_over_time() -> None:
    egress = port()
    data = frame(dscp.NO_TRIM, 1000)
    egress.offer(100, data)
    egress.offer(200, data)
    egress.take(300)
    egress.take(700)
    assert egress.mean(1000) == pytest.approx((100 * 1000 + 100 * 2000 + 400 * 1000) / 1000)
    assert egress.peak == 2000


# --- the links ------------------------------------------------------------------------------------


class Sink:
    """An engine that sends what it is told to and remembers what comes."""

    def __init__(self) -> None:
        self.todo: list[tuple[int, bytes]] = []
        self.got: list[tuple[int, int, bytes]] = []
        self.tx_frame = b""
        self.tx_payload = None
        self.tx_trailer = b""

    def receive(self, now: int, plane: int, buffer: Any, start: int, length: int) -> None:
        self.got.append((now, plane, bytes(buffer[start : start + length])))

    def transmit(self, now: int) -> int:
        if not self.todo:
            return -1
        plane, self.tx_frame = self.todo.pop(0)
        return plane

    def sent(self, now: int, plane: int, ok: bool) -> None:
        pass

    def timer(self, now: int) -> None:
        pass

    def deadline(self) -> int:
        return NEVER


def network(fabric: Fabric = TINY, **options: Any) -> tuple[VirtualNetwork, list[Any]]:
    sinks: list[Any] = [Sink() for _ in range(fabric.host_count)]
    return VirtualNetwork(fabric, sinks, **options), sinks


def to(src: int, dst: int, klass: int, length: int, ecn: int = dscp.ECT0) -> bytes:
    """A frame over plane 0's first path."""
    return frame(
        klass, length, ecn, addressing.path_address(TINY, src, dst, path_evs(TINY, src, dst)[0])
    )


@pytest.mark.parametrize(("cut_through", "far", "near"), [(False, 4, 3), (True, 1, 2)])
def test_links_pass_frames_on_and_the_delay_passes_once(
    cut_through: bool, far: int, near: int
) -> None:
    net, hosts = network(TINY.with_(cut_through=cut_through))
    hosts[0].todo = [(0, to(0, 2, dscp.NO_TRIM, 1000)), (0, to(0, 1, dscp.NO_TRIM, 1000))]
    began = net.now
    net.run(began + 100 * US)
    wire_ps = 1000 * 80
    assert [at - began for at, _, _ in hosts[2].got] == [far * wire_ps + TINY.delay_ps]
    assert [at - began for at, _, _ in hosts[1].got] == [near * wire_ps + TINY.local_delay_ps], (
        "behind the first on its first link"
    )


def test_both_classes_share_the_link_and_control_overtakes() -> None:
    net, hosts = network()
    data, control = to(0, 2, dscp.NO_TRIM, 4000), to(0, 2, dscp.CONTROL, 1000, dscp.NOT_ECT)
    hosts[0].todo = [(0, data), (0, data), (0, control)]
    left: list[tuple[int, bool]] = []

    def trace(now: int, name: str, what: bytes) -> None:
        if name == MIDDLE:
            left.append((now, is_high(what)))

    net.trace = trace
    began = net.now
    net.run(began + 100 * US)
    a, c = 320_000, 80_000
    assert [(at - began, high) for at, high in left] == [
        (a, False),
        (a + c, True),
        (2 * a + c, False),
    ]


def test_a_dead_cable_takes_what_waits_for_it() -> None:
    net, hosts = network()
    hosts[0].todo = [(0, to(0, 2, dscp.NO_TRIM, 1000))] * 10
    net.at(net.now + 200 * NS, lambda: net.down.add("h0:p0-t0-0"))
    net.at(net.now + 2 * US, lambda: net.down.discard("h0:p0-t0-0"))
    net.run(net.now + 100 * US)
    assert (len(hosts[2].got), net.dropped) == (2, 8)


def test_an_overloaded_last_hop_trims_at_full_rate_and_headers_overtake() -> None:
    """Two hosts send at line rate to a third: its port carries all it can, and every packet arrives
    whole or trimmed."""
    fabric = TINY
    net, hosts = network()
    for src in (1, 0):
        hosts[src].todo = [(0, to(src, 2, dscp.TRIMMABLE, fabric.frame_bytes))] * 30
    sender = net.ports["p0-t1-0-d1"]
    began = net.now
    net.run(began + MS)
    got = hosts[2].got
    cut = [data for _, _, data in got if dscp_of(data) in (dscp.TRIMMED, dscp.TRIMMED_LASTHOP)]
    assert len(got) == 60 and net.dropped == 0
    assert {len(data) for data in cut} == {TRIM_BYTES} and len(cut) == sum(
        p.trimmed for p in net.ports.values()
    ) > 5
    assert sender.peak <= fabric.trim_bytes(False)
    busy = sum(len(data) for _, _, data in got) * 80
    assert got[-1][0] - began == pytest.approx(busy + fabric.delay_ps, rel=0.02)


# --- with real engines ----------------------------------------------------------------------------


def min_rtt(fabric: Fabric, peer: int, size: int = 1) -> tuple[int, int]:
    """(smallest RTT that MRC measured, unit of its timestamps) for one packet after the other on
    idle paths."""
    engines = [Endpoint(fabric, h, {}, 1) for h in range(fabric.host_count)]
    net = VirtualNetwork(fabric, list(engines))
    qa, _ = connect(engines[0], engines[peer], 0, peer, net.now)
    region = engines[peer].register(bytearray(size))
    data = memoryview(bytes(size))

    def done() -> bool:
        return bool(engines[0].completions())

    for k in range(8):
        engines[0].post_write(qa, k, data, region.va, region.rkey, -1)
        assert net.run(net.now + MS, done)
    return engines[0].counters()["min_rtt_ps"], 1 << engines[0].config.ts_shift


@pytest.mark.parametrize(
    "fabric",
    [TINY, TINY.with_(nic_rate=4 * 10**10, fabric_rate=8 * 10**10), TINY.with_(delay_ps=0)],
)
def test_an_idle_round_trip_is_the_fabrics_base_rtt(fabric: Fabric) -> None:
    for peer, expected in ((2, fabric.base_rtt_ps), (1, fabric.local_rtt_ps)):
        got, unit = min_rtt(fabric, peer, fabric.mtu)
        assert abs(got - expected) <= unit


def test_short_packets_save_serialisation_only_so_that_their_samples_compare() -> None:
    """What the links save on a packet of four bytes is what the engine adds to its RTT."""
    got, unit = min_rtt(TINY, 2)
    assert abs(got - TINY.base_rtt_ps) <= unit


def test_marks_follow_the_seed() -> None:
    def once(seed: int) -> list[tuple[int, int]]:
        net, hosts = network(seed=seed)
        for src in (0, 1):
            hosts[src].todo = [(0, to(src, 2, dscp.NO_TRIM, TINY.frame_bytes))] * 10
        net.run(net.now + 100 * US)
        return [(at, ecn_of(data)) for at, _, data in hosts[2].got]

    assert once(1) == once(1) and len({tuple(once(seed)) for seed in range(6)}) > 1
