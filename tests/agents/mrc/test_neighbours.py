"""Port Status Updates and EV Probes: between whole engines over the virtual network, and frame by
frame."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from agents.mrc import wire
from agents.mrc.endpoint import Endpoint
from agents.mrc.neighbours import ALL_PORTS, EV_PROBE, FAST_TRIES, SERIALS
from agents.mrc.paths.plane_state import DOWN, USED
from agents.packets import dscp
from agents.transport import OK
from tests.agents.mrc.rig import DEMO, GUARD, Rig, drain, ev_of, is_data, op_of, psn_of
from tests.fabrics import near
from topologies.addressing import ev, inner_address
from topologies.clos import Fabric
from topologies.units import MS, US

PAIR = near(Fabric("pair", 4, 2, 4, 4))


class Pair(Rig):
    """h0 and h7 of a four-plane fabric with a stream from a to b that goes on for as long as the
    test looks."""

    def __init__(self, fabric: Fabric = PAIR, options: dict[str, Any] | None = None) -> None:
        super().__init__(fabric, 0, fabric.host_count - 1, 1 << 21, options)
        self.data = bytes(range(256)) * (1 << 13)
        self.written = 0
        self.sent: list[tuple[int, int, bytes]] = []  # (time, host, frame) as they leave a NIC
        self.net.trace = self._trace

    def _trace(self, now: int, port: str, frame: bytes) -> None:
        if port.startswith("h"):
            self.sent.append((now, int(port[1 : port.index("-")]), frame))

    def stream(self, writes: int = 1) -> None:
        for _ in range(writes):
            self.written += 1
            self.write(self.written, self.data)

    def rtts(self, n: float) -> None:
        self.run(int(n * self.fabric.base_rtt_ps))

    def planes_of_data(self, since: int, host: int = 0) -> set[int]:
        return {ev_of(f) >> 16 for t, h, f in self.sent if h == host and t > since and is_data(f)}

    def port(self, side: str, port: int, up: bool) -> None:
        """A NIC port of a or b, cable included, as its carrier shows it."""
        host = self.host_a if side == "a" else self.host_b
        cable = self.net.link_of[f"h{host}-p{port}"]
        (self.net.down.discard if up else self.net.down.add)(cable)
        self.net.engines[host].port_state(self.net.now, port, up)

    def ops(self, host: int, op: int) -> list[bytes]:
        return [f for _, h, f in self.sent if h == host and op_of(f) == op]


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_port_down_at_either_end_takes_its_plane_out_both_ways_and_back(side: str) -> None:
    rig = Pair()
    rig.stream(3)
    rig.rtts(4)
    down = rig.net.now
    rig.port(side, 2, False)
    rig.rtts(3)
    settled = rig.net.now
    rig.rtts(6)
    assert rig.planes_of_data(settled) == {0, 1, 3}
    a, b = (s.engine.qps[s.qpn] for s in (rig.a, rig.b))
    assert a.health.state[2] == b.health.state[2] == DOWN
    assert not [f for _, f in rig.a.of("ev")]  # no EV is blamed for a port
    assert a.requester.congestion.live == 3  # type: ignore[attr-defined]
    assert all(f["rule"] == "port" for _, f in rig.a.of("loss"))
    rig.port(side, 2, True)
    back = rig.net.now
    rig.rtts(12)
    first = min(
        t for t, h, f in rig.sent if h == 0 and t > back and is_data(f) and ev_of(f) >> 16 == 2
    )
    probes = [
        t
        for t, h, f in rig.sent
        if h == 0 and t > back and op_of(f) == wire.PROBE and ev_of(f) >> 16 == 2
    ]
    # hold-down, one probe, then data
    assert back < probes[0] < first <= back + 8 * rig.fabric.base_rtt_ps
    assert a.health.state[2] == b.health.state[2] == USED
    assert down < settled < back
    assert rig.run(60 * MS, lambda: len(rig.a.writes) == 3)
    assert [w.status for w in rig.a.writes] == [OK] * 3 and rig.b.memory[GUARD:-GUARD] == rig.data


def test_an_update_goes_over_every_live_plane_until_it_is_answered() -> None:
    rig = Pair()
    # no answer gets through
    rig.net.fate = lambda frame, link, now: op_of(frame) != wire.ENDPOINT_RESPONSE
    rig.port("a", 1, False)
    rig.rtts(FAST_TRIES + 9)
    updates = [
        (t, ev_of(f) >> 16, psn_of(f) & 0xFFFF)
        for t, h, f in rig.sent
        if h == 0 and op_of(f) == wire.ENDPOINT_REQUEST
    ]
    times = sorted({t for t, _, _ in updates})
    gaps = [round((y - x) / rig.fabric.base_rtt_ps) for x, y in pairwise(times)]
    assert gaps[: FAST_TRIES - 1] == [1] * (FAST_TRIES - 1) and gaps[
        FAST_TRIES - 1 : FAST_TRIES + 2
    ] == [1, 2, 4]
    assert {number for _, _, number in updates} == {1}
    assert all({p for t, p, _ in updates if t == at} == {0, 2, 3} for at in times)
    assert rig.b.engine.counters()["port_updates_rx"] == len(updates)  # each is answered
    rig.net.fate = lambda frame, link, now: True
    rig.rtts(20)
    n = len(rig.ops(0, wire.ENDPOINT_REQUEST))
    rig.rtts(200)
    assert len(rig.ops(0, wire.ENDPOINT_REQUEST)) == n  # answered: silence


def test_an_answer_comes_back_on_the_plane_of_its_request_in_the_high_class() -> None:
    rig = Pair()
    rig.port("a", 3, False)
    rig.rtts(3)
    asked = sorted(ev_of(f) for f in rig.ops(0, wire.ENDPOINT_REQUEST))
    answered = sorted(ev_of(f) for f in rig.ops(7, wire.ENDPOINT_RESPONSE))
    assert asked == answered and len(asked) == 3
    assert {(f[14] << 8 | f[15]) >> 6 & 0x3F for f in rig.ops(7, wire.ENDPOINT_RESPONSE)} == {
        dscp.CONTROL
    }


def test_of_several_changes_the_newest_is_told_and_an_older_update_is_not_applied() -> None:
    rig = Pair()
    peer = rig.b.engine.neighbours.peers[0]
    n = rig.b.engine.neighbours
    assert n.request(1, peer, 0, 5, 0, 0b0111, 0) and peer.mask == 0b0111
    assert not n.request(2, peer, 0, 4, 0, 0b1111, 0) and peer.mask == 0b0111
    assert not n.request(2, peer, 0, 5, 0, 0b1111, 0)
    assert n.request(3, peer, 0, 6, 0, 0b1111, 0)
    assert not n.request(4, peer, 0, 7, 0, 0b1111, 0)  # newer and no news
    assert n.request(5, peer, 0, 7 + SERIALS // 2, 0, 1, 0)  # serials compare around the corner
    assert not n.request(6, peer, 0, 7, 0, 0b1111, 0)
    assert len(n.queue) == 7  # every one is answered


def test_a_port_that_is_down_when_the_pair_is_set_up_is_told_at_once() -> None:
    fabric = PAIR
    engines = [Endpoint(fabric, h, {}, 1) for h in (0, 7)]
    engines[0].port_state(5, 1, False)
    ra, rb = engines[0].create_qp(7), engines[1].create_qp(0)
    engines[0].connect_qp(10, ra["qpn"], rb)
    assert not engines[0].qps[ra["qpn"]].requester.paths.open[1]
    engines[0].timer(10)
    frames = drain(engines[0], 10)
    assert sorted(port for port, _ in frames) == [0, 2, 3]
    assert {
        int.from_bytes(f[wire.AFTER_BTH + 4 : wire.AFTER_BTH + 8], "big") for _, f in frames
    } == {0b1101}


def test_all_ports_down_stalls_and_one_coming_back_is_enough() -> None:
    rig = Pair()
    rig.stream()
    rig.rtts(2)
    for port in range(4):
        rig.port("b", port, False)
    rig.rtts(5)
    rig.port("b", 2, True)
    assert rig.run(60 * MS, lambda: len(rig.a.writes) == 1)
    assert rig.a.writes[0].status == OK and rig.b.memory[GUARD:-GUARD] == rig.data


# --- EV Probes ------------------------------------------------------------------------------------


def test_who_only_receives_probes_once_per_rtt_and_who_sends_does_not() -> None:
    rig = Pair()
    rig.stream(2)
    rig.rtts(3)
    begin = rig.net.now
    rig.rtts(20)
    probes = [
        t for t, h, f in rig.sent if h == 7 and t > begin and op_of(f) == wire.ENDPOINT_REQUEST
    ]
    assert 18 <= len(probes) <= 21
    assert all(psn_of(f) & EV_PROBE for f in rig.ops(7, wire.ENDPOINT_REQUEST))
    assert not rig.ops(0, wire.ENDPOINT_REQUEST)
    assert len({ev_of(f) for f in rig.ops(7, wire.ENDPOINT_REQUEST)}) > 8
    assert rig.run(60 * MS, lambda: len(rig.a.writes) == 2)
    rig.rtts(8)
    n = len(rig.ops(7, wire.ENDPOINT_REQUEST))
    rig.rtts(40)
    assert len(rig.ops(7, wire.ENDPOINT_REQUEST)) == n  # nothing comes any more: nothing is asked


def test_without_reverse_probes_nobody_asks() -> None:
    rig = Pair(options={"reverse_probes": False})
    rig.stream(2)
    rig.rtts(20)
    assert not rig.ops(7, wire.ENDPOINT_REQUEST) and any(
        op_of(f) == wire.SACK for _, h, f in rig.sent if h == 7
    )


def test_an_answer_while_another_queue_pair_is_being_made() -> None:
    """Peers' queue pairs stand while new ones wait for their parameters: those have no reverse EVs
    yet."""
    rig = Pair()
    rig.stream(2)
    rig.rtts(2)
    rig.b.engine.create_qp(0)
    rig.rtts(10)
    assert rig.b.engine.counters()["ev_probes_tx"] > 5
    rig.net.fate = lambda frame, link, now: op_of(frame) != wire.ENDPOINT_RESPONSE
    rig.rtts(10)
    assert rig.run(60 * MS, lambda: len(rig.a.writes) == 2)


def test_sacks_leave_a_path_that_works_one_way_only() -> None:
    """b's direction of one EV per plane is dead; data still comes by it, so only probes can
    tell."""
    rig = Pair()
    deaf = {ev(p, 1) for p in range(4)}
    rig.net.fate = lambda frame, link, now: (
        not (frame[54 + 8 : 54 + 24] == inner_address(7) and ev_of(frame) in deaf)
    )
    responder = rig.b.engine.qps[rig.b.qpn].responder
    responder.reverse.evs = sorted(deaf)
    rig.stream(8)
    rig.rtts(60)
    assert not set(responder.reverse.evs) & deaf
    late = [
        f
        for t, h, f in rig.sent
        if h == 7 and op_of(f) == wire.SACK and t > rig.net.now - 10 * rig.fabric.base_rtt_ps
    ]
    lost = sum(ev_of(f) in deaf for f in late)
    assert len(late) > 50 and lost == 0


def test_a_reverse_ev_that_stops_answering_gives_way() -> None:
    rig = Pair()
    rig.stream(6)
    rig.rtts(10)
    responder = rig.b.engine.qps[rig.b.qpn].responder
    dead = set(responder.reverse.evs)
    rig.net.fate = lambda frame, link, now: (
        not (frame[54 + 8 : 54 + 24] == inner_address(7) and ev_of(frame) in dead)
    )
    rig.rtts(60)
    assert not set(responder.reverse.evs) & dead
    assert not [f for _, f in rig.a.of("qp") if f["state"] == "ERROR"]


# --- hostile --------------------------------------------------------------------------------------


def test_a_queue_pair_kept_to_few_paths_answers_on_those_only() -> None:
    """EV Probes are for all queue pairs with a peer and go by all paths; what they confirm is no
    path of a pair that has fewer."""
    rig = Pair()
    a, b = rig.a.engine, rig.b.engine
    ra, rb = a.create_qp(rig.host_b, 1), b.create_qp(rig.host_a, 1)
    a.connect_qp(rig.net.now, ra["qpn"], rb)
    b.connect_qp(rig.net.now, rb["qpn"], ra)
    region = rig.b.region
    for i in range(3):
        a.post_write(ra["qpn"], i, memoryview(rig.data), region.va, region.rkey, -1)
    assert rig.run(6 * MS, lambda: len(rig.a.writes) == 3)
    probed = {ev_of(f) & 0xFFFF for f in rig.ops(rig.host_b, wire.ENDPOINT_REQUEST)}
    answered = {ev_of(f) & 0xFFFF for f in rig.ops(rig.host_b, wire.SACK)}
    assert len(probed) > 1 and answered == {0}


def test_requests_without_end_cost_a_bounded_queue() -> None:
    rig = Pair()
    n = rig.b.engine.neighbours
    peer = n.peers[0]
    for k in range(500):
        n.request(k, peer, 0, k + 1, 0, k & 0xF, 0)
    assert len(n.queue) == peer.queued == 64
    assert n.counters()["requests_unanswered"] == 436
    drain(rig.b.engine, 100 * US)
    assert peer.queued == 0


def test_answers_to_nothing_are_counted_and_change_nothing() -> None:
    rig = Pair()
    n = rig.a.engine.neighbours
    peer = n.peers[7]
    n.response(peer, 1, 3)
    n.response(peer, 1, EV_PROBE | 3)
    assert n.counters()["stale_responses"] == 2 and peer.mask == ALL_PORTS


def test_every_port_is_told_of_in_the_mask() -> None:
    rig = Rig(DEMO, 0, 7, 1000)
    rig.a.engine.port_state(rig.net.now, 0, False)
    rig.a.engine.port_state(rig.net.now, 3, False)
    rig.run(100 * US)
    assert [f["mask"] for _, f in rig.b.of("peer_ports")][-1] == 0b0110
    assert [f for _, f in rig.a.of("port")] == [{"port": 0, "up": False}, {"port": 3, "up": False}]
