"""``python -m tests.suite.contained [--yielding] -- COMMAND...``: whatever becomes of a suite,
nothing of it stays.

As root the command runs in a sandbox (testbed/machine/sandbox.py): when it ends or is ended, the
kernel ends every process that it started, with their namespaces, interfaces and pins. Without root
its children have to end by themselves. Either way its temporary files lie in one directory of its
own, which goes with it; one whose owner was killed goes with the next suite. It ends with the shell
that started it, which `make` ends. ``--yielding``: it takes what others leave of the cores.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from testbed.machine import sandbox, slowness

PREFIX = "mrcbed-"
"""Short: sockets lie below, whose paths have 107 bytes."""
YIELDING_NICE = 10
"""A tenth of the cores if others want all of them: at 19 a test got so little that it ran into
every limit of time [measured]."""
YIELDING_PATIENCE = 5
"""Times that what yields may wait longer [ours]."""
TEST_S = 300
"""A test that takes longer hangs, as in pyproject.toml."""
_PR_SET_PDEATHSIG = 1


def unique(word: str) -> str:
    """A name that no process of another suite on this machine has: pids are small, and the same, in
    each sandbox."""
    return f"{word}-{os.stat('/proc/self/ns/pid').st_ino}-{os.getpid()}"


def remove_orphans(where: Path) -> None:
    """Directories of suites that are no longer there, ours alone."""
    for left in where.glob(f"{PREFIX}*.*"):
        pid, _, start = left.name.removeprefix(PREFIX).partition(".")
        try:
            alive = sandbox.start_time(pid) == start
        except OSError:
            alive = False
        if not alive and pid.isdigit() and start.isdigit() and left.lstat().st_uid == os.geteuid():
            shutil.rmtree(left, ignore_errors=True)


def yield_cores() -> None:
    """This process and what it starts get what all others leave. Nice values count inside of a
    session's group alone (sched(7))."""
    os.environ[slowness.PATIENCE] = str(YIELDING_PATIENCE)
    os.environ["PYTEST_TIMEOUT"] = str(TEST_S * YIELDING_PATIENCE)
    os.nice(YIELDING_NICE)
    with suppress(OSError):  # a kernel without autogroups
        Path("/proc/self/autogroup").write_text(str(YIELDING_NICE))


def _become(command: list[str], yielding: bool) -> int:
    """In the sandbox. The tests see none: what they start makes its own."""
    if yielding:
        yield_cores()
    for name in sandbox.MARKS:
        os.environ.pop(name, None)
    return sandbox.become(command)


def main(arguments: list[str]) -> int:
    """The command's exit status, 128 + n if signal n ended it."""
    options, command = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    yielding = options == ["--yielding"]
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return 128 + signal.SIGTERM
    remove_orphans(Path(tempfile.gettempdir()))
    own = Path(tempfile.gettempdir(), f"{PREFIX}{os.getpid()}.{sandbox.start_time()}")
    own.mkdir(mode=0o755)
    os.environ["TMPDIR"] = str(own)
    try:
        if os.geteuid() == 0:
            return sandbox.run(lambda: _become(command, yielding))
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        shutil.rmtree(own, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
