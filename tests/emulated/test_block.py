"""A sweep's block in the emulated world: root gets JSON, the worker gets an archive, and root ends when its worker dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scenarios.run.planning import blocks_of, plan
from scenarios.schema.scenario import load_scenario
from scenarios.sweeps import blocks, work
from scenarios.sweeps.archive import land
from scenarios.sweeps.machines import version
from testbed.machine.slowness import patient
from tests.scenarios.sweeps.support import MRCBED
from topologies.fabrics import DILATION

RUN = "mrc-tiny-interleaved-s1"
SUDO = """#!/bin/sh
printf '%s\\n' "$*" >>{calls}
[ "$1" = -n ] && shift
[ "$1" = -l ] && exit 0
exec "$@"
"""


@pytest.fixture
def text() -> str:
    return blocks.written(blocks_of(plan(load_scenario("smoke")))[0], "emulated", version(), DILATION)


@pytest.fixture
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that stands for sudo: notes how it was called, and calls what it was given as the root that we are."""
    calls = tmp_path / "calls"
    program = tmp_path / "sudo"
    program.write_text(SUDO.format(calls=calls))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(work.os, "geteuid", lambda: 1000)
    return calls


def test_a_block_goes_through_sudo_and_comes_back_as_an_archive(text: str, sudo: Path, tmp_path: Path) -> None:
    work.check_root()
    answer = work.answer(text)
    assert answer.get("problem") is None, answer
    assert land(answer["archive"], tmp_path, [RUN], {"machine": answer["machine"]}) == []
    record = json.loads((tmp_path / "raw" / RUN / "run.json").read_text())
    assert record["outcome"] == "done" and record["world"] == "emulated" and record["machine"]["kernel"] == os.uname().release
    check, call = sudo.read_text().splitlines()
    assert call == f"-n {Path(sys.executable).with_name('mrcbed')} block -" and check == call.replace("-n", "-n -l", 1)


def test_a_bring_up_that_fails_is_worth_another_machine(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCBED_CRASH_AT", "hosts")
    answer = work.answer(text)
    assert answer["bring_up"] and answer["problem"].startswith("tiny did not come up: "), answer
    assert "\n" not in answer["problem"]


def test_root_refuses_what_is_no_block(text: str) -> None:
    data = json.loads(text)
    data["world"] = "simulated"
    for line, reason in (("rm -rf /", "no JSON"), (json.dumps(data), "block: world = 'simulated' must be emulated")):
        done = subprocess.run([*work.root_command()], input=f"{line}\n", capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2 and done.stdout == "" and reason in done.stderr and done.stderr.count("\n") == 1


def test_root_ends_with_its_worker_and_leaves_no_file(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with subprocess.Popen(work.root_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(text.encode() + b"\n")
        process.stdin.flush()
        assert process.stderr.readline().decode().strip() == RUN  # the fabric is up, the run begins
        assert list(tmp_path.iterdir())
        process.stdin.close()
        begin = time.monotonic()
        assert process.stdout.read() == b"" and process.wait(patient(10)) != 0
        assert time.monotonic() - begin < patient(10)
    assert not list(tmp_path.iterdir())


@pytest.mark.dear("a head, a worker and two emulated runs")
def test_a_sweep_of_emulated_runs_is_a_results_directory(tmp_path: Path) -> None:
    out = tmp_path / "out"
    short = ["--set", "workload.steps=3", "--set", "fault=[]", "--no-figures"]
    words = [*MRCBED, "sweep", "smoke", "--world", "emulated", "--seeds", "1-2", "--dilation", "fabric", *short, "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=patient(120), check=False)
    assert done.returncode in (0, 3), done.stderr
    summary, manifest = (json.loads((out / name).read_text()) for name in ("summary.json", "manifest.json"))
    assert [(run["seed"], run["outcome"], run["world"]) for run in summary["runs"]] == [(1, "done", "emulated"), (2, "done", "emulated")]
    assert manifest["dilation"]["value"] == DILATION and manifest["switch"] == "ebpf"
    dates = {path: path.stat().st_mtime_ns for path in out.glob("raw/*/run.json")}
    again = subprocess.run([*words, "--resume"], capture_output=True, text=True, timeout=patient(120), check=False)
    assert again.returncode == done.returncode and {path: path.stat().st_mtime_ns for path in dates} == dates
