"""Runs that are stopped, killed, or lose a process on the way: what is kept, what is said, what is
left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.machine.slowness import patient
from tests.emulated.command import (
    DONE,
    LONG,
    MRCBED,
    QUICK,
    ROOT,
    UNDRAWN,
    manifest_of,
    mrcbed,
    summary_of,
)
from tests.emulated.remains import Outside
from tests.emulated.ring import PATIENCE_S, wait_until

pytestmark = pytest.mark.sandbox


class Started:
    """``mrcbed run`` in mid-run."""

    def __init__(self, directory: Path, *words: str, drawn: bool) -> None:
        self.out, self.said = directory / "out", directory / "said"
        command = [
            *([MRCBED] if drawn else UNDRAWN),
            "run",
            "smoke",
            "--dilation",
            "fabric",
            "--out",
            str(self.out),
            *words,
        ]
        with self.said.open("wb") as said:
            self.front = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        self.seen = Outside(self.front)

    def wait_for_steps(self, count: int = 16) -> None:
        until = time.monotonic() + 2 * PATIENCE_S
        while self.steps() < count:
            assert self.front.poll() is None and time.monotonic() < until, self.said.read_text()
            time.sleep(0.02)
        self.seen.look()

    def steps(self) -> int:
        """Steps of all ranks that lie on disk."""
        return sum(path.read_text().count('"end_ps"') for path in self.out.glob("raw/*/h*.jsonl"))

    def run(self) -> dict[str, Any]:
        return dict(summary_of(self.out)["runs"][0])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    made: list[Started] = []

    def begin(*words: str, drawn: bool = False) -> Started:
        made.append(Started(tmp_path, *words, drawn=drawn))
        return made[-1]

    yield begin
    for run in made:
        run.front.kill()
        run.front.wait()


def test_a_run_whose_agent_did_not_get_to_run_is_not_trusted(start: Any) -> None:
    """Stopped for a second, as by a machine that has no core for it: the verdict and every figure
    say so."""
    run = start(*QUICK, "--set", "workload.steps=20", drawn=True)
    run.wait_for_steps()
    agent = run.seen.pid_of("agent-h2 ")
    os.kill(agent, signal.SIGSTOP)
    time.sleep(1)
    os.kill(agent, signal.SIGCONT)
    assert run.front.wait(patient(240)) == 3, run.said.read_text()
    (made,) = summary_of(run.out)["runs"]
    verdict = made["fidelity"]["verdict"]
    assert summary_of(run.out)["verdict"] == "not trustworthy" and made["wrong"] == 0
    assert verdict in ("doubtful", "invalid"), "invalid if a port could not keep its rate"
    assert any(
        "acted late" in reason and ("h2" in reason or "h3" in reason) for reason in made["distrust"]
    ), "h2 and h3 share a process"
    drawn = [path.read_text() for path in (run.out / "plots").glob("*.svg")]
    assert drawn and all(f"<!-- fidelity: {verdict} (1 run) -->" in text for text in drawn)
    assert manifest_of(run.out)["fidelity"][made["run"]]["reasons"] == made["distrust"]
    said = " ".join(run.said.read_text().split())
    assert "acted late" in said and "Verdict: not trustworthy" in said


def test_the_controllers_death_is_noted_and_changes_nothing(start: Any) -> None:
    run = start(*QUICK, "--set", "workload.steps=30")
    run.wait_for_steps()
    os.kill(run.seen.pid_of("-m testbed.controller"), signal.SIGKILL)
    assert run.front.wait(patient(240)) in DONE, run.said.read_text()
    run.seen.assert_gone()
    figures = run.run()
    assert (figures["steps"], figures["wrong"], figures["packets"]["unexplained"]) == (30, 0, 0)
    assert (
        "the controller is gone" in figures["notes"][0]
        and "the controller is gone" in run.said.read_text()
    )
    events = pd.read_parquet(run.out / "events.parquet")
    assert len(events[events["kind"] == "controller"]) == 1


def test_an_agents_death_ends_the_run_and_names_the_host(start: Any) -> None:
    run = start(*LONG)
    run.wait_for_steps()
    os.kill(run.seen.pid_of("agent-h2 "), signal.SIGKILL)
    assert run.front.wait(2 * PATIENCE_S) == 1, run.said.read_text()
    run.seen.assert_gone()
    last = run.said.read_text().splitlines()[-1]
    assert last.startswith("mrcbed: the agent of h2 ") and "SIGKILL" in last
    assert "Traceback" not in run.said.read_text()
    figures = run.run()
    assert summary_of(run.out)["verdict"] == figures["verdict"] == "failed" and figures["steps"] > 0
    assert "h2" in figures["reason"] and "h2" in manifest_of(run.out)["stopped_by"]
    assert len(pd.read_parquet(run.out / "steps.parquet")) >= 16


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_takes_the_network_down_first_and_keeps_what_was_measured(
    start: Any, number: signal.Signals
) -> None:
    drawn = number == signal.SIGINT
    run = start(*LONG, drawn=drawn)
    run.wait_for_steps()
    run.front.send_signal(number)

    def agents_gone() -> bool:
        """Init and worker are left, which write results."""
        return len(run.seen.processes()) <= 2

    def network_gone() -> bool:
        """The kernel frees a namespace's interfaces, and with them the programs, a while after its
        last process."""
        return agents_gone() and not any(left.startswith("program") for left in run.seen.left())

    assert wait_until(lambda: agents_gone() or (run.out / "summary.json").exists())
    assert agents_gone(), "before results are written"
    if drawn:
        assert wait_until(lambda: network_gone() or run.front.poll() is not None)
        assert run.front.poll() is None, "before results are drawn, for a second and more"
    assert run.front.wait(2 * PATIENCE_S) == 130
    run.seen.assert_gone()
    assert "Traceback" not in run.said.read_text()
    summary = summary_of(run.out)
    assert (
        summary["verdict"]
        == run.run()["verdict"]
        == manifest_of(run.out)["verdict"]
        == "interrupted"
    )
    assert run.run()["steps"] > 0 and run.run()["wrong"] == 0
    assert (
        len(pd.read_parquet(run.out / "steps.parquet")) >= 16
        and bool([*run.out.glob("plots/*.png")]) == drawn
    )


@pytest.mark.parametrize("victim", ["front", "worker"])
def test_kill_9_in_mid_run_leaves_only_what_was_on_disk(start: Any, victim: str) -> None:
    run = start(*LONG)
    run.wait_for_steps()
    os.kill(run.front.pid if victim == "front" else run.seen.worker(), signal.SIGKILL)
    run.seen.assert_gone()
    assert run.steps() >= 16
    lines = [
        json.loads(line)
        for path in run.out.glob("raw/*/h*.jsonl")
        for line in path.read_text().splitlines()[:-1]
    ]
    assert all(line["ok"] for line in lines if line["kind"] == "step")
    assert any('"start"' in path.read_text() for path in run.out.glob("raw/*/runner.jsonl"))
    assert "verdict" not in manifest_of(run.out), "the manifest of the start"


def test_a_run_killed_in_the_middle_goes_on(start: Any) -> None:
    words = (*QUICK, "--set", "workload.steps=8", "--seeds", "1-2")
    run = start(*words)
    until = time.monotonic() + 4 * PATIENCE_S
    while not (run.out / "runs.csv").is_file():  # the first is over
        assert run.front.poll() is None and time.monotonic() < until, run.said.read_text()
        time.sleep(0.02)
    run.seen.look()
    os.kill(run.front.pid, signal.SIGKILL)
    run.seen.assert_gone()
    kept = {path: path.stat().st_mtime_ns for path in run.out.glob("raw/*/run.json")}
    assert len(pd.read_csv(run.out / "runs.csv")) == len(kept) == 1
    done = mrcbed("run", "smoke", *words, "--resume", "--out", run.out)
    assert done.returncode in DONE, done.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    made = [
        (r["transport"], r["seed"], r["steps"], r["wrong"]) for r in summary_of(run.out)["runs"]
    ]
    assert made == [("mrc", 1, 8, 0), ("mrc", 2, 8, 0)]
    assert (
        len(pd.read_parquet(run.out / "runs.parquet")) == 2
        and len(set(pd.read_parquet(run.out / "steps.parquet")["run"])) == 2
    )
    ends = [session["ended"] for session in manifest_of(run.out)["sessions"]]
    assert ends[0] is None and ends[-1] is not None
