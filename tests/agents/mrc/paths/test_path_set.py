"""Rotation over planes and inside them, SKIP, replacement, the floor, probing back."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.mrc.config import Config
from agents.mrc.paths import ev_state
from agents.mrc.paths.path_set import PathSet
from agents.transport import NEVER
from tests.agents.mrc.rig import DEMO, WIDE
from topologies.addressing import ev_fields
from topologies.clos import Fabric
from topologies.paths import path_evs
from topologies.units import MS, NS

SRTT = 100 * NS


def paths(fabric: Fabric = DEMO, seed: int = 1, in_order: bool = False, **options: Any) -> PathSet:
    evs = list(path_evs(fabric, 0, fabric.host_count - 1))
    config = Config.from_fabric(fabric, options)
    return PathSet(config, 7, evs, Random(seed), [], in_order=in_order)


def prove(p: PathSet, i: int, now: int, times: int) -> None:
    for k in range(times):
        p.probe_sent(now + k, p.all[i])
        p.probe_answered(now + k + 1, p.all[i], now + k, SRTT)


def picked(p: PathSet, now: int, plane: int, avoid: int = -1) -> int:
    """The number of the path that is picked, or -1."""
    path = p.pick(now, plane, p.all[avoid] if avoid >= 0 else None)
    return -1 if path is None else path.index


def due(p: PathSet, now: int) -> int:
    """The number of the path whose probe is due, or -1."""
    path = p.due_probe(now)
    return -1 if path is None else path.index


def laps(p: PathSet, plane: int, n: int) -> list[int]:
    return [picked(p, 0, plane) for _ in range(n)]


def test_a_lap_uses_every_active_ev_once() -> None:
    p = paths()
    orders = set()
    for _ in range(20):
        lap = laps(p, 2, 4)
        assert sorted(lap) == [8, 9, 10, 11]
        orders.add(tuple(lap))
    assert len(orders) > 5  # reshuffled


@pytest.mark.parametrize("active, per_plane", [(128, 16), (64, 8), (16, 2), (8, 1)])
def test_active_and_backup_are_equal_over_planes(active: int, per_plane: int) -> None:
    p = paths(WIDE, active_evs=active)
    for plane in range(8):
        assert len(p.active[plane]) == per_plane
        assert len(p.backup[plane]) == 16 - per_plane
        assert {path.plane for path in p.active[plane] + p.backup[plane]} == {plane}


def test_skip_is_passed_over_once_and_is_good_again() -> None:
    p = paths()
    p.marked(p.all[0])
    assert p.all[0].state == ev_state.SKIP
    lap = laps(p, 0, 3)
    assert 0 not in lap
    laps(p, 0, 1)
    assert p.all[0].state == ev_state.GOOD
    assert Counter(laps(p, 0, 40))[0] >= 9


@given(st.integers(0, 1000), st.sets(st.integers(0, 3)))
def test_one_packet_restores_at_most_one_ev_and_takes_a_good_one_if_there_is(
    seed: int, marked: set[int]
) -> None:
    p = paths(seed=seed)
    for _ in range(seed % 4):
        picked(p, 0, 0)
    for i in marked:
        p.marked(p.all[i])
    got = picked(p, 0, 0)
    skipped = {i for i in range(4) if p.all[i].state == ev_state.SKIP}
    assert len(marked - skipped) <= 1
    if marked == {0, 1, 2, 3}:
        assert skipped == marked - {got}
    else:
        assert got not in marked


@given(st.integers(0, 1000), st.sets(st.integers(0, 3), max_size=3), st.integers(0, 3))
def test_whatever_the_lap_an_ev_that_is_not_held_is_found(
    seed: int, held: set[int], before: int
) -> None:
    p = paths(seed=seed)
    for _ in range(before):
        picked(p, 0, 0)
    p.rtt_limit[0] = 10
    for i in held:
        p.all[i].oldest_ps = 1
    assert picked(p, 100, 0) in {0, 1, 2, 3} - held


def test_held_is_reversible_and_no_verdict() -> None:
    p = paths()
    p.rtt_limit[0] = 10
    p.all[2].gap_ps = 5
    p.all[2].oldest_ps = 100
    assert not p.all[2].on_hold(115, p.rtt_limit[0])
    assert p.all[2].on_hold(116, p.rtt_limit[0])
    assert p.all[2].state == ev_state.GOOD
    p.all[2].oldest_ps = NEVER
    assert not p.all[2].on_hold(10_000, p.rtt_limit[0])


def test_avoided_ev_is_taken_only_when_alone() -> None:
    p = paths()
    for _ in range(50):
        assert picked(p, 0, 1, 5) != 5
    for i in (4, 6, 7):
        p.lost(1, p.all[i], 1, SRTT, "time")
    assert picked(p, 2, 1, 5) == 5


def test_a_lost_ev_is_out_at_once_and_replaced_from_its_plane() -> None:
    p = paths(active_evs=8)
    out = p.active[1][0]
    spare = set(p.backup[1])
    p.lost(5, out, 4, SRTT, "order")
    assert out.state == ev_state.ASSUMED_BAD and not out.in_use
    assert out not in p.active[1] and len(p.active[1]) == 2
    assert set(p.active[1]) & spare and {path.plane for path in p.active[1]} == {1}
    assert out.index not in laps(p, 1, 50)
    ((t, kind, fields),) = p.log
    assert (t, kind, fields["from"], fields["to"], fields["cause"]) == (
        5,
        "ev",
        "GOOD",
        "ASSUMED_BAD",
        "order",
    )


def test_without_backup_the_set_shrinks_and_an_empty_plane_is_not_live() -> None:
    p = paths()
    for n, i in enumerate(range(4)):
        assert p.live_planes == 4
        p.lost(1, p.all[i], 1, SRTT, "time")
        assert len(p.active[0]) == 3 - n
    assert p.live_planes == 3
    assert picked(p, 2, 0) == -1


def test_floor_spares_the_last_quarter_and_probes_it() -> None:
    p = paths()
    for i in range(16):
        p.lost(1, p.all[i], 1, SRTT, "time")
    left = [i for i in range(16) if p.all[i].in_use]
    assert len(left) == 4 == p.floor()
    for i in left:
        assert p.all[i].spared and p.all[i].state == ev_state.GOOD and p.all[i].probe_at < NEVER


def test_losses_do_not_put_off_a_spared_evs_probe() -> None:
    p = paths()
    for i in range(13):
        p.lost(1, p.all[i], 1, SRTT, "time")
    at = p.all[12].probe_at
    p.lost(at - 1, p.all[12], 1, SRTT, "time")
    assert p.all[12].probe_at == at


def test_planes_loaded_strictly_alike_keep_a_path_each_whatever_they_lose() -> None:
    kept = {}
    for load in ("equal", "strict", "weighted"):
        p = paths(plane_load=load)
        for k, path in enumerate([path for path in p.all if path.plane == 1]):
            p.lost(10 * SRTT + k, path, 9 * SRTT, SRTT, "order")
        kept[load] = p.live_planes, p.usable[1]
    assert kept == {"equal": (3, 0), "strict": (4, 1), "weighted": (3, 0)}


def test_floor_counts_only_planes_whose_port_is_up() -> None:
    p = paths()
    for plane in (1, 2, 3):
        p.set_open(0, plane, False)
    assert p.floor() == 1
    for i in range(3):
        p.lost(1, p.all[i], 1, SRTT, "time")
        assert not p.all[i].in_use
    p.lost(1, p.all[3], 1, SRTT, "time")
    assert p.all[3].in_use


def test_a_spared_ev_goes_when_another_is_proven() -> None:
    p = paths()
    for i in range(13):
        p.lost(1, p.all[i], 1, SRTT, "time")
    assert p.all[12].spared
    prove(p, 0, 10, 3)
    assert p.all[0].state == ev_state.GOOD and p.all[0].in_use
    assert p.all[12].state == ev_state.ASSUMED_BAD and not p.all[12].in_use


def test_three_clean_answers_restore_and_flaps_double_them_to_32() -> None:
    p = paths()
    now = 1
    for needed in (3, 6, 12, 24, 32, 32):
        p.lost(now, p.all[5], now, SRTT, "time")
        for k in range(needed):
            assert p.all[5].state == ev_state.ASSUMED_BAD, (needed, k)
            prove(p, 5, now + 10 * k + 5, 1)
        assert p.all[5].state == ev_state.GOOD
        now += 10_000
    assert p.all[5].in_use


def test_an_unanswered_probe_breaks_the_row() -> None:
    p = paths()
    p.lost(1, p.all[5], 1, SRTT, "time")
    prove(p, 5, 10, 2)
    p.probe_sent(20, p.all[5])  # never answered
    p.probe_sent(30, p.all[5])
    prove(p, 5, 40, 1)
    assert p.all[5].state == ev_state.ASSUMED_BAD and p.all[5].clean == 1


def test_a_loss_outranks_the_answer_to_an_older_probe() -> None:
    p = paths()
    for i in range(4):
        p.lost(100, p.all[i], 90, SRTT, "time")
    p.probe_answered(110, p.all[0], 99, SRTT)
    assert p.all[0].state == ev_state.ASSUMED_BAD and p.all[0].clean == 0
    p.probe_answered(120, p.all[0], 101, SRTT)
    assert p.all[0].state == ev_state.GOOD  # the plane was empty: its first success readmits


def test_what_was_sent_before_a_path_was_proven_says_nothing_about_it() -> None:
    p = paths()
    p.lost(100, p.all[0], 90, SRTT, "time")
    prove(p, 0, 110, 3)
    p.lost(120, p.all[0], 91, SRTT, "order")
    assert p.all[0].state == ev_state.GOOD
    p.lost(130, p.all[0], 121, SRTT, "order")
    assert p.all[0].state == ev_state.ASSUMED_BAD


def test_a_wrong_verdict_is_undone_only_when_no_other_stands() -> None:
    p = paths()
    p.lost(100, p.all[0], 90, SRTT, "time")
    p.lost(101, p.all[0], 91, SRTT, "time")
    p.undo(102, p.all[0])
    assert p.all[0].state == ev_state.ASSUMED_BAD
    p.undo(103, p.all[0])
    assert p.all[0].state == ev_state.ASSUMED_BAD and p.all[0].flaps == 0
    assert due(p, 103) == 0
    p.probe_sent(103, p.all[0])
    p.probe_answered(104, p.all[0], 103, SRTT)
    assert p.all[0].state == ev_state.GOOD and p.all[0].in_use


def test_a_loss_after_an_undone_verdict_asks_for_the_full_proof_again() -> None:
    p = paths()
    p.lost(100, p.all[0], 90, SRTT, "time")
    p.undo(101, p.all[0])
    p.probe_sent(101, p.all[0])
    p.lost(102, p.all[0], 91, SRTT, "time")
    p.probe_answered(103, p.all[0], 101, SRTT)  # sent before that loss was known
    assert p.all[0].state == ev_state.ASSUMED_BAD and p.all[0].flaps == 1
    prove(p, 0, 110, 1)
    assert p.all[0].state == ev_state.ASSUMED_BAD
    prove(p, 0, 120, 2)
    assert p.all[0].state == ev_state.GOOD


def test_restored_ev_rests_where_the_active_set_is_full() -> None:
    p = paths(active_evs=8)
    out = p.active[1][0]
    p.lost(1, out, 1, SRTT, "time")
    prove(p, out.index, 10, 3)
    assert out.state == ev_state.GOOD and not out.in_use and out in p.backup[1]


def test_probe_gaps_start_at_srtt_double_and_are_capped() -> None:
    p = paths()
    base = p.config.base_rtt
    p.lost(0, p.all[5], 0, base, "time")
    now, gaps = 0, []
    for _ in range(12):
        gaps.append(p.all[5].probe_at - now)
        now = p.all[5].probe_at
        assert due(p, now - 1) == -1
        assert due(p, now) == 5
        p.probe_sent(now, p.all[5])
    for k, gap in enumerate(gaps):
        # an answer has two RTTs
        nominal = max(
            min(base << max(0, k - 1), p.config.probe_cap_rtts * base), 2 * base if k else base
        )
        assert 0.75 * nominal <= gap <= 1.25 * nominal, k


def test_the_last_path_of_a_plane_may_carry_all_that_its_plane_carries() -> None:
    p = paths()
    p.share_window(160, 1)
    for i in (4, 5, 6):
        p.lost(0, p.all[i], 0, 10_000, "test")
    p.all[7].flying = 40  # a quarter of the window; beside three others it would have had eleven
    assert picked(p, 0, 1) == 7
    p.all[7].flying = 41
    assert picked(p, 0, 1) == -1 and p.full
    p.all[0].flying = 11
    assert 0 not in laps(p, 0, 12)


def test_an_ev_with_its_share_in_flight_is_passed_over_and_a_full_plane_waited_for() -> None:
    p = paths()
    p.plane_share = 8  # of four paths: two each, and one more
    p.all[4].flying = 3
    assert 4 not in laps(p, 1, 12) and set(laps(p, 1, 3)) == {5, 6, 7}
    for i, flying in ((5, 3), (6, 4), (7, 5)):
        p.all[i].flying = flying
    assert picked(p, 0, 1) == -1 and p.full  # not passed over: planes stay equally loaded
    assert picked(p, 0, 2) in (8, 9, 10, 11)
    for i in (4, 5, 6, 7):
        p.all[i].oldest_ps = 1
    p.rtt_limit[1] = 10
    assert picked(p, 12, 1) == -1 and not p.full  # overdue: held, and the plane is passed over
    p.all[6].flying = 2
    assert picked(p, 11, 1) == 6


@pytest.mark.parametrize("need", [3, 12, 32])
def test_a_row_of_answers_is_not_broken_by_answers_that_take_an_rtt_and_a_half(need: int) -> None:
    p = paths()
    srtt = p.srtt
    p.lost(0, p.all[5], 0, srtt, "time")
    p.all[5].need = need
    now, answers, rng = 0, [], Random(2)
    while p.all[5].state != ev_state.GOOD:
        now = min([p.next_probe, *(at for at, _ in answers)])
        for at, sent in [a for a in answers if a[0] <= now]:
            answers.remove((at, sent))
            p.probe_answered(now, p.all[5], sent, srtt)
        if due(p, now) == 5:
            p.probe_sent(now, p.all[5])
            answers.append((now + int(srtt * (0.7 + 0.8 * rng.random())), now))
        assert now < 4 * need * srtt


def test_no_probe_through_a_port_that_is_down() -> None:
    p = paths()
    p.lost(0, p.all[5], 0, SRTT, "time")
    p.set_open(0, 1, False)
    assert due(p, MS) == -1
    assert p.next_probe > MS
    p.set_open(0, 1, True)
    assert due(p, p.next_probe) == 5


def test_denied_is_left_by_allow_only_and_then_by_proof() -> None:
    p = paths()
    p.deny(1, p.all[5])
    prove(p, 5, 10, 40)
    p.lost(60, p.all[5], 59, SRTT, "time")
    assert p.all[5].state == ev_state.DENIED and not p.all[5].in_use
    p.allow(100, p.all[5], SRTT)
    assert p.all[5].state == ev_state.ASSUMED_BAD
    prove(p, 5, 110, 3)
    assert p.all[5].state == ev_state.GOOD and p.all[5].in_use


# --- congested again and again --------------------------------------------------------------------


def test_an_ev_marked_again_and_again_makes_room_for_the_backup_that_has_rested_longest() -> None:
    p = paths(WIDE, active_evs=16)  # two of each plane's sixteen
    hot, other = p.active[3]
    rested = p.backup[3][0]
    for _ in range(3):
        p.marked(hot)
    assert hot.in_use and p.swaps == 0
    p.marked(hot)
    assert (
        not hot.in_use
        and p.active[3] == [rested, other]
        and p.backup[3][-1] is hot
        and p.swaps == 1
    )
    assert p.in_rotation == 16 and sum(path.in_use for path in p.all) == 16
    for _ in range(4):  # the other planes have not moved, and the backup has a row of its own
        p.marked(other)
    assert p.active[3][1] is not other and hot not in p.active[3]


def test_a_clean_report_breaks_the_row() -> None:
    p = paths(WIDE, active_evs=16)
    hot = p.active[0][0]
    for _ in range(10):
        for _ in range(3):
            p.marked(hot)
        p.unmarked(0, hot)
    assert hot.in_use and p.swaps == 0


def test_without_a_backup_or_with_the_option_off_a_marked_ev_is_only_skipped() -> None:
    for p in (paths(), paths(WIDE, active_evs=16, swap_marks=0)):
        hot = p.active[0][0]
        for _ in range(20):
            p.marked(hot)
        assert hot.in_use and hot.state == ev_state.SKIP and p.swaps == 0


def test_what_was_swapped_out_may_be_given_up_and_comes_back_last() -> None:
    p = paths(WIDE, active_evs=8)
    hot = p.active[2][0]
    for _ in range(4):
        p.marked(hot)
    p.lost(10, hot, 5, SRTT, "order")
    assert hot.state == ev_state.ASSUMED_BAD and hot not in p.backup[2] and len(p.active[2]) == 1


def test_where_switches_hash_evs_an_eighth_of_them_stand_by() -> None:
    hashed = paths(DEMO.with_(name="demo-ecmp", routing="ecmp"))
    assert [(len(hashed.active[plane]), len(hashed.backup[plane])) for plane in range(4)] == [
        (28, 4)
    ] * 4
    assert [len(paths().backup[plane]) for plane in range(4)] == [0] * 4
    assert [len(paths(WIDE, backup_share=0.25).backup[plane]) for plane in range(8)] == [4] * 8


@pytest.mark.parametrize("seed", range(4))
def test_a_flow_that_is_bound_to_evs_begins_with_the_first_of_each_plane(seed: int) -> None:
    p = paths(WIDE, seed, in_order=True, backup_share=0.75)
    for plane in range(8):
        assert sorted(ev_fields(path.ev)[1] for path in p.active[plane]) == [0, 1, 2, 3]
        assert sorted(ev_fields(path.ev)[1] for path in p.backup[plane]) == list(range(4, 16))
    drawn = paths(WIDE, seed, backup_share=0.75)
    assert any(
        sorted(ev_fields(path.ev)[1] for path in drawn.active[plane]) != [0, 1, 2, 3]
        for plane in range(8)
    )
