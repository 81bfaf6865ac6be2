"""Plots and checks of failures: drawn from tables alone, of runs written by hand; every figure that
a shipped check names exists."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.figures.measure import load_runs, write_tables
from scenarios.figures.ports import JUDGED_RTTS
from scenarios.figures.stored import Stored
from scenarios.figures.summary import exit_status, run_summary, summarise
from scenarios.run.timeline import Timeline
from scenarios.schema.scenario import ScenarioError, load_scenario, named_scenarios
from scenarios.show.plots import draw_all
from scenarios.show.plots.paths import intervals, seen
from scenarios.show.plots.planes import deviations
from scenarios.show.plots.ports import expected_line
from scenarios.show.run_tables import show
from testbed import terminal
from testbed.results.summary import PlaneLoad
from tests.made import made
from tests.scenarios.broken import MS, at, fault, net_at, verdict, write
from tests.scenarios.figures.test_failure_figures import (
    BAD,
    BUSY,
    CABLE,
    CUT,
    DEAD,
    DOWN,
    FLOWS,
    LOSSY,
    host_flows,
    loss,
    ring,
)
from tests.scenarios.small import only_drawn
from tests.scenarios.synthetic import write_manifest
from topologies.structs import plain

KEY = "mrc-tiny-packed-s1"


def results(
    directory: Path,
    scenario: str,
    journal: list[dict[str, Any]],
    lines: list[dict[str, Any]],
    **more: Any,
) -> dict[str, Any]:
    """A results directory without raw files; returns its summary."""
    raw = directory / "raw" / KEY
    write(raw, journal, lines, **{"counters_after": [{"port": "h0-p0", "node": "h0"}], **more})
    wanted = load_scenario(scenario, fabric="tiny")
    runs = load_runs(directory)
    summary = summarise(wanted, runs)
    write_tables(runs, directory)
    (directory / "summary.json").write_text(json.dumps(plain(summary)))
    write_manifest(directory, wanted, summary)
    for path in sorted(directory.glob("raw/**/*"), reverse=True):
        if path.is_file():
            path.unlink()
    return summary


def drawn(directory: Path, *kinds: str) -> set[str]:
    with only_drawn(*kinds):
        made = draw_all(directory)
    assert all("<!-- fidelity: " in path.read_text() for path in made if path.suffix == ".svg"), (
        "each says what its runs are worth"
    )
    return {path.name for path in made if path.suffix == ".png"}


def test_ports_and_planes(tmp_path: Path) -> None:
    summary = results(tmp_path, "plane-lost", DOWN, host_flows(), flows=FLOWS)
    assert drawn(tmp_path, "ports", "plane-shares", "ev-activity") == {
        f"ports-{KEY}.png",
        f"plane-shares-{KEY}.png",
    }
    run = summary["runs"][0]
    x, y = expected_line(run, "h0", net_at(0), net_at(20), 2)
    assert x == pytest.approx([0.0, 500.0, 500.0, 1200.0, 1200.0, 2000.0]) and y == [
        100.0,
        100.0,
        50.0,
        50.0,
        100.0,
        100.0,
    ]
    row = made(PlaneLoad, packets=[0, 990, 40], equal=[0, 1000, 50])
    assert deviations(row) == [(1, pytest.approx(-1.0), True), (2, pytest.approx(-20.0), False)]


def test_paths_of_a_plane_that_is_down_are_not_drawn_in_use(tmp_path: Path) -> None:
    steps = zip(
        (5, 12, 12.4), ("USED", "DOWN", "PROVING"), ("DOWN", "PROVING", "USED"), strict=True
    )
    moves = [
        {
            "t": at(t),
            "kind": "plane",
            "host": 0,
            "peer": 2,
            "plane": 0,
            "from": a,
            "to": b,
            "cause": "port",
        }
        for t, a, b in steps
    ]
    summary = results(tmp_path, "plane-lost", DOWN, [*host_flows(), *moves], flows=FLOWS)
    assert drawn(tmp_path, "paths") == {f"paths-{KEY}.png"}
    stored, run = Stored(tmp_path), summary["runs"][0]
    events, end = stored.rows("events", run), net_at(20)
    on_0, on_1 = (intervals(events[events["kind"] == "plane"], ev, end) for ev in (1, BAD))
    assert on_0[1:] == [
        (net_at(5), net_at(12), "DOWN"),
        (net_at(12), net_at(12.4), "DOWN"),
    ] and on_1 == [(0.0, end, "GOOD")]
    outage = stored.outages(run)[0]
    unused = {
        ev: [(a, b) for a, b, state in intervals(events, ev, end) if state == "DOWN"]
        for ev in (0, 1)
    }
    assert seen([outage], {outage: {0, 1}}, unused) == "dead paths are left at once"
    assert seen([outage], {outage: {0, BAD}}, unused) == "1 of 2 dead paths left at once"
    assert seen([outage], {outage: {BAD}}, unused) == "1 dead path stayed in use"
    assert seen([], {}, {}) == "every path stays in use"
    left = {0: [(1.0, 2.0)], 1: [(1.0, 9.0)], 2: []}
    assert seen([], {}, left) == "2 of 3 paths were out of use"
    assert seen([], {}, left, 2.0) == "1 of 3 paths were out of use"


def test_flaps(tmp_path: Path) -> None:
    cycle = fault(
        "f",
        "flap",
        CUT,
        [CUT],
        ("begin", 2),
        *((p, t + d) for t in (2, 5) for p, d in (("down", 0), ("up", 1))),
        ("heal", 8),
    )
    moves = [
        verdict(1, 2, DEAD, t, t, to=to, qpn=q)
        for q in (16, 17)
        for t, to in ((2.1, "ASSUMED_BAD"), (3.5, "GOOD"), (5.1, "ASSUMED_BAD"))
    ]
    summary = results(tmp_path, "flapping", cycle, [*host_flows(), *moves], flows=FLOWS)
    assert [(row["n"], row["back"]) for row in summary["runs"][0]["flaps"]] == [(2, 2), (2, 0)]
    assert f"flap-penalty-{KEY}.png" in drawn(tmp_path, "flap-penalty")
    outages = Stored(tmp_path).outages(summary["runs"][0])
    network = [round(net_at(t)) for t in (2, 3, 5, 6)]
    assert [(o.begin, o.end, o.links) for o in outages] == [
        (*network[:2], (CUT,)),
        (*network[2:], (CUT,)),
    ]


def test_a_lossy_path(tmp_path: Path) -> None:
    counts = [(t / 10, {"0": 40, str(BAD if t < 23 else BAD | 1): 40}) for t in range(60)]
    lines = [
        {"t": at(t), "kind": "evs", "host": 0, "peer": 2, "bin_ps": 100 * MS, "tx": n}
        for t, n in counts
    ]
    found = [loss(0, 2, BAD, 2.3, 2.2), verdict(0, 2, BAD, 2.32, 2.25)]
    # the scenario gives fabric and transport
    results(tmp_path, "flapping", LOSSY, [*host_flows(), *lines, *found], flows=FLOWS)
    assert f"ev-activity-{KEY}.png" in drawn(tmp_path, "ev-activity")


def test_a_table_of_faults(tmp_path: Path) -> None:
    """70 ms after the cut, a lap of 5 ms and an srtt of 25 ms: 2.6; two lost on an EV, one too many
    for a window of a packet."""
    told = {"srtt_ps": 25 * MS, "evs": 4, "window": 1000}
    lines = [
        *BUSY,
        loss(1, 2, DEAD, 2.2, 2.0),
        loss(1, 2, DEAD, 2.2, 2.07),
        verdict(1, 2, DEAD, 2.2, 2.07, **told),
    ]
    summary = results(tmp_path, "t1-dead", CABLE, lines)
    out = io.StringIO()
    show(terminal.console(100, file=out), summary, tmp_path, everything=True)
    (row,) = [line.split() for line in out.getvalue().splitlines() if line.split()[1:2] == ["cut"]]
    assert row == ["mrc", "cut", "2.6", "2", "(2)", "2"]


# --- what a scenario expects ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "wrong", "verdict_of_run"),
    [("failed", 0, "ok"), ("done", 0, "failed"), ("timeout", 0, "failed"), ("failed", 2, "failed")],
)
def test_a_run_that_is_to_fail(
    tmp_path: Path, outcome: str, wrong: int, verdict_of_run: str
) -> None:
    kill = fault("k", "kill", "h3", [], ("begin", 4))
    record = {
        "outcome": outcome,
        "reason": "rank 3 (h3) is gone: x",
        "end": 5.0,
        "wrong": {"0": wrong},
    }
    summary = results(tmp_path, "agent-killed", kill, [], **record)
    assert summary["runs"][0]["verdict"] == verdict_of_run
    assert exit_status(summary) == (0 if verdict_of_run == "ok" else 1)


def test_a_run_that_is_to_fail_names_the_rank_in_time(tmp_path: Path) -> None:
    kill = fault("k", "kill", "h3", [], ("begin", 4))
    late = results(
        tmp_path / "a",
        "agent-killed",
        kill,
        [],
        outcome="failed",
        reason="rank 3 (h3) is gone",
        end=14.5,
    )
    mute = results(
        tmp_path / "b",
        "agent-killed",
        kill,
        [],
        outcome="failed",
        reason="something broke",
        end=5.0,
    )
    assert [[c["ok"] for c in s["checks"]] for s in (late, mute)] == [[True, False], [False, True]]
    assert exit_status(late) == exit_status(mute) == 1


def test_a_fault_that_never_came_fails_a_run_that_is_to_fail(tmp_path: Path) -> None:
    summary = results(
        tmp_path,
        "agent-killed",
        [],
        [],
        outcome="failed",
        reason="rank 3 fell over",
        faults_missed=["agent killed"],
    )
    assert any(
        "every fault happened" in check["name"] and not check["ok"] for check in summary["checks"]
    )


def test_outcomes_are_few(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="expect_outcome = 'broken': there are done, failed"):
        load_scenario("agent-killed", overrides=["expect_outcome=broken"])


def figures_named(check: str) -> set[str]:
    """The first key of every figure in a check: of mrc.a.b[0], a."""
    return {
        n.attr
        for n in ast.walk(ast.parse(check))
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    }


def test_every_figure_that_a_shipped_check_names_exists(tmp_path: Path) -> None:
    """A misspelt figure would fail only once the scenario has run."""
    flows = set(plain(run_summary(write(tmp_path / "f", DOWN, host_flows(), flows=FLOWS))))
    took = ring(tmp_path / "r", 1.0, CABLE, [(0.0, 1.0), (1.0, 20.0)])
    stepped = set(took) | set(plain(run_summary(write(tmp_path / "s", CABLE, []))))
    for name in named_scenarios():
        scenario = load_scenario(name)
        known = flows if scenario.workload.is_pattern else stepped
        if scenario.workload.jobs:
            known = known | {"jobs"}  # tests/scenarios/jobs looks inside
        if scenario.fabric.sites > 1:
            known = known | {"haul_rtt_ns"}  # of runs over two sites
        if scenario.backgrounds:
            # tests/scenarios/schema looks inside
            known = known | {"background", "background_sent_share", "beside_background_busbw_bps"}
        for expect in scenario.expects:
            assert figures_named(expect.check) <= known, (
                name,
                expect.check,
                figures_named(expect.check) - known,
            )


FAILURES = (
    "nic-ports-one-by-one",
    "transceiver-flap",
    "t0-t1-sequential",
    "t0-t1-flap",
    "t0-dead",
    "t1-dead",
    "t1-silent",
    "ev-loss-20",
    "dead-at-start",
    "nic-link-lossy",
    "plane-lost",
    "flapping",
    "controller-killed",
    "agent-killed",
)


@pytest.mark.parametrize("fabric", ["demo", "wide"])
@pytest.mark.parametrize("name", FAILURES)
def test_failure_scenarios_fit_both_fabrics(name: str, fabric: str) -> None:
    """Every fault finds its thing there, and ends before the flows do, long enough for what is
    asked of its return."""
    scenario = load_scenario(name, fabric=fabric)
    assert scenario.expects and scenario.faults
    for transport in scenario.transports:
        timeline = Timeline(transport.fabric, scenario.faults, 1)
        assert transport.fabric.name == fabric and timeline.absent == []
        ends = [(f.at_ps or 0) + f.for_ps for f in scenario.faults if f.for_ps is not None]
        if scenario.workload.kind == "permutation":
            assert scenario.workload.duration_ps is not None and ends
            left = scenario.workload.duration_ps - max(ends)
            assert (
                left
                >= (JUDGED_RTTS if "port_back" in str(scenario.expects) else 20)
                * transport.fabric.base_rtt_ps
            )
