"""Whole runs of what MRC is compared with: RoCE on a lossless fabric, and MRC over switches that
hash its EVs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scenarios.run.simulate import simulate
from scenarios.schema.scenario import ScenarioError, load_scenario
from scenarios.show import run_tables

INCAST = """
format = 3
fabric = "tiny"
timeout = "60s"

[workload]
kind = "incast"
senders = 3
message_bytes = "256KiB"
duration = "300us"

[[transport]]
kind = "roce"
name = "roce-pfc"
fabric = "twin"
fabric_options = { pfc = true }
options = { congestion = "fixed", window_bdp = 8.0 }

[[transport]]
kind = "roce"
fabric = "twin"
options = { congestion = "fixed", window_bdp = 8.0 }
"""
RING = """
format = 3
fabric = "demo"
timeout = "60s"

[workload]
kind = "ring-allreduce"
message_bytes = "1MiB"
placement = ["interleaved"]
dtype = "int32"
steps = 6
warmup_steps = 1

[[transport]]
kind = "mrc"
name = "mrc-ecmp"
fabric_options = { routing = "ecmp" }
options = { reconvergence = "80us" }

[[fault]]
name = "cable"
kind = "link"
on = "p0-t0-0:p0-t1-0"
step = 1
"""


def run(tmp_path: Path, text: str) -> dict[str, Any]:
    file = tmp_path / "case.toml"
    file.write_text(text)
    (tmp_path / "out").mkdir()
    return simulate(load_scenario(str(file)), tmp_path / "out", figures=False)


def shown(summary: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=160)
    run_tables.show(console, summary, Path("out"), everything=True)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_lossless_fabric_loses_nothing_to_an_incast_that_another_drops(tmp_path: Path) -> None:
    summary = run(tmp_path, INCAST)
    lossless, lossy = summary["runs"]
    assert (
        lossless["packets"]["lost"] == 0 and lossless["wrong"] == 0 and lossless["verdict"] == "ok"
    )
    assert lossy["packets"]["causes"]["drop_tail"] > 0 and "pfc" not in lossy
    pfc = lossless["pfc"]
    assert pfc["pauses"] > 0 and 0 < pfc["longest_pause_ns"] <= pfc["paused_ns"]
    counters = json.loads(
        next((tmp_path / "out").rglob(f"{lossless['run']}/run.json")).read_text()
    )["counters_after"]
    assert all(
        r["backlog_peak_bytes"] <= 2 * 4300 for r in counters if r["node"].startswith("h")
    ), "an engine knows what a port still has"
    assert pfc["tiers"]["nic"]["ports"] == 4 and pfc["tiers"]["nic"]["paused"] == 3, (
        "the three senders, and not the target"
    )
    assert pfc["tiers"]["up"]["pauses"] + pfc["tiers"]["down"]["pauses"] > 0, (
        "two of them are behind T1s"
    )
    text = shown(summary)
    assert "Pauses (PFC)" in text and "3 of 4" in text and "RoCE runs without PFC" in text


def test_mrc_over_ecmp_leaves_the_dead_evs_and_gets_them_back_when_the_switches_have_re_routed(
    tmp_path: Path,
) -> None:
    summary = run(tmp_path, RING)
    (entry,) = summary["runs"]
    assert (
        entry["verdict"] == "ok"
        and entry["packets"]["unexplained"] == 0
        and entry["reconvergence_ns"] == 80_000
    )
    fault = entry["failovers"][0]
    assert fault["lost"] > 0 and fault["left_queue_pairs"] > 0
    assert entry["packets"]["lost"] > 0
    (log,) = (tmp_path / "out").rglob("h0.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    changes = [(line["from"], line["cause"]) for line in lines if line["kind"] == "ev"]
    assert ("ASSUMED_BAD", "probed") in changes, (
        "probes find alive what the switches have led elsewhere"
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ('kind = "mrc"\nname = "mrc-ecmp"\ncontroller = "hint"', "names paths"),
        ('kind = "mrc"\nname = "mrc-ecmp"\nclustermapper = true', "names paths"),
    ],
)
def test_what_names_paths_is_refused_where_switches_hash(
    tmp_path: Path, change: str, why: str
) -> None:
    with pytest.raises(ScenarioError, match=why):
        run(tmp_path, RING.replace('kind = "mrc"\nname = "mrc-ecmp"', change))


def test_flows_that_are_hashed_anyway_run_on_the_same_fabric_with_its_paths_named(
    tmp_path: Path,
) -> None:
    text = RING.replace('kind = "mrc"\nname = "mrc-ecmp"', 'kind = "roce"')
    file = tmp_path / "case.toml"
    file.write_text(text)
    assert [t.fabric.routing for t in load_scenario(str(file)).transports] == ["source"]
