"""Reports of several machines' watches as one, and what of it makes a run doubtful."""

from __future__ import annotations

from typing import Any

import msgspec

from scenarios.figures.fidelity import Evidence, judge
from testbed.machines.watch import merged
from testbed.results.record import Watch


def process(name: str) -> dict[str, Any]:
    return {"name": name, "wall_cpu_ns": 1, "wall_delay_ns": 2, "turns": 3}


def shares(busy: float) -> dict[str, float]:
    return {"busy": busy, "own": busy, "others": 0.0, "interrupts": 0.0, "steal": 0.0}


def report(**changes: Any) -> dict[str, Any]:
    return {
        "clock": {"wall_step_ns": 0, "wall_slept_ns": 0, "drift_ppm": 0.1, "strangers": []},
        "gaps": [],
        "cores": 2,
        "failure": "",
        "shaper_late": 0,
        "ports": {"looks": 10, "frame_bytes": 4300, "ports": [{"port": "p"}]},
        "wall_window_ns": 100,
        "pressure": 0.1,
        "processes": [process("h0"), process("runner")],
        "cpu_shares": shares(0.1),
        **changes,
    }


def test_rows_come_together_and_of_single_figures_the_worst_stays() -> None:
    slept = {"wall_step_ns": 5, "wall_slept_ns": 7, "drift_ppm": -3.0, "strangers": ["h2"]}
    second = report(
        clock=slept,
        gaps=[(5, 6, 7)],
        cores=4,
        failure="OSError",
        shaper_late=3,
        wall_window_ns=120,
        pressure=0.5,
    )
    second |= {"cpu_shares": shares(0.9), "processes": [process("h2")]}
    one = merged({"a": report(), "b": second})
    assert one["clock"] == {
        "wall_step_ns": 5,
        "wall_slept_ns": 7,
        "drift_ppm": -3.0,
        "strangers": ["h2 on b"],
    }
    assert (one["gaps"], one["cores"], one["failure"], one["shaper_late"]) == (
        [(5, 6, 7)],
        6,
        "b: OSError",
        3,
    )
    assert (one["wall_window_ns"], one["pressure"], one["cpu_shares"]) == (120, 0.5, shares(0.9))
    assert [row["name"] for row in one["processes"]] == ["h0", "runner on a", "h2"]
    assert one["ports"] == {"looks": 10, "frame_bytes": 4300, "ports": [{"port": "p"}] * 2}


def test_the_tightest_quota_and_the_most_stops_of_any_machine_stay() -> None:
    first, second = (
        {"cores": 0.5, "times": 3, "wall_ns": 90},
        {"cores": 2, "times": 0, "wall_ns": 0},
    )
    assert merged({"a": report(quota=second), "b": report(quota=first)})["quota"] == {
        "cores": 0.5,
        "times": 3,
        "wall_ns": 90,
    }
    assert "quota" not in merged({"a": report(), "b": report()}), "of an earlier version"


def test_a_machine_that_did_not_see_the_whole_run_leaves_its_window_out() -> None:
    partial = report(shaper_late=None)
    del partial["wall_window_ns"]
    one = merged({"a": report(), "b": partial})
    assert "wall_window_ns" not in one and "processes" not in one and one["shaper_late"] is None


def reasons(**watch: Any) -> tuple[str, ...]:
    whole = {
        **merged({"a": report(ports={"looks": 1, "frame_bytes": 1, "ports": []}, processes=[])}),
        **watch,
    }
    rtt = 100_000_000
    return judge(
        Evidence(
            (0, 10**9),
            [],
            watch.pop("causes", {}),
            0,
            rtt,
            {},
            [],
            watch=msgspec.convert(whole, Watch),
        )
    ).doubtful


def test_clocks_that_are_less_sure_than_a_twentieth_of_a_base_rtt_are_doubtful() -> None:
    assert reasons(clocks={"unsure_ps": 5_000_000_000}) == ()
    assert reasons(clocks={"unsure_ps": 5_000_001_000})[0].startswith(
        "the machines' clocks agree to 5.00 ms only, more than a base RTT / 20"
    )


def test_merged_frames_and_lost_ones_are_doubtful() -> None:
    assert reasons(trunk={"merged": 3})[0].startswith(
        "3 frames reached a machine merged with others: turn GRO off"
    )
    assert reasons(causes={"drop_trunk": 2})[0].startswith(
        "2 packets were lost between the machines"
    )
