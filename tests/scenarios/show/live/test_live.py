"""What a screen says is what the files say, however they grew; and the screen fits."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from scenarios.figures.measure import load_runs
from scenarios.figures.stored import Stored
from scenarios.run.simulate import simulate
from scenarios.show.live.follow import Follower, shown_run
from scenarios.show.live.screen import About, screen, spark
from scenarios.show.live.source import Results, agents_folder, count_of, fabric_of
from scenarios.show.live.state import BINS, CHANGES, STEPS, RunState, Series
from tests.scenarios.small import small, undrawn
from topologies import load_fabric

TINY = load_fabric("tiny")


def line(kind: str, t: int, **fields: Any) -> bytes:
    return json.dumps({"t": t, "kind": kind, **fields}, separators=(",", ":")).encode() + b"\n"


LOG = b"".join(
    [
        line("goodput", 1000 * i, bin_ns=1000, tx=[0, 0], rx=[i, 2 * i])
        + line("ev", 1000 * i, peer=1, ev=i % 4, to="SKIP" if i % 3 else "GOOD")
        for i in range(30)
    ]
)


def folded(follower: Follower, state: RunState) -> RunState:
    for host, one in follower.lines():
        state.take(host, one)
    return state


@settings(max_examples=50, deadline=None)
@given(cuts=st.lists(st.integers(0, len(LOG)), max_size=6))
def test_a_log_may_grow_in_any_pieces(cuts: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("run")
    whole, pieces = RunState(TINY), RunState(TINY)
    follower = Follower(folder)
    done = 0
    for cut in [*sorted(cuts), len(LOG)]:
        with open(folder / "h0.jsonl", "ab") as file:
            file.write(LOG[done:cut])
        done = cut
        folded(follower, pieces)
    assert folded(Follower(folder), whole) == pieces
    assert not follower.behind and len(whole.changes) == 30


def test_lines_that_are_none_and_files_that_go_do_not_end_a_follower(tmp_path: Path) -> None:
    (tmp_path / "h1.jsonl").write_bytes(line("rto", 5) + b'{"t":1,"ki\n' + b"\n" + line("rto", 6) + line("transfers", 7) + b'{"half')
    (tmp_path / "queues.jsonl").write_bytes(line("rto", 5))
    follower = Follower(tmp_path)
    assert [(host, one["t"]) for host, one in follower.lines()] == [(1, 5), (1, 6)]
    (tmp_path / "h1.jsonl").unlink()
    assert list(follower.lines()) == [] and not follower.behind


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=300))
def test_a_series_loses_nothing_and_stays_small(bins: list[tuple[int, int, int]]) -> None:
    series = Series()
    for number, a, b in bins:
        series.add(1_000_000 + 1000 * number, 1000, [a, b])
    assert sum(series.of(0)) == sum(a for _, a, _ in bins) and sum(series.of(1)) == sum(b for _, _, b in bins)
    assert len(series.of(0)) <= BINS


def test_memory_does_not_grow_with_a_run() -> None:
    state = RunState(TINY)
    for i in range(3000):
        state.take(0, {"t": i, "kind": "ev", "peer": 1, "ev": i % 2, "to": "ASSUMED_BAD"})
        state.take(0, {"t": i, "kind": "goodput", "bin_ns": 1000, "rx": [1, 1]} | {"t": 1000 * i})
        state.take(0, {"t": i, "kind": "step", "step": i, "start_ns": i, "end_ns": i + 1, "ok": True})
    assert len(state.changes) == CHANGES and len(state.step_ends) == STEPS and len(state.goodput.bins) <= BINS
    assert state.host(0).bad_paths == 2 and len(state.paths) == 2


def test_spark() -> None:
    assert spark([0, 1, 2, 4]) == "▁▂▄█"
    assert spark([1.0] * 100, 10) == "█" * 10
    assert spark([], 10) == "" and spark([0.0]) == "▁"


# --- of a run ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    (folder / "out").mkdir()
    with undrawn():
        simulate(small(folder, transports=["mrc"]), folder / "out", jobs=1, progress=lambda stage, share: None, command_line=["test"])
    return folder / "out"


def text(state: RunState, about: About, width: int = 120, height: int = 0) -> str:
    console = Console(width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(screen(state, about, width, height))
    return capture.get()


def test_a_finished_run_has_the_figures_of_its_summary(results: Path) -> None:
    found = Results(results).look()
    assert found is not None
    state, about = found
    stored = Stored(results)
    (summary,) = stored.runs
    assert about.live is False and (about.done, about.runs, about.steps) == (1, 1, 12) and state.outcome == "done"
    times = [ns / state.fabric.dilation for _, ns in state.step_times()]
    assert len(times) == 12 and max(times) >= summary["step_time_ns"]["max"] - 1
    assert abs(statistics.median(times) - summary["typical_step_ns"]) < 0.1 * summary["typical_step_ns"]
    goodput = stored.clock_table("goodput")
    assert [sum(state.goodput.of(plane)) for plane in (0, 1)] == [goodput[goodput["plane"] == plane]["rx_bytes"].sum() for plane in (0, 1)]
    (run,) = load_runs(results)
    assert sum(host.losses for host in state.hosts.values()) == len(run.of("loss"))
    fault = state.faults["cable pulled"]
    assert fault.end is not None and round((fault.end - fault.begin) / state.fabric.dilation) == 10_000
    shown = text(state, about)
    assert "12 of 12" in shown and "cable pulled" in shown and "mended after 10.0 µs" in shown


@pytest.mark.parametrize("height", [12, 24, 40])
@pytest.mark.parametrize("width", [80, 118, 200])
def test_a_screen_fits(width: int, height: int, results: Path) -> None:
    found = Results(results).look()
    assert found is not None
    lines = text(*found, width, height).splitlines()
    assert max(map(len, lines)) <= width
    least = len(text(*found, width, 1).splitlines())
    assert len(lines) <= max(height, least)


def test_a_run_that_writes_nothing_any_more_is_told(results: Path) -> None:
    found = Results(results).look()
    assert found is not None
    state, about = found
    for live, silent_s, told in ((True, 31.0, True), (True, 29.0, False), (False, 31.0, False)):
        assert ("nothing written for 31 s" in text(state, replace(about, live=live, silent_s=silent_s))) is told


def test_the_run_that_goes_on_is_shown(tmp_path: Path) -> None:
    assert shown_run(tmp_path) is None
    for name, ended in (("a", True), ("b", False), ("c", True)):
        (tmp_path / "raw" / name).mkdir(parents=True)
        (tmp_path / "raw" / name / "runner.jsonl").touch()
        if ended:
            (tmp_path / "raw" / name / "run.json").touch()
    assert shown_run(tmp_path) == tmp_path / "raw" / "b"


def test_the_fabric_of_a_run_is_that_of_its_name() -> None:
    fabrics = {name: TINY.with_(name=name).to_dict() for name in ("tiny", "tiny-1p", "y")}
    key = "roce-tiny-1p-packed-s1"
    assert fabric_of({"fabrics": fabrics}, key).name == "tiny-1p"
    variant = {"seeds": [1, 2], "workload": {"placement": ["packed", "interleaved"]}, "transports": [1, 2, 3]}
    assert count_of({"scenario": variant}) == 12
    assert count_of({"scenario": {**variant, "variants": [{"scenario": variant}] * 5}}) == 60


def test_a_fabric_that_is_up_is_found_by_its_agents(tmp_path: Path) -> None:
    """``tmp_path`` stands for the root folder of its sandbox."""
    assert agents_folder(tmp_path) is None
    logs, own = tmp_path / "home" / "logs", tmp_path / "run" / "mrcbed" / "agents-sockets"
    logs.mkdir(parents=True)
    own.mkdir(parents=True)
    (own / "h0.json").write_text("{")
    assert agents_folder(tmp_path) is None
    (own / "h0.json").write_text(json.dumps({"fabric": TINY.to_dict(), "transport": "mrc", "hosts": [{"log": "/home/logs/h0.jsonl"}]}))
    assert agents_folder(tmp_path) is None
    (logs / "h0.jsonl").touch()
    assert agents_folder(tmp_path) == (logs, TINY, "mrc")
