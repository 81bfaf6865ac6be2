"""Clean-up tells our dead runs from everything else. Real processes, no root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from testbed.machine import cleanup
from testbed.machine.sandbox import RUN_MARK, start_time
from tests.waiting import wait_until

SPACE = os.stat("/proc/self/ns/pid").st_ino


@pytest.fixture
def sleeper() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for process in made:
        process.kill()
        process.wait()


def start(made: list[subprocess.Popen[bytes]], mark: str) -> subprocess.Popen[bytes]:
    made.append(subprocess.Popen(["sleep", "60"], env={**os.environ, RUN_MARK: mark}))
    wait_until(
        lambda: b"sleep" in open(f"/proc/{made[-1].pid}/cmdline", "rb").read(),
        "sleep runs",
        pause=0.001,
    )
    return made[-1]


def dead_mark() -> str:
    """The mark of a front that was there and is gone."""
    front = subprocess.Popen(["sleep", "60"])
    mark = f"{SPACE}.{front.pid}.{start_time(front.pid)}"
    front.kill()
    front.wait()
    return mark


def pids() -> set[int]:
    return {item.pid for item in cleanup.find()}


def test_a_process_of_a_dead_run_is_found_and_ended(sleeper: list[subprocess.Popen[bytes]]) -> None:
    process = start(sleeper, dead_mark())
    found = [item for item in cleanup.find() if item.pid == process.pid]
    assert [item.command for item in found] == ["sleep 60"]
    assert cleanup.end(found) == []
    assert process.wait(30) == -9


def test_a_run_that_is_still_watched_is_left_alone(sleeper: list[subprocess.Popen[bytes]]) -> None:
    assert start(sleeper, f"{SPACE}.{os.getpid()}.{start_time()}").pid not in pids()


def test_a_front_whose_number_a_stranger_got_counts_as_dead(
    sleeper: list[subprocess.Popen[bytes]],
) -> None:
    assert start(sleeper, f"{SPACE}.{os.getpid()}.1").pid in pids()


@pytest.mark.parametrize(
    "mark",
    ["", "nonsense", "1.2", f"{SPACE + 1}.1.1"],
    ids=["none", "nonsense", "short", "elsewhere"],
)
def test_marks_that_are_not_of_runs_here_are_left_alone(
    sleeper: list[subprocess.Popen[bytes]], mark: str
) -> None:
    assert start(sleeper, mark).pid not in pids()


def test_a_number_that_changed_hands_is_not_killed(sleeper: list[subprocess.Popen[bytes]]) -> None:
    process = start(sleeper, dead_mark())
    found = next(item for item in cleanup.find() if item.pid == process.pid)
    stale = cleanup.Leftover(found.run, found.pid, found.name, found.command, found.interfaces, "1")
    assert cleanup.end([stale], timeout=0.1) == []
    assert process.poll() is None
