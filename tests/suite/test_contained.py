"""Nothing of a suite stays, however it ends: a process that it left running, a file that it
wrote."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.suite import contained
from tests.waiting import wait_until

LEAVES = (
    "import os, signal, subprocess, tempfile, sys\n"
    f"subprocess.Popen(['sleep', '300.{os.getpid()}'], start_new_session=True)\n"
    "open(os.path.join(tempfile.gettempdir(), 'left'), 'w').close()\n"
    "print(tempfile.gettempdir(), flush=True)\n"
    "if sys.argv[1] == 'waits': signal.pause()\n"
    "sys.exit(3)\n"
)
"""A suite that leaves a process in a session of its own, and a file."""


def sleeping() -> int:
    """How many of its processes there are."""
    found = 0
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += line.read_bytes() == f"sleep\000300.{os.getpid()}\0".encode()
        except OSError:
            pass
    return found


def start(tmp_path: Path, how: str) -> subprocess.Popen[str]:
    """From a shell of its own, as make starts it."""
    command = shlex.join(
        [sys.executable, "-m", "tests.suite.contained", "--", sys.executable, "-c", LEAVES, how]
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    return subprocess.Popen(
        ["bash", "-c", f"{command}; exit $?"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def gone(tmp_path: Path) -> bool:
    return sleeping() == 0 and not list(tmp_path.iterdir())


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only as root does the kernel end what a suite started"
)
@pytest.mark.parametrize("end", ["by itself", "its shell is killed", signal.SIGINT, signal.SIGTERM])
def test_nothing_stays(tmp_path: Path, end: object) -> None:
    suite = start(tmp_path, "ends" if end == "by itself" else "waits")
    assert suite.stdout is not None
    own = Path(suite.stdout.readline().strip())
    assert own.parent == tmp_path and own != Path(tempfile.gettempdir())
    if end == "by itself":
        assert suite.wait() == 3
    elif end == "its shell is killed":
        suite.kill()
    else:
        os.killpg(suite.pid, int(str(end)))
    wait_until(lambda: gone(tmp_path))
    suite.wait()
    suite.stdout.close()


def test_a_directory_whose_owner_was_killed_goes_with_the_next_suite_and_no_other(
    tmp_path: Path,
) -> None:
    for name in (
        f"{contained.PREFIX}1.7",
        f"{contained.PREFIX}{os.getpid()}.{contained.sandbox.start_time()}",
        f"{contained.PREFIX}mine.7",
        "other.1.7",
    ):
        (tmp_path / name / "below").mkdir(parents=True)
    contained.remove_orphans(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3 and not (tmp_path / f"{contained.PREFIX}1.7").exists()
