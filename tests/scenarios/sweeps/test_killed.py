"""A sweep loses workers at drawn moments, and its head: no block lands twice, none is missing, and every byte is that of a plain run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from scenarios.run.runner import results_directory
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from testbed.machine.slowness import patient
from tests.scenarios.sweeps.support import MRCBED, files, gone, landed, workers_of
from tests.waiting import wait_until

pytest.importorskip("distributed")
QUICK = ("--set", "workload.message_bytes=32KiB", "--no-figures")


@pytest.mark.dear("two heads, and six processes for blocks")
def test_workers_and_head_are_killed_at_drawn_moments(tmp_path: Path) -> None:
    kill(tmp_path, 8, 3)


def kill(tmp_path: Path, blocks: int, kills: int) -> None:
    """First a worker before it has begun; then workers after drawn numbers of blocks, the head, and a worker of the one that goes on."""
    seed = int.from_bytes(os.urandom(2), "big")
    print(f"moments drawn with seed {seed}")  # pytest shows it if the test fails
    drawn = random.Random(seed)
    moments = [0, *sorted(drawn.sample(range(1, blocks - 4), kills - 1))]  # blocks that have landed; the last but one kills the head
    out = tmp_path / "out"
    command = [*MRCBED, "sweep", "smoke", "--seeds", f"1-{blocks}", "--jobs", "2", *QUICK, "--out", str(out)]
    log = open(tmp_path / "log", "w")
    head = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    for number, moment in enumerate(moments):

        def due(head: subprocess.Popen[bytes] = head, moment: int = moment) -> bool:
            return head.poll() is not None or (len(landed(out)) >= moment and bool(workers_of(head.pid)))

        wait_until(due, pause=drawn.random() / 16)  # a look at drawn intervals comes anywhere in a block
        assert head.poll() is None, (tmp_path / "log").read_text()
        workers = workers_of(head.pid)
        if number == kills - 2:
            os.kill(head.pid, signal.SIGKILL)
            head.wait()
            wait_until(lambda workers=workers: all(map(gone, workers)))
            head = subprocess.Popen([*command, "--resume"], stdout=subprocess.DEVNULL, stderr=log)
        else:
            os.kill(drawn.choice(workers), signal.SIGKILL)
    assert head.wait(timeout=patient(120)) == 0, (tmp_path / "log").read_text()

    runs = landed(out)
    assert len(runs) == len(set(runs)) == blocks, "each landed once"
    plain = tmp_path / "plain"
    scenario = load_scenario("smoke", seeds=range(1, blocks + 1), overrides=[QUICK[1]])
    simulate(scenario, results_directory("smoke", str(plain)), figures=False)
    ours, theirs = files(out), files(plain)
    assert sorted(ours) == sorted(theirs) and len(theirs) > 7 * blocks
    assert [name for name in theirs if ours[name] != theirs[name]] == []
