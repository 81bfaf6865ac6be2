"""What a screen says is what the files say, however they grew; and the screen fits."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from scenarios.figures.measure import load_runs
from scenarios.figures.stored import Stored
from scenarios.run.simulate import simulate
from scenarios.show.live.screen import About, screen, spark
from scenarios.show.live.source import Results, Up, agents_folder, count_of, shown_run
from scenarios.show.live.state import BINS, CHANGES, STEPS, RunState, Series
from testbed.results import log
from testbed.results.manifest import Manifest
from testbed.view.read import BEGUN
from tests.made import made
from tests.scenarios.small import small, undrawn
from topologies import load_fabric
from topologies.units import NS

TINY = load_fabric("tiny")


@given(
    st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=300,
    )
)
def test_a_series_loses_nothing_and_stays_small(bins: list[tuple[int, int, int]]) -> None:
    series = Series()
    for number, a, b in bins:
        series.add(1_000_000 + 1000 * number, 1000, [a, b])
    assert sum(series.of(0)) == sum(a for _, a, _ in bins) and sum(series.of(1)) == sum(
        b for _, _, b in bins
    )
    assert len(series.of(0)) <= BINS


def test_memory_does_not_grow_with_a_run() -> None:
    state = RunState(TINY)
    for i in range(3000):
        states = ("died", "back") if i % 4 < 2 else ("back", "died")
        for ev, shown in enumerate(states):
            state.take(
                {"f": "path", "t": i, "src": 0, "dst": 1, "evs": [ev], "state": shown, "why": ""}
            )
        state.take({"f": "rate", "t": 1000 * i, "ns": 1000, "host": 0, "tx": [0, 0], "rx": [1, 1]})
        state.take({"f": "step", "t": i + 1, "start": i, "rank": 0, "step": i, "ok": True})
    assert (
        len(state.changes) == CHANGES
        and len(state.step_ends) == STEPS
        and len(state.goodput.bins) <= BINS
    )
    assert state.host(0).bad_paths == 1 and len(state.paths) == 1


def test_spark() -> None:
    assert spark([0, 1, 2, 4]) == "▁▂▄█"
    assert spark([1.0] * 100, 10) == "█" * 10
    assert spark([], 10) == "" and spark([0.0]) == "▁"


# --- of a run -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    (folder / "out").mkdir()
    with undrawn():
        simulate(
            small(folder, transports=["mrc"]),
            folder / "out",
            jobs=1,
            progress=lambda stage, share: None,
            command_line=["test"],
        )
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
    assert (
        about.live is False
        and (about.done, about.runs, about.steps) == (1, 1, 12)
        and state.outcome == "done"
    )
    times = [ns for _, ns in state.step_times()]
    assert len(times) == 12 and max(times) == pytest.approx(summary["step_time_ns"]["max"], abs=2)
    goodput = stored.unjudged_table("goodput")
    assert [sum(state.goodput.of(plane)) for plane in (0, 1)] == [
        goodput[goodput["plane"] == plane]["rx_bytes"].sum() for plane in (0, 1)
    ]
    (run,) = load_runs(results)
    assert times == [pytest.approx(ns, abs=2) for ns in run.step_times]
    for counted, kind in (
        ("losses", log.Loss),
        ("retransmissions", log.Rtx),
        ("timeouts", log.Rto),
    ):
        assert sum(getattr(host, counted) for host in state.hosts.values()) == len(run.of(kind)), (
            kind
        )
    assert sum(host.losses for host in state.hosts.values()) > 0
    fault = state.faults["cable pulled"]
    assert fault.end is not None and fault.end - fault.begin == 10_000
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
        assert (
            "nothing written for 31 s" in text(state, replace(about, live=live, silent_s=silent_s))
        ) is told


def test_the_run_that_goes_on_is_shown(tmp_path: Path) -> None:
    assert shown_run(tmp_path) is None
    for name, ended in (("a", True), ("b", False), ("c", True)):
        (tmp_path / "raw" / name).mkdir(parents=True)
        (tmp_path / "raw" / name / ("run.json" if ended else BEGUN)).touch()
    assert shown_run(tmp_path) == tmp_path / "raw" / "b"


def test_the_runs_of_a_scenario_are_counted() -> None:
    variant = {
        "seeds": [1, 2],
        "workload": {"placement": ["packed", "interleaved"]},
        "transports": [{}, {}, {}],
    }
    assert count_of(made(Manifest, scenario=variant)) == 12
    assert (
        count_of(made(Manifest, scenario={**variant, "variants": [{"scenario": variant}] * 5}))
        == 60
    )


def test_a_fabric_that_is_up_is_found_by_its_agents(tmp_path: Path) -> None:
    """``tmp_path`` stands for the root folder of its sandbox."""
    assert agents_folder(tmp_path) is None
    logs, own = tmp_path / "home" / "logs", tmp_path / "run" / "mrcbed" / "agents-sockets"
    logs.mkdir(parents=True)
    own.mkdir(parents=True)
    (own / "h0.json").write_text("{")
    assert agents_folder(tmp_path) is None
    (own / "h0.json").write_text(
        json.dumps(
            {
                "fabric": TINY.to_dict(),
                "transport": "mrc",
                "hosts": [{"log": "/home/logs/h0.jsonl"}],
            }
        )
    )
    assert agents_folder(tmp_path) is None
    (logs / "h0.jsonl").touch()
    assert agents_folder(tmp_path) == (logs, TINY, "mrc")


def test_a_fabric_that_is_up_is_shown_from_its_first_line_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = Up(tmp_path, TINY, "mrc")
    assert "no message yet" in text(*up.look())
    lines = [
        {"t": 5_000, "kind": "port", "host": 1, "port": 1, "up": False},
        {
            "t": 5_000,
            "kind": "plane",
            "host": 1,
            "peer": 0,
            "plane": 1,
            "from": "USED",
            "to": "DOWN",
            "cause": "port down",
        },
        {"t": 9_000, "kind": "rto", "host": 1, "peer": 0, "firing": 1},
        {
            "t": 400_000_000,
            "kind": "qp",
            "host": 0,
            "peer": 1,
            "state": "ERROR",
            "cause": "retries",
        },
    ]
    (tmp_path / "h1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert up.look()[0].lost_pairs == 0  # others may still write of that time
    # nothing more comes
    monkeypatch.setattr("testbed.view.follow.time", SimpleNamespace(monotonic=lambda: math.inf))
    state, about = up.look()
    assert about.live and not about.journalled
    assert (
        state.hosts[1].ports_down == {1} and state.hosts[1].timeouts == 1 and state.lost_pairs == 1
    )
    assert state.hosts[1].bad_paths == 1 and state.clock == round((400_000_000 - 5_000) / NS)
    shown = text(state, about)
    assert (
        "plane 1 out of use: port down" in shown
        and "1 queue pairs in ERROR" in shown
        and "mrcbed fabric links --bad" in shown
    )
