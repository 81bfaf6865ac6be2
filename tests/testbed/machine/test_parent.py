"""Children that another process made: adopted, watched and ended like one's own."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys

import pytest

from testbed.machine.parent import Adopted, adopting

FORKS = "import os, signal; pid = os.fork(); print(pid, flush=True) if pid else {what}"
_PR_GET_CHILD_SUBREAPER = 37


def grandchild(what: str) -> Adopted:
    """Made by a process that has ended since."""
    with adopting():
        made = subprocess.run(
            [sys.executable, "-c", FORKS.format(what=what)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return Adopted(int(made.stdout))


def test_a_grandchild_is_watched_and_ended() -> None:
    child = grandchild("(os.close(1), signal.pause())")
    assert child.poll() is None and child.returncode is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    child.terminate()
    assert child.wait(60) == -signal.SIGTERM == child.poll()
    child.kill()  # nobody gets it


def test_its_exit_status_is_kept() -> None:
    child = grandchild("os._exit(7)")
    assert child.wait(60) == 7 == child.returncode


def test_strangers_are_adopted_no_longer() -> None:
    with adopting():
        assert _subreaper() == 1
    assert _subreaper() == 0


def _subreaper() -> int:
    told = ctypes.c_int(-1)
    assert ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(told), 0, 0, 0) == 0
    return told.value
