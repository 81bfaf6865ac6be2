"""Exports hold what the results hold, in a form that the other program accepts."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from scenarios.figures.measure import Run, load_runs
from scenarios.figures.stored import Stored
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from scenarios.show import perfetto
from testbed.results import log
from tests.mrcbed.cli.conftest import Said
from tests.scenarios.small import small, undrawn

FLOWS = """
format = 3
fabric = "tiny"
[workload]
kind = "incast"
senders = 2
duration = "600us"
message_bytes = "32KiB"
[[transport]]
kind = "mrc"
[[fault]]
name = "flapping"
kind = "flap"
on = "p0-t0-0:p0-t1-0"
period = "200us"
duty = 0.5
at = "50us"
for = "450us"
[[fault]]
name = "port away"
kind = "port"
on = "h0-p1"
at = "100us"
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A collective with three transports, and flows with queues and windows, simulated."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "flows.toml").write_text(FLOWS)
    scenarios = {"steps": small(folder), "flows": load_scenario(str(folder / "flows.toml"))}
    with undrawn():
        for name, scenario in scenarios.items():
            (folder / name).mkdir()
            simulate(
                scenario,
                folder / name,
                jobs=1,
                progress=lambda stage, share: None,
                command_line=["test"],
            )
    return {name: folder / name for name in scenarios}


def read(path: Path) -> list[dict[str, Any]]:
    """Numbers as they are written, so that ends of intervals can be compared exactly."""
    events: list[dict[str, Any]] = json.loads(path.read_text(), parse_float=Decimal)["traceEvents"]
    return events


def troubles(events: list[dict[str, Any]]) -> list[str]:
    """What the format's rules forbid, a line each."""
    found = []
    named: set[Any] = set()
    intervals = defaultdict(list)
    for event in events:
        kind, place = event["ph"], (event["pid"], event.get("tid"))
        if kind == "M":
            named.add(event["pid"] if event["name"].startswith("process") else place)
            continue
        if kind not in "XiC":
            found.append(f"{kind} is not of the kinds that are used here")
        if not isinstance(event["ts"], (int, Decimal)) or event["ts"] < 0 or event["ts"] * 1000 % 1:
            found.append(f"ts = {event['ts']} is not a number of us from 0 on with three decimals")
        if event["pid"] not in named or (kind != "C" and place not in named and kind != "i"):
            found.append(f"{place} has no name before {event['name']}")
        if kind == "X":
            intervals[place].append((event["ts"], event["ts"] + event["dur"]))
            if event["dur"] <= 0:
                found.append(f"{event['name']} lasts {event['dur']}")
        if kind == "i" and event.get("s") not in ("g", "p", "t"):
            found.append(f"{event['name']} has no scope")
        if kind == "C" and not all(
            isinstance(value, (int, Decimal)) for value in event["args"].values()
        ):
            found.append(f"{event['name']} is no number")
    for place, spans in intervals.items():
        spans.sort()
        found += [f"{place}: {a} and {b} overlap" for a, b in pairwise(spans) if b[0] < a[1]]
    return found


@pytest.mark.parametrize("name", ["steps", "flows"])
def test_a_trace_keeps_the_rules(name: str, results: dict[str, Path], mrcbed: Said) -> None:
    mrcbed("results", "export", str(results[name]), "--format", "perfetto", "--out", "traces")
    traces = {path.stem: troubles(read(path)) for path in Path("traces").iterdir()}
    assert traces == {run.key: [] for run in load_runs(results[name])}


def test_broken_traces_are_found() -> None:
    name = [
        {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {}},
        {"ph": "M", "pid": 1, "name": "process_name", "args": {}},
    ]
    step = {
        "ph": "X",
        "pid": 1,
        "tid": 1,
        "name": "step",
        "ts": Decimal("1.000"),
        "dur": Decimal("2.000"),
    }
    assert troubles([*name, step, {**step, "ts": Decimal("3.000")}]) == []
    for bad in (
        [step],
        [*name, step, {**step, "ts": Decimal("2.999")}],
        [*name, {**step, "ts": Decimal(-1)}],
        [*name, {**step, "dur": 0}],
        [*name, {**step, "ts": Decimal("1.0001")}],
        [*name, {**step, "ph": "i"}],
        [*name, {**step, "ph": "B"}],
        [*name, {"ph": "C", "pid": 1, "name": "x", "ts": 1, "args": {"x": "1"}}],
    ):
        assert len(troubles(bad)) == 1


def traced(directory: Path, key: str, folder: Path) -> tuple[Run, list[dict[str, Any]]]:
    run = Run(directory / "raw" / key)
    perfetto.write_trace(run, folder / "trace.json")
    return run, read(folder / "trace.json")


def test_steps_faults_and_states_are_those_of_the_tables(
    results: dict[str, Path], tmp_path: Path
) -> None:
    stored = Stored(results["steps"])
    (summary,) = (run for run in stored.runs if run["transport"] == "mrc")
    run, events = traced(results["steps"], summary["run"], tmp_path)
    steps = [event for event in events if event.get("cat") == "step"]
    assert len(steps) == 12 * 4
    longest = max(event["dur"] for event in steps)
    assert abs(float(longest) * 1000 - summary["step_time_ns"]["max"]) <= 1
    begin = stored.begin_ns(summary)
    (fault,) = (event for event in events if event["ph"] == "X" and event.get("cat") == "fault")
    (failover,) = summary["failovers"]
    assert begin is not None and abs(float(fault["ts"]) * 1000 - (failover["at_ns"] - begin)) <= 1
    assert abs(float(fault["dur"]) * 1000 - (failover["healed_ns"] - failover["at_ns"])) <= 1
    assert [event["name"] for event in events if event.get("s") == "g"] == [
        "cable pulled: begin",
        "cable pulled: heal",
    ]
    changed = {(line.pair, line.ev) for line in run.of(log.PathChange) if line.to == "ASSUMED_BAD"}
    bad = {(event["pid"], event["tid"]) for event in events if event["name"] == "ASSUMED_BAD"}
    assert 0 < len(bad) == len(changed)


def test_every_path_of_a_pair_is_covered_from_end_to_end(
    results: dict[str, Path], tmp_path: Path
) -> None:
    (run,) = load_runs(results["flows"])
    _, events = traced(results["flows"], run.key, tmp_path)
    threads = defaultdict(list)
    for event in events:
        if event.get("cat") == "ev":
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    end = Decimal(round(run.window[1] - run.window[0])) / 1000
    assert threads and len(threads) % run.fabric.paths_per_pair == 0
    for spans in threads.values():
        assert spans[0][0] == 0 and spans[-1][1] == end
        assert all(a[1] == b[0] for a, b in pairwise(spans))


def test_flows_have_counters(results: dict[str, Path], tmp_path: Path) -> None:
    (run,) = load_runs(results["flows"])
    _, events = traced(results["flows"], run.key, tmp_path)
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[event["name"].partition(" ")[0]].append(event)
    assert set(counters) == {"goodput", "window", "RTT", "queue"}
    line = run.fabric.nic_rate / 1e9
    rates = [float(value) for event in counters["goodput"] for value in event["args"].values()]
    assert 0.5 * line < max(rates) <= 1.01 * line
    assert len(counters["window"]) == len(
        [line for line in run.of(log.Cwnd) if run.window[0] <= line.t_ns <= run.window[1]]
    )


def test_csv_stands_beside_every_table(results: dict[str, Path], mrcbed: Said) -> None:
    folder = results["flows"]
    kept = (folder / "runs.csv").read_bytes()
    assert "cwnd.csv" in mrcbed("results", "export", str(folder), "--format", "csv")
    assert (folder / "runs.csv").read_bytes() == kept
    for table in folder.glob("*.parquet"):
        with open(table.with_suffix(".csv"), newline="") as file:
            rows = list(csv.reader(file))
        stored = pq.read_table(table)
        assert len(rows) - 1 == stored.num_rows and len(rows[0]) == stored.num_columns
    with open(folder / "cwnd.csv", newline="") as file:
        *_, last = csv.DictReader(file)
    assert last["cwnd_bytes"].isdigit() and float(last["t_ns"]) > 0


@pytest.mark.parametrize(
    ("where", "words", "says"),
    [
        (".", "perfetto", "holds no finished runs"),
        (".", "csv", "holds no Parquet tables"),
        (".", "csv --run x", "--run is for the other formats"),
        ("flows", "perfetto --run mrc-tiny-s2", "there are mrc-tiny-packed-s1"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    where: str, words: str, says: str, results: dict[str, Path], mrcbed: Said
) -> None:
    assert says in mrcbed.refused(
        "results", "export", str(results.get(where, where)), "--format", *words.split()
    )
