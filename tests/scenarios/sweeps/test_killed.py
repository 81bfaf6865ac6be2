"""A sweep loses workers at drawn moments, and its head: no block lands twice, none is missing, and every byte is that of a plain run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from scenarios.run.runner import results_directory
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from scenarios.sweeps.keeping import kept
from testbed.machine.slowness import patient
from tests.scenarios.sweeps.support import MRCBED, files, gone, landed, wait_until, workers_of

pytest.importorskip("distributed")
BLOCKS = 24
SIZE = "workload.message_bytes=64KiB"


def test_a_worker_is_killed_before_it_has_begun(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [*MRCBED, "sweep", "smoke", "--seeds", "1-2", "--jobs", "2", "--no-figures", "--out", str(out), "--set", SIZE]
    head = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: workers_of(head.pid))
    os.kill(workers_of(head.pid)[0], signal.SIGKILL)
    said = head.communicate(timeout=patient(120))[1]
    assert head.returncode == 0 and len(landed(out)) == 2, said


def never(task: object, ready: object) -> None:
    if task is not None:
        raise ValueError(task)
    os._exit(1)


@pytest.mark.parametrize(("task", "why"), [(None, "is there memory for it?"), ("no way", "ValueError: no way")])
def test_workers_that_never_begin_are_one_line(task: str | None, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    with kept(never, task, 2) as why_none:
        wait_until(why_none)
        assert why_none() == f"no process for blocks starts, 3 tries: {why}"
    assert capfd.readouterr().err == ""


def test_workers_and_head_are_killed_at_drawn_moments(tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(2), "big")
    print(f"moments drawn with seed {seed}")  # pytest shows it if the test fails
    drawn = random.Random(seed)
    moments = sorted(drawn.sample(range(1, BLOCKS - 8), 4))  # blocks that have landed; the last but one kills the head
    out = tmp_path / "out"
    command = [*MRCBED, "sweep", "smoke", "--seeds", f"1-{BLOCKS}", "--jobs", "2", "--no-figures", "--out", str(out), "--set", SIZE]
    log = open(tmp_path / "log", "w")
    head = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    for number, moment in enumerate(moments):
        wait_until(lambda head=head, moment=moment: len(landed(out)) >= moment or head.poll() is not None)
        assert head.poll() is None, (tmp_path / "log").read_text()
        time.sleep(drawn.random() * 0.3)  # anywhere in a block
        workers = workers_of(head.pid)
        if number == 2:
            os.kill(head.pid, signal.SIGKILL)
            head.wait()
            wait_until(lambda workers=workers: all(map(gone, workers)))
            head = subprocess.Popen([*command, "--resume"], stdout=subprocess.DEVNULL, stderr=log)
        else:
            wait_until(lambda head=head: len(workers_of(head.pid)) == 2)
            os.kill(drawn.choice(workers_of(head.pid)), signal.SIGKILL)
    assert head.wait(timeout=patient(120)) == 0, (tmp_path / "log").read_text()

    runs = landed(out)
    assert len(runs) == len(set(runs)) == BLOCKS, "each landed once"
    plain = tmp_path / "plain"
    scenario = load_scenario("smoke", seeds=range(1, BLOCKS + 1), overrides=[SIZE])
    simulate(scenario, results_directory("smoke", str(plain)), jobs=2, figures=False)
    ours, theirs = files(out), files(plain)
    assert sorted(ours) == sorted(theirs) and len(theirs) > 7 * BLOCKS
    assert [name for name in theirs if ours[name] != theirs[name]] == []
