"""What is told of pauses, from counters made up by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.figures import pauses
from scenarios.figures.measure import Run
from topologies import load_fabric
from topologies.structs import plain
from topologies.units import NS

FABRIC = load_fabric("tiny").with_(pfc=True)


def row(port: str, node: str, kind: str, pause: tuple[int, int, int, int, int]) -> dict[str, Any]:
    keys = (
        "pauses",
        "paused_ps",
        "longest_pause_ps",
        "pause_reaction_ps",
        "longest_pause_reaction_ps",
    )
    return {
        "port": port,
        "node": node,
        "peer": "",
        "link": "",
        "plane": 0,
        "kind": kind,
        **dict(zip(keys, pause, strict=True)),
    }


def run_of(where: Path, **record: Any) -> Run:
    told = {
        "kind": "roce",
        "transport": "roce",
        "placement": "packed",
        "seed": 1,
        "workload": "incast",
        "fabric": FABRIC.to_dict(),
    }
    (where / "run.json").write_text(
        json.dumps({**told, "ranks": [0, 1], "warmup_steps": 0, "window": [0, 1], **record})
    )
    return Run(where)


def test_a_runs_pauses_are_those_since_its_begin(tmp_path: Path) -> None:
    before = [
        row("h0-p0", "h0", "nic", (2, 500, 400, 60, 31)),
        row("p0-t0-0-u0", "p0-t0-0", "fabric", (0, 0, 0, 0, 0)),
    ]
    after = [
        row("h0-p0", "h0", "nic", (5, 1100, 300, 150, 35)),
        row("p0-t0-0-u0", "p0-t0-0", "fabric", (1, 200, 200, 30, 30)),
    ]
    run = run_of(tmp_path, counters_before=before, counters_after=after)
    made = plain(pauses.figures(run))
    assert (made["pauses"], made["paused_ns"], made["longest_pause_ns"]) == (4, 0.8, 0.3)
    assert made["tiers"]["nic"] == {
        "ports": 1,
        "paused": 1,
        "pauses": 3,
        "paused_ns": pytest.approx(0.6),
    }
    assert made["tiers"]["up"] == {"ports": 1, "paused": 1, "pauses": 1, "paused_ns": 0.2}
    assert made["reaction_ns"] == {
        "mean": pytest.approx(0.03),
        "longest": 0.035,
        "effect": FABRIC.pfc_ps / NS,
    }
    assert pauses.late_ns(run) == 0


def test_a_pause_that_came_too_late_is_told(tmp_path: Path) -> None:
    late = row("h0-p0", "h0", "nic", (1, 9, 9, FABRIC.pfc_ps + 7 * NS, FABRIC.pfc_ps + 7 * NS))
    assert pauses.late_ns(run_of(tmp_path, counters_after=[late])) == pytest.approx(7)


def test_simulated_switches_have_no_reaction_to_measure(tmp_path: Path) -> None:
    told = {
        k: v for k, v in row("h0-p0", "h0", "nic", (1, 9, 9, 0, 0)).items() if "reaction" not in k
    }
    run = run_of(tmp_path, counters_after=[told])
    assert "reaction_ns" not in plain(pauses.figures(run)) and pauses.late_ns(run) == 0
