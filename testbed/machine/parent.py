"""Parents and children: a process that ends with the one that started it, and children that another
process made."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.002
_END_S = 30.0


def die_with_parent(parent: int) -> None:
    """Make this process end with its parent, at once if that has ended already. Each process calls
    it first."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked for the signal
        os._exit(1)


def end_with_reader(fd: int = 1) -> None:
    """End this process as SIGTERM does when nobody can read the pipe ``fd`` any more."""
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        return

    def watch() -> None:
        # it is for the main thread, which may wait for it
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        poll = select.poll()
        poll.register(fd, 0)  # which reports an error alone: that the other end is closed
        poll.poll()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_END_S)
        os._exit(1)

    threading.Thread(target=watch, name="reader", daemon=True).start()


@contextmanager
def adopting() -> Iterator[None]:
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class Adopted:
    """A child that another process started, with a part of subprocess.Popen. Any thread may ask."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if ended else None
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(_LOOK_S)
        return status

    def send_signal(self, sig: int) -> None:
        """Send a signal, but none to a process that has ended: its number may be another's."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
