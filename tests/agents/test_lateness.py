"""What lateness means: how long something that becomes due at a random moment waits."""

from __future__ import annotations

import random

import pytest

from agents.lateness import Lateness

MS = 1_000_000


def late(*turns: tuple[int, int], window: int = 400, until: int = 1000) -> dict[str, int]:
    """Figures of turns (ms at which each ended, ms that it was late)."""
    made = Lateness(0, window * MS)
    for now, lag in turns:
        made.add(now * MS, lag * MS)
    return made.figures(until * MS)


def test_it_is_the_mean_wait_of_what_becomes_due_at_a_random_moment() -> None:
    """Against a drawn sample: a loop that stands still for 90 of every 100 ms."""
    draw = random.Random(1)
    waits = [max(0.0, 90 - draw.uniform(0, 100)) for _ in range(200_000)]
    found = late(*[(100 * k, 90) for k in range(1, 11)])
    assert (
        found["lag_mean_ps"] / MS
        == pytest.approx(sum(waits) / len(waits), rel=0.02)
        == pytest.approx(40.5, rel=0.02)
    )


def test_many_small_delays_weigh_less_than_one_long_pause() -> None:
    often, once = late(*[(10 * k, 1) for k in range(100)]), late((500, 100))
    assert often["lag_mean_ps"] == 50_000 and once["lag_mean_ps"] == 5 * MS, (
        "both were late by 100 ms in all"
    )
    assert (once["lag_max_ps"], once["timers"]) == (100 * MS, 1)


def test_the_worst_window_is_told_whatever_else_the_run_was_like() -> None:
    assert late((500, 100))["lag_window_ps"] == 100 * 100 * MS // 2 // 400
    assert late((500, 100), until=100_000)["lag_window_ps"] == late((500, 100))["lag_window_ps"]
    assert late((500, 20), (510, 20), (1000, 20))["lag_window_ps"] == MS, (
        "two of them lie within one window"
    )
    assert late((900, 700))["lag_window_ps"] == 700 * 700 * MS // 2 // 400, (
        "a pause that is longer than a window"
    )


def test_the_last_window_counts_and_who_is_in_time_is_not_late() -> None:
    assert late((999, 40))["lag_window_ps"] == 2 * MS
    assert late((1, 0), (2, -5)) == {
        "lag_max_ps": 0,
        "lag_p99_ps": 0,
        "timers": 0,
        "lag_mean_ps": 0,
        "lag_window_ps": 0,
    }
