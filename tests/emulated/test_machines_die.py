"""Whatever dies of a fabric on several machines, all of it ends on all of them, unaided, and the
survivor says who died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.machines.channel import SILENCE_S
from tests.emulated.command import ROOT
from tests.emulated.machines import Machine, machines, on, reach
from tests.emulated.remains import Outside
from tests.emulated.ring import PATIENCE_S, wait_until

pytestmark = pytest.mark.sandbox


class Front:
    """The far side's first process on a machine, which is no child of the test's."""

    def __init__(self, machine: Machine) -> None:
        space = os.stat(machine.namespace).st_ino
        self.pid = next(
            pid
            for pid in pids_in(space)
            if words_of(pid)[-2:] == ["tools", "machine"] and "unshare" not in words_of(pid)
        )

    def poll(self) -> int | None:
        return None if os.path.exists(f"/proc/{self.pid}") else 0


def pids_in(space: int) -> Iterator[int]:
    for entry in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        try:
            if os.stat(f"/proc/{entry}/ns/net").st_ino == space:
                yield int(entry)
        except OSError:
            continue


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


class Running:
    """A coordinator with two machines, all known from outside."""

    def __init__(self, both: list[Machine]) -> None:
        self.both = both
        self.coordinator = subprocess.Popen(
            [sys.executable, "-m", "tests.emulated.machines_holder", on(both), reach()],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.coordinator.stdout is not None
        first = self.coordinator.stdout.readline()
        assert first == "ready\n", first
        self.seen = [Outside(Front(machine)) for machine in both]  # type: ignore[arg-type]
        for seen in self.seen:
            seen.look()

    def pid(self, victim: str) -> int:
        """Of a process on the second machine, or of the coordinator's."""
        seen = self.seen[1]
        match victim:
            case "coordinator":
                return self.coordinator.pid
            case "front":
                return seen.front.pid
            case "worker":
                return seen.worker()
            case "agent":
                return seen.pid_of("agent-h3 ")
        commands = (
            Path(f"/proc/{self.coordinator.pid}/task/{self.coordinator.pid}/children")
            .read_text()
            .split()
        )
        return next(
            pid
            for pid in map(int, commands)
            if os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat(self.both[1].namespace).st_ino
        )

    def assert_gone(self) -> None:
        for seen in self.seen:
            seen.assert_gone()


@pytest.fixture
def running() -> Iterator[Callable[[], Running]]:
    started: list[Running] = []
    with machines() as both:

        def start() -> Running:
            started.append(Running(both))
            return started[-1]

        yield start
        for run in started:
            run.coordinator.kill()
            run.coordinator.wait()


@pytest.mark.parametrize(
    ("victim", "named"),
    [
        ("front", "machine {name} is gone"), ("worker", "machine {name} is gone"),
        ("command", "machine {name} is gone: its command was killed by SIGKILL"),
        ("agent", "{name}: the agent of h3 (process "), ("coordinator", ""),
    ],
)  # fmt: skip
def test_a_death_ends_all_machines_and_is_named(
    running: Callable[[], Running], victim: str, named: str
) -> None:
    run = running()
    os.kill(run.pid(victim), signal.SIGKILL)
    run.assert_gone()
    said, _ = run.coordinator.communicate(timeout=PATIENCE_S)
    assert said.startswith(named.format(name=run.both[1].name)), said
    assert said.count("\n") == (victim != "coordinator")
    assert run.coordinator.returncode == (-9 if victim == "coordinator" else 1)


def test_a_machine_that_hears_nothing_ends(running: Callable[[], Running]) -> None:
    """A connection may be lost without a word: here the coordinator stands still."""
    run = running()
    os.kill(run.coordinator.pid, signal.SIGSTOP)
    assert wait_until(
        lambda: all(seen.front.poll() is not None for seen in run.seen), SILENCE_S + PATIENCE_S
    )
    run.assert_gone()
    os.kill(run.coordinator.pid, signal.SIGCONT)
    said, _ = run.coordinator.communicate(timeout=PATIENCE_S)
    assert wait_until(lambda: run.coordinator.poll() is not None)
    assert "is gone" in said or "nothing heard" in said, said
