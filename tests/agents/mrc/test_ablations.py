"""MRC with a mechanism turned off: that one is gone, the others are there, and every byte still
arrives."""

from __future__ import annotations

from typing import Any

import pytest

from agents.mrc.paths.ev_state import GOOD
from tests.agents.mrc.rig import ev_of, is_data
from tests.agents.mrc.test_failures import Busy
from topologies.addressing import ev


def used(rig: Busy, since: int) -> set[int]:
    return {ev_of(f) for t, h, f in rig.sent if h == 0 and t > since and is_data(f)}


@pytest.mark.parametrize(
    "options, skipped", [({}, True), ({"skip": False}, False), ({"oblivious": True}, False)]
)
def test_without_skip_a_mark_passes_no_path_over(options: dict[str, Any], skipped: bool) -> None:
    rig = Busy(writes=2, **options)
    paths = rig.requester.paths
    paths.marked(paths.all[5])
    assert (paths.all[5].state != GOOD) == skipped
    rig.finish()


def test_oblivious_spraying_never_leaves_a_dead_path_and_delivers_all_the_same() -> None:
    rig = Busy(writes=4, oblivious=True, exponential=25)
    dead = "p1-t0-0:p1-t1-2"
    rig.net.down.add(dead)
    rig.rtts(30)
    late = rig.net.now - 3 * rig.fabric.base_rtt_ps
    assert used(rig, late) == {ev(p, k) for p in range(4) for k in range(4)}, "the dead one as well"
    assert not rig.a.of("plane") and not [f for _, f in rig.a.of("ev") if f["to"] == "ASSUMED_BAD"]
    lost = {f["ev"] for _, f in rig.a.of("loss")}
    assert lost == rig.dead_evs({dead})
    rig.net.down.clear()
    rig.finish()


def test_without_path_order_a_loss_is_found_later_and_by_time() -> None:
    found: dict[bool, int] = {}
    for order in (True, False):
        rig = Busy(writes=3, path_order=order)
        bad = ev(1, 2)
        gone: list[int] = []

        def fate(frame: bytes, link: str, now: int) -> bool:
            if gone or not is_data(frame) or ev_of(frame) != bad:  # noqa: B023
                return True
            gone.append(now)  # noqa: B023
            return False

        rig.net.fate = fate
        rig.rtts(20)
        ((at, told),) = [(t, f) for t, f in rig.a.of("loss") if t > rig.began]
        assert told["rule"] == ("order" if order else "time") and told["ev"] == bad
        found[order] = at - gone[0]
        rig.finish()
    assert found[True] < found[False]


def test_one_ev_is_one_path_of_one_plane_and_moves_with_loss_and_port() -> None:
    rig = Busy(writes=4, active_evs=1)
    (first,) = used(rig, rig.began - 5 * rig.fabric.base_rtt_ps)
    paths = rig.requester.paths
    assert paths.in_rotation == 1 and paths.live_planes == 1
    plane = first >> 16
    cut = f"p{plane}-t0-0:p{plane}-t1-{first & 0xFFFF}"
    rig.net.down.add(cut)
    rig.rtts(60)
    (second,) = used(rig, rig.net.now - 3 * rig.fabric.base_rtt_ps)
    assert second != first and second >> 16 == plane, "replaced inside its plane"
    rig.a.engine.port_state(rig.net.now, plane, False)
    rig.net.down.add(f"h0:p{plane}-t0-0")
    rig.rtts(30)
    (third,) = used(rig, rig.net.now - 3 * rig.fabric.base_rtt_ps)
    assert third >> 16 != plane, "its plane is gone: another takes over"
    assert paths.in_rotation == 1
    rig.net.down.clear()
    rig.a.engine.port_state(rig.net.now, plane, True)
    rig.rtts(20)
    assert len(used(rig, rig.net.now - 3 * rig.fabric.base_rtt_ps)) == 1
    rig.finish()


@pytest.mark.parametrize("active, planes", [(1, 1), (2, 2), (3, 3), (4, 4), (8, 4)])
def test_fewer_evs_than_planes_use_so_many_planes(active: int, planes: int) -> None:
    rig = Busy(writes=2, active_evs=active)
    got = used(rig, rig.net.now - 6 * rig.fabric.base_rtt_ps)
    assert len({e >> 16 for e in got}) == planes and len(got) == active
    rig.finish()


def test_the_blind_draw_is_even() -> None:
    rig = Busy(oblivious=True)
    paths = rig.requester.paths
    picks = [path.index for _ in range(4000) if (path := paths.pick(0, 2, None))]
    assert all(900 < picks.count(i) < 1100 for i in range(8, 12))
