"""Failure scenarios on a real fabric, made short: what is figured from the files is what was done
to the links."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from scenarios.figures.summary import exit_status
from scenarios.run.runner import run_scenario
from scenarios.schema.scenario import load_scenario
from tests.scenarios.small import undrawn
from topologies import load_fabric
from topologies.theory import sack_share

pytestmark = pytest.mark.sandbox
SACKS_LEAVE = 1 / (1 + sack_share(load_fabric("tiny")))
"""Of a port whose flows of the other direction are acknowledged on it, too."""


def run(out: Path, name: str, *given: str) -> dict[str, Any]:
    out.mkdir()
    with undrawn():
        scenario = load_scenario(name, fabric="tiny", overrides=given)
        return run_scenario(scenario, out)


def command_lines() -> list[str]:
    """Of every process that can be seen from here: the sandbox of the tests has a process namespace
    of its own."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path(f"/proc/{entry}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.dear("the dearest of the shipped scenarios, whole")
def test_a_port_and_a_cable_under_flows(tmp_path: Path) -> None:
    """h0's port of plane 0 for 600 µs, then a cable of plane 1 for 250 µs, each followed by as long
    without."""
    faults = [
        '{name = "port", kind = "port", on = "h0-p0", at = "400us", for = "600us"}',
        '{name = "cable", kind = "link", on = "p1-t0-0:p1-t1-0", at = "1.5ms", for = "250us"}',
    ]
    summary = run(
        tmp_path / "out",
        "plane-lost",
        "workload.duration=2.1ms",
        f"fault=[{', '.join(faults)}]",
        "expect=[]",
    )
    (made,) = summary["runs"]
    assert (made["outcome"], made["wrong"], made["qp_errors"], made["packets"]["unexplained"]) == (
        "done",
        0,
        0,
        0,
    ), made["reason"]
    rows = {(row["direction"], row["phase"]): row for row in made["ports"]}
    assert set(rows) == {(d, p) for d in ("sent", "received") for p in ("down", "up")} and {
        row["host"] for row in made["ports"]
    } == {"h0"}
    for direction in ("sent", "received"):
        down, up = rows[direction, "down"], rows[direction, "up"]
        assert (down["planes"], down["expected"], up["expected"]) == (
            [0],
            0.5 * SACKS_LEAVE,
            SACKS_LEAVE,
        )
        # a busy machine may carry less, never more than a port can
        assert 0.3 < down["share"] < 0.55 and up["share"] > down["share"]
    for load in made["plane_loads"]:
        assert load["packets"][0] == load["equal"][0] == 0 and load["packets"][1] > 200
    port, cable = made["failovers"]
    assert (port["links"], cable["links"]) == (["h0:p0-t0-0"], ["p1-t0-0:p1-t1-0"])
    assert (
        cable["left_queue_pairs"] > 0
        and cable["losses_per_ev"] >= 1
        and cable["last_on_dead_rtts"] is not None
    )
    assert cable["at_ns"] < cable["last_on_dead_path_ns"] < cable["detected_ns"]
    assert made["flaps"] and made["flaps"][0]["out_ns"] > 0.9e5


@pytest.mark.usefixtures("unhurried")
def test_a_killed_agent_ends_the_run_as_expected_and_leaves_nothing(tmp_path: Path) -> None:
    before = set(os.listdir("/sys/class/net"))
    summary = run(
        tmp_path / "out",
        "agent-killed",
        "fault.0.at=50us",
        "workload.message_bytes=1MiB",
        "workload.slices=4",
    )
    (made,) = summary["runs"]
    assert (
        exit_status(summary) == 0
        and made["outcome"] == "failed"
        and "rank 3 (h3)" in made["reason"]
    ), summary["checks"]
    (kill,) = made["killed"]
    assert kill["named"] and kill["rank"] == 3
    assert not [
        line
        for line in command_lines()
        if "agents.process.host" in line or "testbed.controller" in line
    ]
    assert set(os.listdir("/sys/class/net")) == before


@pytest.mark.quiet
def test_dead_paths_are_found_and_no_other(tmp_path: Path) -> None:
    given = (
        "workload.message_bytes=1MiB",
        "workload.slices=4",
        "workload.steps=2",
        "fault.0.share=0.125",
        "expect=[]",
    )
    (made,) = run(tmp_path / "out", "dead-at-start", *given)["runs"]
    assert (made["outcome"], made["wrong"], made["failed_steps"]) == ("done", 0, 0), made["reason"]
    start = made["dead_at_start"]
    assert start["evs"] > 0 and start["missed"] == 0 and 0 < start["found_ns"] < 5e9
    assert made["false_bad"] == 0
