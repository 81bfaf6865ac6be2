"""``mrcbed run`` with somebody who kills its processes at random moments, and what must be left of
it then. For test_chaos.py, here and in tests/soak.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.machine.slowness import patient
from tests.emulated.remains import Outside

ROOT = Path(__file__).resolve().parents[2]
MRCBED = [sys.executable, "-m", "mrcbed"]
QUICK = (
    "--set",
    "workload.message_bytes=32768",
    "--set",
    "fault.0.at=10us",
    "--set",
    "fault.0.for=30us",
    "--set",
    "workload.steps=12",
)
"""A run of `smoke` of about two seconds, bring-up included."""
VICTIMS = ("front", "init", "worker", "controller", "agent", "shell")
NOTICED = (0, 1, 2, 3, 130)
ENDS = {
    "front": (-9,),
    "init": (137,),
    "worker": (137,),
    "controller": (0, 1, 2, 3),
    "agent": NOTICED,
    "shell": NOTICED,
}
"""Exit statuses of a run whose victim was killed. 0 and 3: it was over with it by then; 130:
nothing of the run was waiting for it."""
END_S = 30.0


class Victim:
    """A run, started; ``said`` holds what it says."""

    def __init__(self, out: Path, said: Path, *words: str) -> None:
        self.out, self.said = out, said
        command = [
            sys.executable,
            "-m",
            "tests.emulated.undrawn",
            "run",
            "smoke",
            "--dilation",
            "fabric",
            "--out",
            str(out),
            *words,
        ]
        with said.open("wb") as told:
            self.front = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=told, stderr=told
            )
        self.seen = Outside(self.front)

    def look(self) -> None:
        """Note what there is of it by now, as far as it has come."""
        try:
            self.seen.look()
        except (AssertionError, OSError, IndexError, ValueError, subprocess.CalledProcessError):
            pass  # it has no sandbox, no hosts or no programs yet, or no more

    def pid_of(self, victim: str, rng: random.Random) -> int | None:
        """The process to kill, of several any; None if there is none now."""
        if victim == "front":
            return self.front.pid if self.front.poll() is None else None
        try:
            (init,) = (
                Path(f"/proc/{self.front.pid}/task/{self.front.pid}/children")
                .read_text()
                .split()[:1]
            )
            if victim == "init":
                return (
                    int(init) if Path(f"/proc/{init}/comm").read_text() == "mrcbed-init\n" else None
                )
            if victim == "worker":
                return self.seen.worker()
        except (OSError, ValueError, StopIteration):
            return None
        words = {
            "controller": "-m testbed.controller",
            "agent": "-m agents.process.host",
            "shell": "mininet:",
        }[victim]
        found = sorted(pid for pid, line in self.seen.processes().items() if words in line)
        return rng.choice(found) if found else None

    def kill(self, victim: str, rng: random.Random, after_s: float) -> bool:
        """kill -9 that long after the start, or as soon as there is such a process. False if the
        run was over before."""
        at = time.monotonic() + after_s
        until = at + END_S
        while time.monotonic() < until and self.front.poll() is None:
            pid = self.pid_of(victim, rng) if time.monotonic() >= at else None
            if pid is not None:
                self.look()
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    return False
                return True
            time.sleep(0.01)
        return False

    def judge(self, victim: str, killed: bool) -> None:
        """A clear end in time, nothing left, and everything that was finished is valid."""
        try:
            status = self.front.wait(END_S)
        except subprocess.TimeoutExpired:
            there = "\n".join(self.seen.processes().values())
            raise AssertionError(
                f"no end {END_S:.0f} s after {victim} (killed: {killed}):\n"
                f"{self.said.read_text()}\n{there}"
            ) from None
        self.seen.assert_gone()
        text = self.said.read_text()
        assert "Traceback" not in text and "internal error" not in text, text
        if killed:
            assert status in ENDS[victim], (victim, status, text)
        if status in (1, 2) and victim != "controller":
            assert text.splitlines()[-1].startswith("mrcbed: "), text
        self.valid()

    def valid(self) -> list[dict[str, Any]]:
        """What lies in the directory of results can be read, and half a file is none. Returns the
        records of finished runs."""
        records = [json.loads(path.read_text()) for path in self.out.glob("raw/*/run.json")]
        for name in ("manifest.json", "summary.json"):
            if (self.out / name).exists():
                json.loads((self.out / name).read_text())
        for path in self.out.glob("*.parquet"):
            pd.read_parquet(path)
        if (self.out / "runs.csv").exists():
            assert len(pd.read_csv(self.out / "runs.csv")) <= len(records)
        return records

    def end(self) -> None:
        """For a test that failed."""
        self.front.kill()
        self.front.wait()


def mrcbed(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Another command line, to its end."""
    return subprocess.run(
        [*MRCBED, *map(str, words)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=patient(240),
    )


def machine() -> dict[str, Sequence[str]]:
    """What a run must leave as it was, of the machine's own."""
    return {
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "mounts": Path("/proc/self/mountinfo").read_text().splitlines(),
        "namespaces": sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else [],
        "temporary": sorted(name for name in os.listdir(tempfile.gettempdir())),
        "cgroups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob("**/*mrcbed*")),
    }
