"""How an endpoint rides out what breaks, whole engines in virtual time: dead and silent switches,
lossy, flapping and denied paths."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from agents.mrc import wire
from agents.packets import headers
from agents.transport import OK
from tests.agents.mrc.rig import DEMO, GUARD, Rig, drain, ev_of, is_data, op_of
from tests.agents.mrc.test_neighbours import Pair
from tests.agents.virtual import connect
from tests.fabrics import near
from topologies.addressing import ev
from topologies.clos import Fabric
from topologies.denylist import denied
from topologies.paths import evs_over
from topologies.units import MS, wire_time


class Busy(Pair):
    """The stream is under way and its RTTs are known. A write takes 12.4 base RTTs."""

    def __init__(self, fabric: Fabric = DEMO, writes: int = 6, **options: Any) -> None:
        super().__init__(fabric, options)
        self.stream(writes)
        self.rtts(12)
        self.began = self.net.now
        self.requester = self.a.engine.qps[self.a.qpn].requester

    def cables_of(self, switch: str) -> set[str]:
        return {link.name for link in self.fabric.links if switch in (link.a.node, link.b.node)}

    def dead_evs(self, cables: set[str]) -> set[int]:
        return {e for link in cables for e in evs_over(self.fabric, self.host_a, self.host_b, link)}

    def data_on(self, evs: set[int], since: int) -> list[int]:
        return [
            t for t, h, f in self.sent if h == 0 and t > since and is_data(f) and ev_of(f) in evs
        ]

    def given_up(self, since: int = 0) -> dict[int, dict[str, Any]]:
        return {f["ev"]: f for t, f in self.a.of("ev") if f["to"] == "ASSUMED_BAD" and t > since}

    def finish(self) -> None:
        assert self.run(60 * MS, lambda: len(self.a.writes) == self.written)
        assert {w.status for w in self.a.writes} == {OK} and self.b.memory[
            GUARD:-GUARD
        ] == self.data


@pytest.mark.parametrize("cut", ["p1-t1-2", "p1-t0-1:p1-t1-2"])
def test_a_dead_t1_or_link_costs_a_bounded_number_of_packets(cut: str) -> None:
    rig = Busy()
    cables = rig.cables_of(cut) if ":" not in cut else {cut}
    dead = rig.dead_evs(cables)
    window, evs, srtt = rig.requester.congestion.cwnd, 16, rig.requester.rtt.srtt
    rig.net.down |= cables
    rig.rtts(10)
    full = rig.fabric.mtu + wire.COUNTED
    rotation = wire_time(evs * rig.fabric.frame_bytes, rig.fabric.host_rate)
    last = max(rig.data_on(dead, rig.began)) - rig.began
    assert last <= 3 * srtt + rotation
    losses = [f["ev"] for t, f in rig.a.of("loss") if t > rig.began]
    assert losses and set(losses) == dead
    assert max(losses.count(e) for e in dead) <= -(-window // (full * evs)) + 1
    assert set(rig.given_up(rig.began)) == dead
    assert not [f for _, f in rig.a.of("plane")]
    rig.net.down -= cables
    rig.rtts(30)
    assert rig.data_on(dead, rig.net.now - 4 * rig.fabric.base_rtt_ps)
    rig.finish()


def test_a_silent_t0_is_found_as_a_plane_and_the_window_keeps_its_size() -> None:
    rig = Busy(writes=5)
    dead = rig.cables_of("p2-t0-1")
    before = rig.requester.congestion.cwnd
    rig.net.down |= dead
    rig.rtts(12)
    assert [f for _, f in rig.a.of("plane")] == [
        {"peer": 7, "plane": 2, "from": "USED", "to": "SUSPECT", "cause": "all is lost"}
    ]
    assert set(rig.given_up()) == {ev(2, k) for k in range(4)}
    assert rig.requester.congestion.cwnd >= 0.6 * before  # three planes' share, less little
    assert {
        ev_of(f) >> 16
        for t, h, f in rig.sent
        if h == 0 and is_data(f) and t > rig.net.now - rig.fabric.base_rtt_ps
    } == {0, 1, 3}
    rig.net.down -= dead
    rig.rtts(25)
    assert rig.data_on({ev(2, k) for k in range(4)}, rig.net.now - 3 * rig.fabric.base_rtt_ps)
    rig.finish()


def test_at_rest_nothing_is_probed_and_what_comes_is_answered() -> None:
    rig = Busy(writes=2)
    rig.net.down |= rig.cables_of("p2-t0-1")
    rig.rtts(40)
    assert rig.given_up(rig.began) and len(rig.a.writes) == 2
    for side in (rig.a, rig.b):
        side.engine.quiesce()
    rig.rtts(4)
    frames = len(rig.sent)
    rig.rtts(200)
    assert len(rig.sent) == frames
    # and nobody is woken for it
    assert min(side.engine.deadline() for side in (rig.a, rig.b)) > rig.net.now
    probe = rig.ops(0, wire.PROBE)[-1]
    rig.net.engines[7].receive(rig.net.now, ev_of(probe) >> 16, bytearray(probe), 0, len(probe))
    assert [frame[headers.BTH_AT] for _, frame in drain(rig.net.engines[7], rig.net.now)] == [
        wire.SACK,
        wire.ACK,
    ]


def test_at_rest_no_data_leaves_though_more_is_posted() -> None:
    """What a run that was stopped in the middle has in flight drains, and can be counted."""
    rig = Busy(writes=4)
    for side in (rig.a, rig.b):
        side.engine.quiesce()
    since = rig.net.now
    rig.rtts(4)
    quiet = len(rig.sent)
    rig.rtts(100)
    assert rig.requester.has_data() and len(rig.sent) == quiet
    assert not [frame for t, _, frame in rig.sent if t > since and is_data(frame)]
    assert [frame for t, _, frame in rig.sent if t > since], "what was in flight is answered"


def test_a_path_that_flaps_stays_out_longer_every_time() -> None:
    rig = Busy(writes=40)
    link = "p3-t0-0:p3-t1-1"
    out: list[float] = []
    for _ in range(3):
        rig.net.down.add(link)
        rig.rtts(8)
        rig.net.down.discard(link)
        healed = rig.net.now
        assert rig.run(
            6 * MS,
            lambda: any(t > healed and f["to"] == "GOOD" for t, f in rig.a.of("ev")),  # noqa: B023
        )
        out.append((rig.net.now - healed) / rig.fabric.base_rtt_ps)
        rig.rtts(6)
        assert rig.data_on({ev(3, 1)}, rig.net.now - 3 * rig.fabric.base_rtt_ps)
    assert all(later > sooner for sooner, later in pairwise(out)), out


@pytest.mark.parametrize("seed", range(2))
def test_paths_that_are_dead_at_the_start_are_all_found(seed: int) -> None:
    rig = Pair(near(Fabric("wide", 8, 2, 16, 4)))
    rng = Random(seed)
    every = [link.name for link in rig.fabric.links if link.kind == "fabric"]
    rig.net.down |= set(rng.sample(every, len(every) // 10))
    dead = {
        e for link in rig.net.down for e in evs_over(rig.fabric, 0, rig.fabric.host_count - 1, link)
    }
    rig.stream(6)
    rig.rtts(25)
    bad = {f["ev"] for _, f in rig.a.of("ev") if f["to"] == "ASSUMED_BAD"}
    assert bad == dead and len(dead) > 5
    late = [
        f
        for t, h, f in rig.sent
        if h == 0 and is_data(f) and t > rig.net.now - 10 * rig.fabric.base_rtt_ps
    ]
    assert late and not [f for f in late if ev_of(f) in dead]


# --- an operator's or a controller's word ---------------------------------------------------------


@pytest.mark.parametrize("entry", ["p1-t1-2", "p2", "h0>h7@p0/1"])
def test_a_denied_path_carries_nothing_and_proves_itself_when_allowed_again(entry: str) -> None:
    rig = Busy(writes=4)
    forbidden = denied(rig.fabric, [entry], 0, 7)
    rig.a.engine.deny(rig.net.now, [entry])
    rig.b.engine.deny(rig.net.now, [entry])
    asked = rig.net.now
    rig.rtts(10)
    assert not rig.data_on(forbidden, asked)
    sacks = {ev_of(f) for t, h, f in rig.sent if h == 7 and t > asked and op_of(f) == wire.SACK}
    assert sacks and not sacks & denied(rig.fabric, [entry], 7, 0)
    assert {f["to"] for _, f in rig.a.of("ev")} == {"DENIED"}
    rig.a.engine.deny(rig.net.now, [])
    again = rig.net.now
    rig.rtts(12)
    probes = [ev_of(f) for t, h, f in rig.sent if h == 0 and t > again and op_of(f) == wire.PROBE]
    assert set(probes) >= forbidden
    assert rig.data_on(forbidden, again)
    rig.finish()


def test_denials_hold_for_queue_pairs_made_later() -> None:
    rig = Rig(DEMO, 0, 7, 1000)
    rig.a.engine.deny(rig.net.now, ["p1"])
    made, _ = connect(rig.a.engine, rig.net.engines[6], 0, 6, rig.net.now)
    paths = rig.a.engine.qps[made].requester.paths
    assert {path.plane for path in paths.all if path.state == 3} == {1} and paths.live_planes == 3


def test_a_queue_pair_that_connects_while_every_path_is_denied_sends_once_they_are_allowed() -> (
    None
):
    """Found by fuzzing: its window was made for no plane at all, and the next word about paths
    divided by that."""
    rig = Rig(DEMO, 0, 7, 1000)
    a, b = rig.a.engine, rig.b.engine
    a.deny(rig.net.now, ["p0", "p1", "p2", "p3"])
    rig.a.qpn, rig.b.qpn = connect(a, b, 0, 7, rig.net.now)
    a.deny(rig.net.now, [])
    rig.write(1, bytes(range(250)) * 4)
    assert rig.run(MS, lambda: len(rig.a.writes) == 1)
    assert rig.a.writes[0].status == OK


def test_a_hint_takes_paths_out_before_a_single_loss_is_inferred() -> None:
    rig = Busy()
    link = "p1-t0-0:p1-t1-2"
    rig.net.down.add(link)
    rig.a.engine.hint(rig.net.now, [link])
    rig.rtts(8)
    assert not rig.data_on({ev(1, 2)}, rig.began)
    assert {f["rule"] for t, f in rig.a.of("loss") if t >= rig.began} == {"hint"}
    assert rig.given_up()[ev(1, 2)]["cause"] == "hint"
    rig.rtts(40)
    rig.net.down.discard(link)
    rig.a.engine.hint(rig.net.now, [])
    back = rig.net.now
    assert rig.run(6 * MS, lambda: any(t > back and f["to"] == "GOOD" for t, f in rig.a.of("ev")))
    # probed at once, not when the back-off ends
    assert rig.net.now - back <= 8 * rig.fabric.base_rtt_ps
    rig.finish()
