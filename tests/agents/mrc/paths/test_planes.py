"""Planes towards a peer: their table, ports at both ends, hold-down and probe, suspicion."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from agents.mrc.config import Config
from agents.mrc.paths import ev_state, plane_state
from agents.mrc.paths.path import Path
from agents.mrc.paths.path_set import PathSet
from agents.mrc.paths.plane_health import PlaneHealth
from agents.mrc.paths.plane_state import ANSWERED, CLOSED, DOWN, OPENED, PROVING, USED
from agents.mrc.paths.suspicion import PATIENCE, Suspicion
from agents.transport import NEVER
from tests.agents.mrc.rig import DEMO
from tests.fabrics import near
from topologies.clos import Fabric
from topologies.paths import path_evs
from topologies.units import US

SRTT = US


class Planes:
    """Paths from h0 to h7 (or h1, under the same T0) with health and suspicion; EVs 0-3 are plane
    0's, and so on."""

    def __init__(self, fabric: Fabric = DEMO, peer: int = 7, **options: Any) -> None:
        evs = list(path_evs(fabric, 0, peer))
        config = Config.from_fabric(fabric, options)
        self.log: list[Any] = []
        self.paths = PathSet(config, peer, evs, Random(3), self.log)
        self.health = PlaneHealth(config, peer, self.paths, Random(4), self.log)
        self.suspicion = Suspicion(config, peer, self.paths, self.log)
        self.now = 100 * US

    def ports(self, plane: int, ours: bool, peers: bool, at: int = 0) -> bool:
        return self.health.set_ports(at or self.now, plane, ours, peers, SRTT)

    def lose(self, ev: int, sent: int, now: int = 0, size: int = 1000) -> int:
        """As the requester does: a verdict on the path, then the look at them together."""
        now = now or self.now
        self.paths.lost(now, self.paths.all[ev], sent, SRTT, "time")
        return self.suspicion.lost(now, self.paths.all[ev], sent, size, SRTT)

    def due(self, now: int) -> Path:
        """The path on which a plane is to be probed now."""
        path = self.health.due_probe(now)
        assert path is not None
        return path

    def states(self, plane: int) -> set[int]:
        return {path.state for path in self.paths.all if path.plane == plane}


def test_what_the_table_does_not_name_cannot_happen() -> None:
    named = {
        (USED, CLOSED): DOWN,
        (PROVING, CLOSED): DOWN,
        (DOWN, OPENED): PROVING,
        (PROVING, ANSWERED): USED,
    }
    for pair in itertools.product((USED, DOWN, PROVING), (CLOSED, OPENED, ANSWERED)):
        if pair in named:
            assert plane_state.next_state(*pair) == named[pair]
        else:
            with pytest.raises(ValueError, match="cannot be"):
                plane_state.next_state(*pair)


@pytest.mark.parametrize("ours, peers", [(False, True), (True, False), (False, False)])
def test_a_port_down_at_either_end_closes_the_plane_at_once(ours: bool, peers: bool) -> None:
    p = Planes()
    assert p.ports(1, ours, peers)
    assert p.health.state[1] == DOWN and not p.paths.open[1] and p.paths.live_planes == 3
    assert not p.ports(1, ours, peers)  # told again: no second closing
    assert [k for _, k, _ in p.log] == ["plane"]
    assert p.health.next_at == NEVER  # nothing to probe for


def test_a_plane_needs_both_ports_a_hold_down_and_one_answer() -> None:
    p = Planes()
    p.ports(1, False, True)
    p.ports(1, False, False)
    t = p.now + 10 * US
    p.ports(1, True, False, t)
    assert p.health.state[1] == DOWN
    p.ports(1, True, True, t)
    assert p.health.state[1] == PROVING and not p.paths.open[1]
    assert p.health.next_at == t + 2 * SRTT
    assert p.health.due_probe(t + 2 * SRTT - 1) is None
    assert p.due(t + 2 * SRTT).plane == 1
    assert not p.health.answered(t + 3 * SRTT, 1, t - 1)  # sent before the ports were up
    assert not p.health.answered(t + 3 * SRTT, 2, t + 2 * SRTT)  # another plane's
    assert p.health.answered(t + 3 * SRTT, 1, t + 2 * SRTT)
    assert p.health.state[1] == USED and p.paths.open[1] and p.health.next_at == NEVER


def test_probes_go_on_with_growing_gaps_until_one_is_answered() -> None:
    p = Planes()
    p.ports(0, False, True)
    p.ports(0, True, True)
    times = []
    paths = set()
    for _ in range(12):
        now = p.health.next_at
        times.append(now)
        paths.add(p.due(now))
    cap = p.health.config.probe_cap_rtts * p.health.config.base_rtt
    for k, (a, b) in enumerate(itertools.pairwise(times)):
        gap = min(SRTT << k, cap)
        assert 0.75 * gap <= b - a <= 1.25 * gap
    assert len(paths) > 1 and {path.plane for path in paths} == {0}


def test_the_hold_down_doubles_with_every_flap_and_is_forgiven() -> None:
    p = Planes()
    holds = []
    for _ in range(9):
        p.ports(2, False, True)
        p.ports(2, True, True)
        holds.append((p.health.next_at - p.now) // SRTT)
        p.now = p.health.next_at
        p.health.due_probe(p.now)
        p.health.answered(p.now + SRTT, 2, p.now)
        p.now += 2 * SRTT
    assert holds == [2, 4, 8, 16, 32, 64, 128, 128, 128]
    p.now += p.health.config.forgive_rtts * p.health.config.base_rtt + 1
    p.ports(2, False, True)
    p.ports(2, True, True)
    assert (p.health.next_at - p.now) // SRTT == 2


def test_closing_while_it_proves_itself_is_no_further_flap() -> None:
    p = Planes()
    p.ports(2, False, True)
    for _ in range(5):
        p.ports(2, True, True)
        p.ports(2, False, True)
    p.ports(2, True, True)
    assert p.health.next_at == p.now + 2 * SRTT


def test_without_another_plane_there_is_no_hold_down() -> None:
    p = Planes()
    p.ports(2, False, True)
    p.ports(2, True, True)
    assert p.health.next_at == p.now + 2 * SRTT
    for plane in (0, 1, 3):
        p.ports(plane, False, True)
    assert p.health.next_at == p.now  # the last one closed: what is being proved is probed now
    assert p.due(p.now).plane == 2
    later = p.now + US // 10
    p.ports(0, True, True, later)
    assert p.health.probe_at[0] == later  # and so is what opens


# --- suspicion ------------------------------------------------------------------------------------


def test_two_evs_of_a_plane_with_nothing_heard_since_condemn_it() -> None:
    p = Planes()
    sent = p.now - 2 * SRTT
    assert p.lose(4, sent) == 0
    assert p.states(1) == {ev_state.ASSUMED_BAD, ev_state.GOOD}
    assert p.lose(5, sent + 1) == 2000  # both losses are given back to the window
    assert p.states(1) == {ev_state.ASSUMED_BAD} and p.paths.live_planes == 3
    assert p.states(0) == p.states(2) == {ev_state.GOOD}
    assert (
        p.suspicion.excused(1, p.now - 1)
        and not p.suspicion.excused(1, p.now)
        and not p.suspicion.excused(0, p.now - 1)
    )


def test_what_was_not_guilty_itself_is_back_with_one_clean_answer() -> None:
    p = Planes()
    for ev in (4, 5):
        p.lose(ev, p.now - SRTT)
    assert [path.need for path in p.paths.all[4:8]] == [3, 3, 1, 1]
    # the first of an empty plane readmits in any case
    p.paths.probe_answered(p.now + SRTT, p.paths.all[4], p.now + 1, SRTT)
    assert p.paths.all[4].state == ev_state.GOOD
    for ev, state in ((6, ev_state.GOOD), (5, ev_state.ASSUMED_BAD)):
        p.paths.probe_answered(p.now + SRTT, p.paths.all[ev], p.now + 1, SRTT)
        assert p.paths.all[ev].state == state


def test_an_acknowledgement_of_what_was_sent_later_clears_the_plane() -> None:
    p = Planes()
    p.suspicion.acked_ps[1] = p.now - SRTT
    for ev in (4, 5, 6):
        # all sent before that: single paths are dead, others live
        assert p.lose(ev, p.now - SRTT - ev) == 0
    assert p.states(1) == {ev_state.ASSUMED_BAD, ev_state.GOOD}
    assert p.lose(4, p.now - SRTT + 1) == 0 and p.lose(5, p.now - SRTT + 1) > 0


def test_losses_more_than_an_rtt_apart_do_not_add_up() -> None:
    p = Planes()
    p.lose(4, p.now - SRTT)
    assert p.lose(5, p.now - SRTT, p.now + SRTT + 1) == 0
    assert p.states(1) == {ev_state.ASSUMED_BAD, ev_state.GOOD}


def test_the_only_ev_of_a_plane_speaks_for_it() -> None:
    p = Planes(peer=1)  # under one T0: one EV per plane
    assert p.lose(2, p.now - SRTT) == 1000
    assert p.states(2) == {ev_state.ASSUMED_BAD} and p.paths.live_planes == 3


def test_when_most_planes_lose_at_once_the_endpoint_is_blamed_but_not_again_and_again() -> None:
    p = Planes()
    sent = p.now - SRTT
    assert sum(p.lose(ev, sent) for ev in (0, 1, 4, 5)) == 4000
    assert p.paths.live_planes == 2  # two of four are not yet most
    assert p.lose(8, sent) == 0
    assert p.lose(9, sent, p.now + SRTT) == 2000  # the third within an RTT
    assert all(p.states(plane) == {ev_state.GOOD} for plane in range(4))
    assert [f["planes"] for _, k, f in p.log if k == "endpoint"] == [[0, 1, 2]]
    assert not any(path.flaps for path in p.paths.all)
    assert p.suspicion.excused(3, p.now + SRTT - 1)
    # It goes on: now verdicts stand, plane by plane, down to the last.
    t = p.now + 2 * SRTT
    for ev in (0, 1, 4, 5, 8, 9, 12, 13):
        p.lose(ev, t - 1, t)
    assert p.paths.live_planes == 1
    assert len([1 for _, k, _ in p.log if k == "endpoint"]) == 1


def test_after_some_patience_the_endpoint_may_be_blamed_again() -> None:
    p = Planes()
    for t in (p.now, p.now + PATIENCE * SRTT + 1):
        for ev in (0, 1, 4, 5, 8, 9):
            p.lose(ev, t - SRTT, t)
    assert len([1 for _, k, _ in p.log if k == "endpoint"]) == 2


def test_the_last_plane_is_never_suspected() -> None:
    p = Planes(near(Fabric("two", 2, 2, 4, 4)))
    p.ports(1, False, True)
    for ev in (0, 1, 2):
        p.lose(ev, p.now - SRTT)
    assert p.paths.live_planes == 1
    assert not [1 for _, k, f in p.log if k == "plane" and f["to"] == "SUSPECT"]
