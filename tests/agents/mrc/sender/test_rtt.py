"""What "recent" means: the last one to two windows, plane by plane."""

from __future__ import annotations

from agents.mrc.sender.rtt import RttTracker

BASE = 1000
WINDOW = 4 * BASE


def test_the_largest_lives_one_to_two_windows() -> None:
    t = RttTracker(BASE, 2)
    t.sample(10, 0, 5000)
    t.sample(20, 0, 2000)
    assert t.recent_max(0) == 5000
    now = 21 + WINDOW
    t.sample(now, 0, 2500)
    assert t.recent_max(0) == 5000  # from the window before
    t.sample(now + WINDOW + 1, 0, 2000)
    assert t.recent_max(0) == 2500


def test_a_silent_plane_keeps_its_last_word() -> None:
    t = RttTracker(BASE, 2)
    t.sample(10, 1, 7000)
    for k in range(1, 10):
        t.sample(10 + k * (WINDOW + 1), 0, 1500)
    assert t.recent_max(1) == 7000
    assert t.recent_max(0) == 1500


def test_never_below_the_configured_base() -> None:
    t = RttTracker(BASE, 1)
    assert t.recent_max(0) == BASE
    t.sample(1, 0, 10)
    assert t.recent_max(0) == BASE and t.min_rtt == 10


def test_spread_is_over_all_planes_and_forgets_old_lows() -> None:
    t = RttTracker(BASE, 2)
    assert t.spread() == 0
    t.sample(1, 0, 1200)
    t.sample(2, 1, 3200)
    assert t.spread() == 2000
    for k in range(1, 4):
        t.sample(2 + k * (WINDOW + 1), 0, 3000)
        t.sample(3 + k * (WINDOW + 1), 1, 3200)
    assert t.spread() == 200
    assert t.min_rtt == 1200


def test_srtt_starts_at_the_first_sample_and_follows_by_eighths() -> None:
    t = RttTracker(BASE, 1)
    assert t.srtt == BASE
    t.sample(1, 0, 1800)
    assert t.srtt == 1800
    t.sample(2, 0, 2600)
    assert t.srtt == 1900


def test_the_soonest_answer_of_a_packet() -> None:
    t = RttTracker(BASE, 1)
    assert t.soonest(100, 100) <= 0  # nothing known yet
    t.sample(1, 0, 2000)
    assert t.soonest(100, 100) == 900  # an idle path may be quicker than any sample
    t.data_ps = 400
    assert t.soonest(75, 100) == 800
    assert t.as_full(500, 100, 100) == 500 and t.as_full(500, 25, 100) == 800
    t.sample(2, 0, 800)
    assert t.soonest(100, 100) == 720
