"""A run is trusted only if the machine, the agents and the books give no reason not to."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios import fidelity

BASE = 10_000_000
S = 1_000_000_000


def reasons(**changes: Any) -> list[str]:
    given: dict[str, Any] = {
        "samples": [(t * S // 5, 0.5) for t in range(50)],
        "window": (0, 10 * S),
        "loops": [{"host": 0, "lag_p99_ns": 1_000_000, "lag_max_ns": 5_000_000}],
        "causes": {"drop_link_down": 7},
        "unexplained": 0,
        "base_rtt_ns": BASE,
        "rejected": {},
        "cables": [],
    }
    return fidelity.reasons(**{**given, **changes})


def test_a_quiet_run_is_trusted() -> None:
    assert reasons() == []


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"samples": [(t * S // 5, 0.95) for t in range(50)]}, "busy"),
        ({"loops": [{"host": 3, "lag_p99_ns": 2 * BASE, "lag_max_ns": 2 * BASE}]}, "p99"),
        ({"loops": [{"host": 3, "lag_p99_ns": 1, "lag_max_ns": 7 * BASE}]}, "agent of h3 did not get to run for 70 ms"),
        ({"unexplained": 2}, "2 packets vanished"),
        ({"unexplained": -1}, "1 packets appeared"),
        ({"unexplained": None}, "could not be counted"),
        ({"causes": {"rx_ring_drops": 4}}, "dropped 4 packets"),
        ({"rejected": {"rx_bad_icrc": 3}}, "refused 3 frames that arrived (rx_bad_icrc)"),
        ({"rejected": {"rx_bad_icrc": 3}, "corrupted": 2}, "refused 3 frames that arrived (rx_bad_icrc)"),
        ({"rejected": {"rx_bad_icrc": 3}, "corrupted": 9, "gone": 5}, "6 of 9 frames that a fault corrupted"),
        ({"rejected": {"rx_bad_rkey": 1}, "corrupted": 1, "gone": 1}, "(rx_bad_rkey)"),
        ({"cables": [{"where": "a -> b", "kind": "cable", "packets": 1, "bytes": 100}]}, "books of a -> b"),
    ],
)
def test_each_doubt_is_told(changes: dict[str, Any], word: str) -> None:
    (only,) = reasons(**changes)
    assert word in only


def test_a_short_burst_of_load_is_no_reason() -> None:
    assert reasons(samples=[(t * S // 5, 0.95 if t < 4 else 0.3) for t in range(50)]) == []


def test_what_faults_corrupted_and_whom_they_stopped_is_no_reason() -> None:
    assert reasons(rejected={"rx_bad_icrc": 3}, corrupted=3) == []
    assert reasons(rejected={"rx_bad_icrc": 3}, corrupted=5, gone=2) == []
    assert reasons(loops=[{"host": 3, "lag_p99_ns": 2 * BASE, "lag_max_ns": 9 * BASE}], stragglers=[3]) == []
    assert reasons(loops=[{"host": 3, "lag_p99_ns": 2 * BASE, "lag_max_ns": 2 * BASE}], stragglers=[2]) != []
