"""Whole scenarios in virtual time: every file that can be simulated loads, runs reach their
verdicts, and a seed gives the same bytes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scenarios.figures.measure import Run, load_runs
from scenarios.figures.summary import summarise
from scenarios.run.planning import plan
from scenarios.run.simulate import check_simulable, simulate
from scenarios.schema.scenario import Scenario, ScenarioError, load_scenario
from scenarios.show import run_tables
from testbed.dataplane.counters import books as cable_books
from testbed.results import log
from testbed.results.summary import Run as Entry
from testbed.results.summary import Summary
from testbed.simulated.network import Network
from topologies.clos import Fabric

HERE = Path(__file__).resolve().parents[2] / "scenarios"
RING = """
description = "A cable goes under a ring, and comes back."
format = 3
fabric = "tiny"
timeout = "60s"

[workload]
kind = "ring-allreduce"
message_bytes = "256KiB"
placement = ["interleaved"]
dtype = "int32"
steps = 4
warmup_steps = 1

[[transport]]
kind = "mrc"

[[transport]]
kind = "roce"
options = { reconvergence = "20us" }

[[fault]]
name = "cable"
kind = "link"
on = "p0-t0-0:p0-t1-0"
step = 1
for = "50us"

[[fault]]
name = "dirt"
kind = "loss"
on = "p1-t0-0:p1-t1-1"
probability = 0.02
at = "10us"
for = "100us"

[[expect]]
check = "mrc.wrong + mrc.failed_steps == 0"
"""
INCAST = """
description = "Three onto one: the last hop trims."
format = 3
fabric = "tiny"
timeout = "60s"

[workload]
kind = "incast"
senders = 3
message_bytes = "64KiB"
duration = "60us"

[[transport]]
kind = "mrc"

[[expect]]
check = "mrc.packets.trimmed > 0"

[[expect]]
check = "mrc.wrong == 0"
"""


def scenario(tmp_path: Path, text: str, **how: Any) -> Scenario:
    path = tmp_path / "made.toml"
    path.write_text(text)
    return load_scenario(str(path), **how)


Ran = tuple[Path, Summary]


def ran(tmp_path: Path, text: str, name: str = "out", **how: Any) -> Ran:
    directory = tmp_path / name
    directory.mkdir()
    return directory, simulate(scenario(tmp_path, text, **how), directory, figures=False)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("ring"), RING, seeds=[7])


@pytest.fixture(scope="module")
def incast(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("incast"), INCAST)


def test_a_ring_with_a_dead_link_and_a_lossy_one_ends_well_and_adds_up(ring: Ran) -> None:
    directory, summary = ring
    assert summary["verdict"] == "ok", summary
    for entry in summary["runs"]:
        assert (entry["world"], entry["outcome"], entry["distrust"], entry["cpu_percent"]) == (
            "simulated",
            "done",
            [],
            None,
        )
        assert entry["packets"]["unexplained"] == 0
        assert entry["packets"]["causes"].keys() & {"drop_link_down", "flushed", "tx_refused"}
        assert cable_books(Run(directory / "raw" / entry["run"]).record.counters_after) == []
    assert (
        sum(entry["packets"]["causes"].get("drop_fault_loss", 0) for entry in summary["runs"]) > 0
    )
    begun = [
        line.phase for line in Run(directory / "raw" / summary["runs"][0]["run"]).of(log.Fault)
    ]
    assert begun == ["begin", "begin", "heal", "heal"]
    manifest = json.loads((directory / "manifest.json").read_text())
    assert (manifest["world"], manifest["switch"], manifest["captures"]) == (
        "simulated",
        "simulated",
        [],
    )
    assert any(note.startswith("Simulated, in virtual time") for note in manifest["notes"])


def test_an_incast_is_trimmed_and_loses_nothing(incast: Ran) -> None:
    directory, summary = incast
    assert summary["verdict"] == "ok", summary
    (entry,) = summary["runs"]
    assert entry["packets"]["lost"] == entry["packets"]["unexplained"] == 0
    samples = (directory / "raw" / entry["run"] / "queues.jsonl").read_text().splitlines()
    assert len(samples) > 50
    assert (
        max(
            row["backlog_peak_bytes"]
            for row in Run(directory / "raw" / entry["run"]).record.counters_after
        )
        > 40_000
    )


ALL_TO_ALL = """
description = "Five packets to each of seven peers on four planes: no multiple of anything."
format = 3
fabric = "demo"

[workload]
kind = "all-to-all"
message_bytes = "160KiB"
dtype = "int32"
steps = 2
warmup_steps = 0
slices = 1

[[transport]]
kind = "mrc"

[[expect]]
check = "mrc.rotation.apart <= max(mrc.rotation.apart_allowed, 0.02)"

[[expect]]
check = "mrc.expectations.lockstep > 2"
unusual = true
"""


def test_planes_are_loaded_alike_and_what_is_unusual_leaves_the_verdict(tmp_path: Path) -> None:
    _, summary = ran(tmp_path, ALL_TO_ALL)
    (entry,) = summary["runs"]
    assert (summary["verdict"], entry["broken"], entry["rotation"]["host_apart"] <= 2) == (
        "ok",
        [],
        True,
    ), entry["rotation"]
    assert sum(entry["rotation"]["sent_packets"]) == 8 * 7 * 5 * 2
    assert [(check.ok, check.unusual) for check in summary.checks] == [(True, None), (False, True)]
    out = io.StringIO()
    run_tables.show(Console(file=out, width=120), summary, tmp_path, everything=True)
    assert (
        "unusual mrc.expectations.lockstep > 2: expected > 2, seen 0" in out.getvalue()
        and "FAILED" not in out.getvalue()
    )
    assert "kept in 1 of 1 runs" in out.getvalue()
    entry["broken"].append("h0 began all of them on plane 0")
    assert run_tables.books_line([entry]).endswith("kept in 0 of 1 runs.")
    table = run_tables.checks_table(summary["checks"])
    assert [table.columns[0][1](row) for row in table.rows] == ["ok", "unusual"]


FAR = (
    RING.split("[[fault]]")[0]
    .replace('"mrc"', '"mrc"\nfabric_options = { delay = "90us" }')
    .replace('options = { reconvergence = "20us" }', 'fabric_options = { delay = "90us" }')
    .replace('timeout = "60s"', 'timeout = "8s"')
)
"""Stopped in the middle: windows are full and the answers to what was sent still seconds away."""


def test_books_close_when_what_was_sent_before_the_end_has_come_to_rest(tmp_path: Path) -> None:
    _, summary = ran(tmp_path, FAR)
    for entry in summary["runs"]:
        assert (entry["outcome"], entry["packets"]["sent"] > 500) == ("timeout", True), entry
        assert (
            entry["packets"]["unexplained"],
            entry["packets"]["on_the_way"],
            entry["distrust"],
        ) == (0, 0, []), entry


def test_what_is_on_its_way_when_the_books_are_closed_has_not_vanished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scenarios.run.one_run.drain_ps", lambda fabric, faults: 0)
    _, summary = ran(tmp_path, FAR, transports=("mrc",))
    for entry in summary["runs"]:
        left = entry["packets"]["on_the_way"]
        assert left > 0 and entry["packets"]["unexplained"] == 0, entry
        assert entry["distrust"] == [
            f"{left} packets were still on their way when the counters were read"
        ]


def test_the_same_seed_gives_the_same_bytes_whatever_ran_before_and_another_seed_does_not(
    ring: Ran, tmp_path: Path
) -> None:
    first = ring[0]
    later, _ = ran(tmp_path, RING, seeds=[8, 7])
    for transport in ("mrc", "roce"):
        run = f"raw/{transport}-tiny-interleaved-s7"
        names = sorted(path.name for path in (first / run).iterdir())
        assert names == sorted(path.name for path in (later / run).iterdir()) and len(names) > 5
        assert [
            name
            for name in names
            if (first / run / name).read_bytes() != (later / run / name).read_bytes()
        ] == []
        assert (first / run / "h0.jsonl").read_bytes() != (
            later / run.replace("-s7", "-s8") / "h0.jsonl"
        ).read_bytes()


@pytest.mark.parametrize("path", sorted(HERE.glob("*.toml")), ids=lambda path: path.stem)
def test_every_scenario_can_be_simulated_or_says_why_not(path: Path) -> None:
    loaded = load_scenario(str(path))
    assert plan(loaded)
    try:
        check_simulable(loaded)
    except ScenarioError as error:
        assert "\n" not in str(error) and "simulated world" in str(error)
        assert (
            any(t.kind in ("tcp", "mptcp") for t in loaded.transports)
            or loaded.backgrounds
            or "kills the controller" in str(error)
        )


def test_what_needs_the_kernel_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(
        ScenarioError, match=r"transport 'tcp' is the kernel's, .* has no kernel: --transport mrc"
    ):
        ran(tmp_path, INCAST + '[[transport]]\nkind = "tcp"\n')
    assert list((tmp_path / "out").iterdir()) == []


def test_an_agent_that_is_killed_ends_the_run_as_the_scenario_wants(tmp_path: Path) -> None:
    text = (
        RING.split("[[fault]]")[0]
        + '[[fault]]\nname = "killed"\nkind = "kill"\non = "h2"\nat = "30us"\n'
    )
    _, summary = ran(tmp_path, 'expect_outcome = "failed"\n' + text, transports=("mrc",))
    (entry,) = summary["runs"]
    assert entry["outcome"] == "failed" and "h2" in entry["reason"], entry


# of which rates make the most, not distances
BUSY = RING.split("[[fault]]")[0].replace("256KiB", "512KiB")
DOWN = {"drop_link_down", "flushed"}
FAULTS = {
    "flap": ('on = "p0-t0-0:p0-t1-0"\nperiod = "20us"\nduty = 0.5', DOWN),
    "silent": ('on = "p0-t1-0"\nreboot = "10us"', {"drop_silent"}),
    "switch": ('on = "p1-t1-1"', DOWN),
    "corrupt": ('on = "p0-t0-0:p0-t1-0"\nprobability = 0.05', set()),
    "path-loss": ('on = "h0>h2@p0/1"\nprobability = 0.5', {"drop_fault_path"}),
    "destination-loss": ('on = "p0-t1-1"\nto = "h2"', {"drop_fault_path"}),
    "port": ('on = "h0-p0"', DOWN),
    "slow": ('on = "h0-p0"\nrate = 0.5', set()),
    "straggler": ('on = "h1"\nshare = 0.2\nperiod = "20us"', set()),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Entry:
    return ran(tmp_path_factory.mktemp("plain"), BUSY, transports=("mrc",))[1].runs[0]


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_does_its_work_and_every_packet_has_a_fate(
    tmp_path: Path, kind: str, undisturbed: Entry
) -> None:
    rest, causes = FAULTS[kind]
    text = f'{BUSY}\n[[fault]]\nname = "f"\nkind = "{kind}"\n{rest}\nat = "10us"\nfor = "100us"\n'
    (entry,) = ran(tmp_path, text, transports=("mrc",))[1]["runs"]
    assert (entry["outcome"], entry["wrong"], entry["verdict"]) == ("done", 0, "ok"), entry
    assert entry["packets"]["unexplained"] == 0
    assert not causes or entry["packets"]["causes"].keys() & causes, entry["packets"]
    assert (entry.packets.corrupted > 0) == (kind == "corrupt")
    if kind in ("slow", "straggler"):
        assert entry["step_time_ns"]["max"] > 1.2 * undisturbed["step_time_ns"]["max"]


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_a_plane_dies_before_the_clock_is_as_old_as_a_round_trip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    def young(fabric: Fabric) -> Network:
        network = Network(fabric)
        network.time = 0
        return network

    monkeypatch.setattr("testbed.simulated.cluster.Network", young)
    fabric = tmp_path / "far.toml"
    fabric.write_text(
        "format = 3\nplanes = 2\nt0_per_plane = 2\nt1_per_plane = 2\nhosts_per_t0 = 2\n"
        'nic_rate = "100Gbit"\ndelay = "200us"\n'
    )
    fault = '[[fault]]\nname = "gone"\nkind = "{}"\non = "{}"\nat = "{}"\nfor = "2ms"\n'
    faults = fault.format("plane", "p0", "1us") + fault.format("silent", "p1-t0-1", "10us").replace(
        "gone", "silent"
    )
    text = (
        RING.split("[[fault]]")[0]
        .replace('"60s"', '"3600s"')
        .replace("steps = 4", "steps = 1")
        .replace('"20us"', '"100us"')
        + faults
    )
    _, summary = ran(tmp_path, text, fabric=str(fabric), transports=(transport,))
    (entry,) = summary["runs"]
    assert (entry["outcome"], entry["wrong"], entry["failed_steps"]) == ("done", 0, 0), entry


@pytest.mark.parametrize("check", [0, 150])
def test_links_are_checked_before_the_first_packet(tmp_path: Path, check: int) -> None:
    text = INCAST.split("[[expect]]")[0].replace("senders = 3", "senders = 1")
    text = text.replace(
        'kind = "mrc"', f'kind = "mrc"\nclustermapper = {{ interval = 0.5, start_check = {check} }}'
    )
    fault = (
        '[[fault]]\nname = "dirt"\nkind = "loss"\non = "h0:p1-t0-0"\nprobability = 0.4\n'
        "before = true\n"
    )
    directory, summary = ran(tmp_path, text + fault)
    (entry,) = summary["runs"]
    run = Run(directory / "raw" / entry["run"])
    (start,) = run.of(log.Start)
    first = min(line.t_ns for line in run.of(log.Mapper))
    assert start.t_ns - first >= check * run.base_rtt_ns
    assert (
        entry["mapper"]["denied_at_start"] == (1 if check else 0) and entry["mapper"]["wrong"] == 0
    )
    assert (entry["untrimmed_loss"] == 0) == bool(check)


def test_clustermapper_finds_a_lossy_link_and_has_it_denied(tmp_path: Path) -> None:
    text = (
        INCAST.split("[[expect]]")[0]
        .replace('duration = "60us"', 'duration = "500us"')
        .replace("senders = 3", "senders = 1")
    )
    text = text.replace('kind = "mrc"', 'kind = "mrc"\nclustermapper = true')
    fault = (
        '[[fault]]\nname = "dirt"\nkind = "loss"\non = "h0:p1-t0-0"\nprobability = 0.4\n'
        'at = "10us"\nfor = "400us"\n'
    )
    directory, summary = ran(tmp_path, text + fault)
    (entry,) = summary["runs"]
    assert (entry["verdict"], entry["packets"]["unexplained"]) == ("ok", 0), entry
    run = Run(directory / "raw" / entry["run"])
    found = [(line.on, line.state) for line in run.of(log.Mapper) if line.on is not None]
    assert found and found[0][0] == "h0:p1-t0-0", found
    assert any(line.on == "h0:p1-t0-0" for line in run.of(log.Deny))


def judged(incast: Ran, tmp_path: Path, check: str) -> dict[str, Any]:
    """The incast's summary, had its second check been this one."""
    return summarise(
        scenario(tmp_path, INCAST.replace("mrc.wrong == 0", check)), load_runs(incast[0])
    )


@pytest.mark.parametrize(
    ("check", "verdict", "word"),
    [("mrc.cpu_percent < 80", "ok", "-"), ("mrc.packets.snt < 80", "failed", "FAILED")],
)
def test_a_check_of_what_no_simulated_run_has_fails_nothing(
    incast: Ran, tmp_path: Path, check: str, verdict: str, word: str
) -> None:
    """As in ``healthy``. One that misspells a key within a figure fails here, too."""
    summary = judged(incast, tmp_path, check)
    assert summary["verdict"] == verdict
    assert [c["ok"] for c in summary["checks"]] == [True, None if verdict == "ok" else False]
    console = Console(width=200, record=True, file=io.StringIO())
    run_tables.show(console, summary, tmp_path, everything=True)
    line = next(line for line in console.export_text().splitlines() if check in line)
    assert line.startswith(word) and (
        "not applicable: no CPU is measured in the simulated world" in line
    ) is (verdict == "ok")
    table = run_tables.checks_table(summary["checks"])
    assert (table.columns[0][1](table.rows[1]), table.mark(table.rows[1])) == (
        ("–", "") if verdict == "ok" else ("FAILED", "bad")
    )


@pytest.mark.parametrize(("world", "ok"), [("emulated", None), ("simulated", False)])
def test_a_check_that_is_asked_in_one_world_only_says_why_in_the_other(
    incast: Ran, tmp_path: Path, world: str, ok: bool | None
) -> None:
    summary = judged(
        incast, tmp_path, f'mrc.wrong > 0"\nonly_in = "{world}"\nbecause = "its ports catch up'
    )
    assert [c["ok"] for c in summary["checks"]] == [True, ok]
    assert summary["checks"][1]["seen"] == (
        "not applicable: its ports catch up" if ok is None else 0
    )
    with pytest.raises(ScenarioError, match="only_in.*needs a reason"):
        judged(incast, tmp_path, 'mrc.wrong > 0"\nonly_in = "emulated')
