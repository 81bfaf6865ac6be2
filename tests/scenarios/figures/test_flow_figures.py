"""Figures of flows, on records made by hand: every number here can be worked out on paper."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from scenarios.figures.books import port_peaks, port_rows
from scenarios.figures.flows import SETTLE_RTTS, all_on, alone_window, rate_in
from scenarios.figures.measure import Run
from scenarios.figures.stats import jain
from scenarios.figures.summary import exit_status, run_summary, summarise
from scenarios.run.planning import plan
from scenarios.schema.scenario import Scenario, load_scenario
from scenarios.schema.workloads import Flow
from testbed.results.record import Counted
from testbed.results.summary import Summary
from tests.scenarios.plays import part
from tests.scenarios.synthetic import BEAT, T0, Play, make, write_run
from topologies import Fabric
from topologies.structs import plain
from topologies.units import NS

S, BEGIN = BEAT / NS, T0 / NS
"""A beat, and when traffic begins, in ns."""


def near(value: float, rel: float = 1e-6) -> object:
    return pytest.approx(value, rel=rel)


def one(directory: Path, scenario: Scenario, play: Play) -> Run:
    """The scenario's first run."""
    return write_run(directory, scenario, plan(scenario)[0], play)


@pytest.mark.parametrize(
    ("rates", "index"),
    [
        ([3.0] * 7, 1.0),
        ([1.0, 0.0, 0.0, 0.0], 0.25),
        ([1.0, 2.0], 0.9),
        ([], None),
        ([0.0, 0.0], None),
    ],
)
def test_jain(rates: list[float], index: float | None) -> None:
    assert jain(rates) == (None if index is None else near(index))


def test_a_bin_counts_by_the_part_that_lies_in_the_window() -> None:
    bins = pd.DataFrame(
        {"t_ns": [0, 100, 200, 300], "bin_ns": [100] * 4, "rx_bytes": [1000, 2000, 3000, 4000]}
    )
    assert rate_in(bins, (50, 250)) == near((500 + 2000 + 1500) * 8e9 / 200)
    assert rate_in(bins, (400, 500)) == 0.0
    assert rate_in(bins, None) is None


def test_windows_open_twenty_rtts_after_the_start_that_opens_them(tmp_path: Path) -> None:
    run = one(
        tmp_path, load_scenario("incast-victim", overrides=["workload.duration=600us"]), Play()
    )
    settle = SETTLE_RTTS * run.base_rtt_ns
    assert all_on(run) == (BEGIN + 8 * S + settle, BEGIN + 20 * S)
    assert alone_window(run, "victim") == (BEGIN + settle, BEGIN + 8 * S)
    assert alone_window(run, "h0-h8") is None  # six others begin when it does


def test_what_has_to_settle_is_left_out_of_the_window(tmp_path: Path) -> None:
    run = one(
        tmp_path,
        load_scenario(
            "incast-victim", overrides=["workload.duration=600us", "workload.settle=300us"]
        ),
        Play(),
    )
    assert all_on(run) == (BEGIN + 8 * S + 6 * S, BEGIN + 20 * S)


def shares(flow: Flow, fabric: Fabric, t: float) -> float:
    """The seven share 98 % of a line, the first with twice of what the others have; the victim
    falls from 99 % to 96 %."""
    line = fabric.host_rate * fabric.payload_share
    if flow.group == "victim":
        return line * (0.99 if t < 8 else 0.96)
    return line * 0.98 / 8 * (2 if flow.name == "h0-h8" else 1)


def test_groups(tmp_path: Path) -> None:
    made = run_summary(
        one(
            tmp_path,
            load_scenario("incast-victim", overrides=["workload.duration=600us"]),
            Play(rate=shares),
        )
    )
    line = 400e9 * 4096 / 4238
    incast, victim = made["groups"]["incast"], made["groups"]["victim"]
    assert incast["goodput_bps"] == near(0.98 * line, 1e-5) and incast["of_line"] == near(
        0.98, 1e-5
    )
    assert incast["jain"] == near(64 / (7 * 10), 1e-5)  # (2 + 6)^2 / 7 (4 + 6)
    assert (incast["min_share"], incast["max_share"]) == (
        near(0.98 / 8, 1e-4),
        near(0.98 / 4, 1e-4),
    )
    assert victim["kept"] == near(0.96 / 0.99, 1e-3) and incast["kept"] is None
    flow = made["flows"]["h0-h8"]
    assert (flow["src"], flow["dst"], flow["line_bps"], flow["alone_bps"]) == (
        "h0",
        "h8",
        near(line),
        None,
    )
    assert flow["share"] == near(0.98 / 4, 1e-5) and flow["messages"] > 0 and flow["wrong"] == 0


def test_flows_that_count_messages_are_measured_from_their_own_first_to_last(
    tmp_path: Path,
) -> None:
    """One of two sends half as fast: it takes twice as long, and the pair is over when it is."""
    scenario = load_scenario("incast-15", overrides=["workload.senders=2"])
    line = 240e9 * 4096 / 4238

    def rate(flow: Flow, fabric: Fabric, t: float) -> float:
        return line / (2 if flow.name == "h0-h8" else 4)

    run = one(tmp_path, scenario, Play(rate=rate))
    made = run_summary(run)
    assert all_on(run) is None and made["all_on_ns"] is None
    fast, slow = made["flows"]["h0-h8"], made["flows"]["h1-h8"]
    assert (fast["messages"], slow["messages"]) == (8, 8)
    span = float(run.messages["end_ns"].max() - run.messages["start_ns"].min())
    assert made["groups"]["incast"]["goodput_bps"] == near(16 * (128 << 10) * 8e9 / span)
    assert fast["goodput_bps"] / slow["goodput_bps"] == near(2, 0.1)
    assert (
        made["groups"]["incast"]["message_ns"]["n"] == 16
        and made["groups"]["incast"]["message_ns"]["p99"] is None
    )


def test_queues_of_the_last_hop(tmp_path: Path) -> None:
    """One plane's queue is 5 BDP at first and rises from 1 to 2 while all send; the others are at
    0.5."""

    def queue(port: str, group: str, fabric: Fabric, t: float) -> int:
        if not port.startswith("p2") or group == "victim":
            return fabric.plane_bdp // 2
        return (
            5 * fabric.plane_bdp
            if t < 9
            else fabric.plane_bdp + int(max(0, t - 12) / 8 * fabric.plane_bdp)
        )

    ports = {"trimmed": 3, "marked": 2, "drop_tail_packets": 1, "backlog_peak_bytes": 9}
    made = run_summary(
        one(
            tmp_path,
            load_scenario("incast-victim", overrides=["workload.duration=600us"]),
            Play(queue=queue, ports=ports),
        )
    )
    bdp = 125_000
    incast = made["groups"]["incast"]
    assert incast["queue_peak_bytes"] == 5 * bdp and incast["buffer_bytes"] == 8 * bdp
    assert incast["queue_mean_bytes"] == near(1.5 * bdp, 0.01) and incast[
        "queue_p99_bytes"
    ] == near(1.99 * bdp, 0.01)
    assert (incast["trims"], incast["marks"], incast["drops"]) == (12, 8, 4)
    assert (
        made["queues"]["p0-t0-1-d1"]["group"] == "victim"
        and made["queues"]["p0-t0-1-d1"]["mean_bytes"] == bdp // 2
    )
    assert (made["packets"]["trimmed"], made["packets"]["marked"], made["packets"]["lost"]) == (
        24,
        16,
        8,
    )


def test_a_ports_peak_is_this_runs_only_if_it_rose() -> None:
    before = [{"port": "a", "backlog_peak_bytes": 70}, {"port": "b", "backlog_peak_bytes": 70}]
    after = [
        {"port": "a", "backlog_peak_bytes": 70},
        {"port": "b", "backlog_peak_bytes": 71},
        {"port": "c", "backlog_peak_bytes": 5},
    ]
    assert port_peaks(Counted(counters_before=before, counters_after=after)) == {"b": 71, "c": 5}


def test_mean_backlog_is_this_runs() -> None:
    before = [{"port": "a", "met_bytes": 1000, "met_packets": 10, "backlog_mean_bytes": 100}]
    after = [{"port": "a", "met_bytes": 5000, "met_packets": 20, "backlog_mean_bytes": 250}]
    assert (
        port_rows(Counted(counters_before=before, counters_after=after))[0]["backlog_mean_bytes"]
        == 400
    )


def test_trims_are_no_losses_and_timeouts_are_counted(tmp_path: Path) -> None:
    rules = ["order", "time", "rto", "count", "trim", "port", "no room"]
    scenario = load_scenario("incast-victim", overrides=["workload.duration=600us"])
    made = run_summary(one(tmp_path, scenario, Play(losses=rules, rtos=2, ports={"trimmed": 50})))
    assert made["untrimmed_loss"] == 4 and made["timeouts"]["rto"] == 2
    assert made["packets"]["lost"] == 0 and made["packets"]["unexplained"] == 0


def test_a_wrong_byte_fails_the_run(tmp_path: Path) -> None:
    scenario = load_scenario("permutation", transports=["mrc"])
    summary = make(tmp_path, scenario, {"mrc": Play(wrong=3)})
    (run,) = summary["runs"]
    assert (run["wrong"], run["flows"]["h0-h9"]["wrong"], run["verdict"], exit_status(summary)) == (
        3,
        3,
        "failed",
        1,
    )
    assert msgspec.convert(json.loads(json.dumps(plain(summary))), Summary) == summary


def test_checks_can_name_groups_and_flows(tmp_path: Path) -> None:
    checks = [
        "mrc.groups.permutation.min_share >= 0.93",
        "mrc.flows['h0-h9'].share > 0.99",
        "mrc.queues['p0-t0-1-d0'].trims == 0",
    ]
    scenario = load_scenario("permutation", transports=["mrc"])
    scenario = dataclasses.replace(
        scenario,
        expects=tuple(msgspec.structs.replace(scenario.expects[0], check=c) for c in checks),
    )
    write_run(tmp_path, scenario, plan(scenario)[0], Play())
    made = summarise(scenario, [Run(tmp_path / "raw" / plan(scenario)[0].key)])
    # no port of a permutation is watched
    assert [check["ok"] for check in made["checks"]] == [True, True, False]


def test_a_median_is_asked_once_over_the_seeds(tmp_path: Path) -> None:
    """Two of three seeds hold: the median does, and each seed is asked where no median is."""
    scenario = load_scenario("permutation", transports=["mrc"], seeds=[1, 2, 3])
    wrong = dataclasses.replace(
        scenario,
        expects=(scenario.expects[0], msgspec.structs.replace(scenario.expects[0], median=False)),
    )

    def nine_tenths(flow: Flow, fabric: Fabric, t: float) -> float:
        return 0.9 * fabric.host_rate * fabric.payload_share

    runs = [
        write_run(tmp_path, wrong, spec, Play(rate=nine_tenths) if spec.seed == 2 else Play())
        for spec in plan(wrong)
    ]
    checks = summarise(wrong, runs)["checks"]
    assert [check["ok"] for check in checks] == [True, True, False, True]
    assert (
        "[packed, median of seeds 1, 2, 3]" in checks[0]["name"]
        and "[packed, seed 2]" in checks[2]["name"]
    )


# --- EVs ------------------------------------------------------------------------------------------


def parted(directory: Path, play: Play) -> dict[str, Any]:
    # 16, 5 and 11 s of the clock
    times = [
        "workload.flow.A.for=800us",
        "workload.flow.B.start=250us",
        "workload.flow.B.for=550us",
    ]
    made: list[dict[str, Any]] = run_summary(
        one(directory, load_scenario("ev-balance", overrides=times), play)
    )["separations"]
    return made[0]


def test_flows_that_part(tmp_path: Path) -> None:
    made = parted(tmp_path, part(5.0, 0.5, 1))
    assert (made["flow"], made["from"], made["evs"]) == ("A", "B", 128)
    assert made["shared_evs"] == [plane << 16 | 15 for plane in range(8)]
    assert made["before"] == near(1.0, 0.1) and made["after"] == near(0.5, 0.15)
    assert 0 < made["separated_rtts"] < 30
    assert made["separated_ns"] == near(made["separated_rtts"] * 10_000, 0.01)


def test_flows_that_do_not_part(tmp_path: Path) -> None:
    made = parted(tmp_path, part(5.0, 1.0, 1))
    assert (
        made["after"] == near(1.0, 0.05)
        and made["separated_ns"] is None
        and made["separated_rtts"] is None
    )


def test_a_flow_that_comes_back_has_not_parted_yet(tmp_path: Path) -> None:
    """Gone from 5 s, back from 9 s to 11 s, then gone for good: parted at 11 s and some
    smoothing."""

    def packets(flow: Flow, place: int, t: float) -> int:
        away = place % 16 == 15 and (5 <= t < 9 or t >= 11)
        return 18 if flow.name == "B" else int(not away)

    made = parted(tmp_path, Play(packets=packets))
    assert 6 * S < made["separated_ns"] < 6.9 * S


def test_no_paths_told_no_separation(tmp_path: Path) -> None:
    run = one(tmp_path, load_scenario("ev-balance"), part(5.0, 0.5, 1))
    run.record.host_paths.clear()
    assert run_summary(run)["separations"] == []


# --- runs that ended early ------------------------------------------------------------------------


def test_a_run_that_never_began_has_figures_that_say_nothing(tmp_path: Path) -> None:
    run = one(
        tmp_path, load_scenario("incast-victim", overrides=["workload.duration=600us"]), Play()
    )
    for file in [*run.directory.glob("h*.jsonl"), run.directory / "queues.jsonl"]:
        file.unlink()
    run.record.t0, run.record.flow_notes, run.record.counters_after, run.record.outcome = (
        None,
        [],
        [],
        "died",
    )
    made = run_summary(run)
    assert made["verdict"] == "failed" and made["groups"]["incast"]["jain"] is None
    assert (
        made["flows"]["victim"]["goodput_bps"] is None and made["groups"]["victim"]["kept"] is None
    )
    assert made["queues"]["p0-t0-1-d0"]["peak_bytes"] is None
