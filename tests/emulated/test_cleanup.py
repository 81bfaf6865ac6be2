"""Whatever ends, everything of a run ends, unaided: no namespace, interface, queue, pin or process
stays.

Each run here is a sandbox of its own (holder.py) inside that of the tests, so this process can see
all of it from outside.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.emulated.cluster import CRASH_POINTS, FORCE_S
from testbed.machine.sandbox import RUN_DIR, RUN_MARK
from testbed.machine.slowness import patient
from tests.emulated.remains import CLOSED, assert_gone, mark_of, remains
from tests.emulated.ring import PATIENCE_S, wait_until

pytestmark = pytest.mark.sandbox
ROOT = Path(__file__).resolve().parents[2]
NS_GET_PARENT = 0xB702
"""ioctl_ns(2)."""


def _pid_spaces(pid: int) -> list[int]:
    """The inodes of a process's PID namespace and of the one around it, as far as we may see them.
    Raises OSError."""
    own = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
    spaces = [os.fstat(own).st_ino]
    try:
        around = fcntl.ioctl(own, NS_GET_PARENT)
        spaces.append(os.fstat(around).st_ino)
        os.close(around)
    except PermissionError:  # outside of ours
        pass
    finally:
        os.close(own)
    return spaces


class Run:
    """One holder and what it said of itself."""

    def __init__(self, directory: Path, *options: str, crash: str = "") -> None:
        directory.mkdir()
        self.notes = directory / "notes"
        self.errors = directory / "errors"
        self.front = subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "tests.emulated.holder",
                str(self.notes),
                *options,
            ],
            cwd=ROOT,
            env={**os.environ, "MRCBED_CRASH_AT": crash},
            stderr=self.errors.open("wb"),
        )
        self.mark = mark_of(self.front)

    def said(self) -> list[dict[str, Any]]:
        """Its lines so far, without one that is still being written."""
        text = self.notes.read_text() if self.notes.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait_ready(self) -> dict[str, Any]:
        until = time.monotonic() + 2 * PATIENCE_S
        while not any(n["stage"] == "ready" for n in self.said()):
            assert self.front.poll() is None, self.errors.read_text()
            assert time.monotonic() < until
            time.sleep(0.01)
        return self.said()[-1]

    def outside_pid(self, inside: int) -> int:
        """Our number for a process that the run knows as ``inside``, in its PID namespace or in one
        below (the controller)."""
        space = self.said()[-1]["pid_ns"]
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                spaces = _pid_spaces(int(entry))
                numbers = next(
                    line
                    for line in Path(f"/proc/{entry}/status").read_text().splitlines()
                    if line.startswith("NSpid:")
                )
            except OSError:
                continue
            if space in spaces and int(numbers.split()[-1 - spaces.index(space)]) == inside:
                return int(entry)
        raise AssertionError(f"no process {inside} in the run")

    def remains(self) -> list[str]:
        """What is still there of it."""
        said = self.said()
        spaces, programs = (
            {item for note in said for item in note[key]} for key in ("spaces", "programs")
        )
        return remains(self.mark, {note["pid_ns"] for note in said}, spaces, programs)

    def assert_gone(self) -> None:
        assert_gone(self.front, self.remains)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Any]:
    made: list[Run] = []

    def make(*options: str, crash: str = "") -> Run:
        made.append(Run(tmp_path / str(len(made)), *options, crash=crash))
        return made[-1]

    yield make
    for run in made:
        run.front.kill()
        run.front.wait()


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_at_any_point_of_start_up_leaves_nothing(runs: Any, point: str) -> None:
    """An error there, and, at every other point, a kill -9, which the kernel alone cleans up after:
    both runs at once."""
    options = (
        ["agents"]
        if point.startswith("agents")
        else ["controller"]
        if point in ("captures", "started")
        else []
    )
    ways = {"": 70} | ({":kill": 137} if CRASH_POINTS.index(point) % 2 else {})
    for run, status in [
        (runs(*options, crash=point + how), status) for how, status in ways.items()
    ]:
        assert run.front.wait(patient(30)) == status
        run.assert_gone()
        assert run.said()[-1]["stage"].endswith(point.replace("-", " ")), (
            "it did not get as far as the point"
        )
        assert (f"crash injected at {point}" in run.errors.read_text()) == (status == 70)


@pytest.mark.parametrize("victim", ["front", "init", "worker", "shell", "agent", "capture"])
def test_kill_9_of_any_process_ends_all(runs: Any, victim: str) -> None:
    run = runs("agents", "pcap", "user", *(["controller"] if victim == "worker" else []))
    state = run.wait_ready()
    assert run.remains(), "the test must be able to see the run"
    pid = (
        run.front.pid
        if victim == "front"
        else run.outside_pid(1 if victim == "init" else state[victim])
    )
    os.kill(pid, signal.SIGKILL)
    run.assert_gone()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_run_in_order(runs: Any, number: signal.Signals) -> None:
    """And before, the controller's death ends nothing."""
    run = runs("agents", "pcap", "user", *(["controller"] if number == signal.SIGHUP else []))
    state = run.wait_ready()
    if number == signal.SIGHUP:
        os.kill(run.outside_pid(state["controller"]), signal.SIGKILL)
        assert not wait_until(lambda: run.front.poll() is not None, 2 * FORCE_S) and run.remains()
    run.front.send_signal(number)
    run.assert_gone()
    assert run.front.wait() == 130
    assert run.errors.read_text().splitlines()[-1] == "mrcbed: interrupted"


def test_an_unknown_crash_point_is_an_error_for_people(runs: Any) -> None:
    run = runs(crash="nowhere")
    assert run.front.wait(2 * PATIENCE_S) == 2
    said = run.errors.read_text()
    assert "no such point" in said.splitlines()[-1] and "Traceback" not in said


def test_clean_ends_the_rest_of_a_dead_run_and_its_interfaces() -> None:
    front = subprocess.Popen(["sleep", "60"])
    mark = mark_of(front)
    front.kill()
    front.wait()
    script = "ip link add left type veth peer name over && echo up && exec sleep 60"
    rest = subprocess.Popen(
        ["unshare", "-n", "sh", "-c", script],
        env={**os.environ, RUN_MARK: mark},
        stdout=subprocess.PIPE,
    )
    assert rest.stdout is not None and rest.stdout.readline() == b"up\n"

    def clean(*options: str) -> str:
        command = [sys.executable, "-m", "mrcbed", "tools", "clean", *options]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    found = json.loads(clean("--dry-run", "--json"))["found"]
    assert [(item["pid"], item["interfaces"] >= 2) for item in found] == [(rest.pid, True)]
    assert rest.poll() is None
    assert json.loads(clean("--json"))["left"] == []
    assert rest.wait(1) == -9
    assert clean() == "nothing to clean\n"
    rest.stdout.close()


def test_exit_statuses_come_through() -> None:
    def status(*command: str) -> int:
        wrapped = [sys.executable, "-m", "testbed.machine.sandbox", "--", *command]
        return subprocess.run(wrapped, cwd=ROOT, check=False, capture_output=True).returncode

    assert status("sh", "-c", "exit 7") == 7
    assert status("sh", "-c", "kill -9 $$") == 137
    assert status("/no/such/program") == 127


def test_the_sandbox_leaves_no_mount_outside() -> None:
    before = Path("/proc/self/mountinfo").read_text()
    text = subprocess.run(
        [sys.executable, "-m", "testbed.machine.sandbox", "--"]
        + ["sh", "-c", "cat /proc/self/mountinfo; touch /run/mrcbed/x /sys/fs/bpf 2>&1"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "/run/mrcbed" in text and "/sys/fs/bpf" in text
    assert Path("/proc/self/mountinfo").read_text() == before
    assert not Path("/run/mrcbed/x").exists()


@pytest.mark.skipif(CLOSED, reason="only root can reach this clone")
def test_not_root_is_one_line() -> None:
    command = [sys.executable, "-m", "testbed.machine.sandbox", "--", "true"]
    done = subprocess.run(
        command, cwd=ROOT, user=65534, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, "mrcbed: mrcbed needs root: run it with sudo\n")


def test_closed_standard_streams_are_no_obstacle(tmp_path: Path) -> None:
    """As a service or a CI system may start us. What a program writes to descriptor 1 must not land
    in a file of ours."""
    said = tmp_path / "said"
    code = (
        f"import os; open({str(said)!r}, 'w').write(' '.join(os.readlink(f'/proc/self/fd/{{n}}') "
        "for n in range(3)))"
    )
    command = (
        f'exec {sys.executable} -m testbed.machine.sandbox -- {sys.executable} -c "{code}" <&- '
        ">&- 2>&-"
    )
    assert subprocess.run(["sh", "-c", command], cwd=ROOT).returncode == 0
    assert said.read_text() == "/dev/null /dev/null /dev/null"


@pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")
@pytest.mark.parametrize("victim", ["front", "ovs-vswitchd", "ovsdb-server"])
def test_open_vswitch_leaves_nothing_either(runs: Any, victim: str) -> None:
    """kill -9 of the run's own processes, or of one of Open vSwitch's: no daemon, socket, database
    or bridge stays."""
    run = runs("controller", "ovs")
    state = run.wait_ready()
    daemons = [run.outside_pid(state[name]) for name in ("ovs-vswitchd", "ovsdb-server")]
    assert all(Path(f"/proc/{pid}").exists() for pid in daemons)
    os.kill(run.front.pid if victim == "front" else run.outside_pid(state[victim]), signal.SIGKILL)
    run.assert_gone()
    assert not any(Path(f"/proc/{pid}").exists() for pid in daemons)
    assert not list(Path(RUN_DIR).glob("ovs-*"))
    if victim.startswith("ovs"):
        assert (
            f"{victim} (process" in run.errors.read_text() and "SIGKILL" in run.errors.read_text()
        )


@pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")
def test_a_crash_with_open_vswitch_up_leaves_nothing(runs: Any) -> None:
    ends = {"queues": 70, "settle:kill": 137, "started": 70}
    for run, status in [(runs("ovs", crash=point), status) for point, status in ends.items()]:
        assert run.front.wait(2 * PATIENCE_S) == status
        run.assert_gone()
        assert run.said()[-1]["ovs-vswitchd"], "it did not get as far as Open vSwitch"
    assert not list(Path(RUN_DIR).glob("ovs-*"))
