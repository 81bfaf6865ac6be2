"""A sweep on processes of this machine leaves what a plain run leaves: tables, plots and all, for blocks of several transports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.run.runner import results_directory
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from scenarios.sweeps.sweep import JOURNAL
from testbed.machine.slowness import patient
from tests.scenarios.small import TEXT, undrawn
from tests.scenarios.sweeps.support import UNDRAWN, files, gone, landed, workers_of
from tests.waiting import wait_until

pytest.importorskip("distributed")
SWEPT = '"workload.message_bytes" = ["20KiB", "40KiB"]'
RUNS = 12


def begin(file: Path, out: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", UNDRAWN, "sweep", str(file), "--out", str(out), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def stop(sweep: subprocess.Popen[str], number: int, out: Path, workers: int, before: int) -> None:
    """Stop a sweep once more than ``before`` runs have landed: it keeps them, says how it goes on, and ends its workers."""
    try:
        wait_until(lambda: len(landed(out)) > before or sweep.poll() is not None)
        children = workers_of(sweep.pid)
        (os.killpg if number == signal.SIGINT else os.kill)(sweep.pid, number)  # a terminal's Ctrl-C is for all of its processes
        _, complaints = sweep.communicate(timeout=patient(60))
        assert sweep.returncode == 130 and "Traceback" not in complaints, complaints
    finally:
        if sweep.poll() is None:
            os.killpg(sweep.pid, signal.SIGKILL)
    assert len(children) == workers and all(map(gone, children))
    assert f"--resume --out {out} goes on" in complaints
    assert json.loads((out / "summary.json").read_text())["verdict"] == "interrupted"


def kept(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (out / "raw").glob("*/run.json")}


@pytest.mark.dear("three sweeps, each a head with its processes for blocks")
def test_a_sweep_that_was_stopped_twice_leaves_the_tree_of_a_plain_run(tmp_path: Path) -> None:
    """Each stop costs the start of a sweep: so one directory has the stop of Ctrl-C, that of SIGTERM after it, and the end."""
    file, out = tmp_path / "small.toml", tmp_path / "out"
    file.write_text(f"seeds = [1, 2]\n{TEXT.replace('steps = 12', 'steps = 4')}[sweep]\n{SWEPT}\n")
    stop(begin(file, out, "--jobs", "2"), signal.SIGINT, out, workers=2, before=0)
    first = kept(out)
    assert 0 < len(first) < RUNS
    stop(begin(file, out, "--jobs", "1", "--resume"), signal.SIGTERM, out, workers=1, before=len(first))
    second = kept(out)
    assert first.items() < second.items() and len(second) < RUNS, "what has landed is not run again"
    last = begin(file, out, "--jobs", "1", "--resume")
    said, complaints = last.communicate(timeout=patient(120))
    assert last.returncode == 0, complaints
    assert "Verdict: ok" in said
    assert second.items() < kept(out).items()

    with undrawn():  # the same scenario, run by this process, one run after the other
        simulate(load_scenario(str(file)), results_directory("small", str(tmp_path / "plain")))
    ours, theirs = files(out), files(tmp_path / "plain")
    assert sorted(ours) == sorted(theirs) and len(theirs) > RUNS * 8
    assert [name for name in theirs if ours[name] != theirs[name]] == []
    manifest, former = (json.loads((place / "manifest.json").read_text()) for place in (out, tmp_path / "plain"))
    differ = {key for key in manifest.keys() | former.keys() if manifest.get(key) != former.get(key)}
    assert differ <= {"command_line", "started", "ended", "sessions"}
    entries = [json.loads(line) for line in (out / JOURNAL).read_text().splitlines()]
    assert len({entry["worker"] for entry in entries}) >= 3, "each of the sweeps had a share"
    assert sorted(len(entry["runs"]) for entry in entries) == [1] * 4 + [2] * 4, "those that share a fault's target are one block"
