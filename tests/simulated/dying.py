"""A task of test_jobs.py, apart from it: each process that gets one imports little."""

from __future__ import annotations

import os
import signal
import threading

from testbed.errors import UserError


def die(task: str) -> str:
    """What its name says; any other task is its own result."""
    if task == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "fails":
        raise UserError("one line")
    if task == "lasts":
        threading.Event().wait()
    return task
