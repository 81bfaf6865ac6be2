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
SWEPT = '"workload.message_bytes" = ["40KiB", "80KiB"]'


def begin(file: Path, out: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", UNDRAWN, "sweep", str(file), "--jobs", "2", "--out", str(out), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "small.toml"
    path.write_text(f"seeds = [1, 2]\n{TEXT}[sweep]\n{SWEPT}\n")
    return path


@pytest.fixture(scope="module")
def plain(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same scenario, run by this process, one run after the other."""
    out = tmp_path_factory.mktemp("plain")
    with undrawn():
        simulate(load_scenario(str(file)), results_directory("small", str(out)))
    return out


def test_the_tree_is_that_of_a_plain_run(file: Path, plain: Path, tmp_path: Path) -> None:
    sweep = begin(file, tmp_path / "out")
    said, complaints = sweep.communicate(timeout=patient(120))
    assert sweep.returncode == 0, complaints
    assert "Verdict: ok" in said
    ours, theirs = files(tmp_path / "out"), files(plain)
    assert sorted(ours) == sorted(theirs) and len(theirs) > 12 * 8
    assert [name for name in theirs if ours[name] != theirs[name]] == []
    manifest, former = (json.loads((place / "manifest.json").read_text()) for place in (tmp_path / "out", plain))
    differ = {key for key in manifest.keys() | former.keys() if manifest.get(key) != former.get(key)}
    assert differ <= {"command_line", "started", "ended", "sessions"}
    entries = [json.loads(line) for line in (tmp_path / "out" / JOURNAL).read_text().splitlines()]
    assert len({entry["worker"] for entry in entries}) == 2, "both workers had a share"
    assert sorted(len(entry["runs"]) for entry in entries) == [1] * 4 + [2] * 4, "those that share a fault's target are one block"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_keeps_what_landed_and_goes_on(number: int, file: Path, plain: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep = begin(file, out)
    try:
        wait_until(lambda: landed(out) or sweep.poll() is not None)
        workers = workers_of(sweep.pid)
        (os.killpg if number == signal.SIGINT else os.kill)(sweep.pid, number)  # a terminal's Ctrl-C is for all of its processes
        said, complaints = sweep.communicate(timeout=patient(60))
        assert sweep.returncode == 130 and "Traceback" not in complaints, complaints
    finally:
        if sweep.poll() is None:
            os.killpg(sweep.pid, signal.SIGKILL)
    assert workers and all(map(gone, workers))
    assert f"--resume --out {out} goes on" in complaints
    assert json.loads((out / "summary.json").read_text())["verdict"] == "interrupted"
    kept = {path: path.stat().st_mtime_ns for path in (out / "raw").glob("*/run.json")}
    assert 0 < len(kept) < 12
    if number == signal.SIGTERM:
        return  # it goes on from the same files as after Ctrl-C
    again = begin(file, out, "--resume")
    _, complaints = again.communicate(timeout=patient(120))
    assert again.returncode == 0, complaints
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert files(out) == files(plain)
