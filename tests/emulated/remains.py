"""Looks at a run of ours from outside: which processes are its own, and what is left once it ended.
For test_cleanup.py and test_cli_*.py.

Every sandbox lies inside that of the tests, so its processes, namespaces and programs can be seen
from here.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path

from testbed.dataplane import loader
from testbed.machine.sandbox import RUN_MARK, start_time
from tests.emulated.ring import wait_until

CLOSED = any(not folder.stat().st_mode & 1 for folder in Path(__file__).resolve().parents)
"""Whether only root can get at this clone, as in a home of root's: then nobody else can even try to
run it."""


def mark_of(front: subprocess.Popen[bytes]) -> str:
    """The mark that a run gives its processes, by its front."""
    return f"{os.stat('/proc/self/ns/pid').st_ino}.{front.pid}.{start_time(front.pid)}"


def processes(
    mark: str, pid_spaces: Collection[int], net_spaces: Collection[int] = ()
) -> dict[int, str]:
    """Pid here -> name and command line, of all that carry the mark or live in one of the
    namespaces."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            marked = f"{RUN_MARK}={mark}".encode() in Path(
                f"/proc/{entry}/environ"
            ).read_bytes().split(b"\0")
            if (
                marked
                or os.stat(f"/proc/{entry}/ns/pid").st_ino in pid_spaces
                or os.stat(f"/proc/{entry}/ns/net").st_ino in net_spaces
            ):
                place = Path(f"/proc/{entry}")
                command = (place / "cmdline").read_text().replace("\0", " ")
                found[int(entry)] = f"{(place / 'comm').read_text().strip()} {command}"
        except OSError:
            continue
    return found


def remains(
    mark: str, pid_spaces: Collection[int], net_spaces: Collection[int], programs: Collection[int]
) -> list[str]:
    """What is still there of a run, in words.

    A loaded program lives while a filter holds it, a filter while its interface is there, an
    interface while its namespace is.
    """
    found = [
        f"process {pid} {words!r}" for pid, words in processes(mark, pid_spaces, net_spaces).items()
    ]
    show = ["bpftool", "prog", "show", "id"]
    loaded = [
        n
        for n in set(programs)
        if subprocess.run([*show, str(n)], capture_output=True, check=False).returncode == 0
    ]
    return found + [f"program {n}: pins, filters and interfaces" for n in loaded]


def assert_gone(front: subprocess.Popen[bytes], left: Callable[[], list[str]]) -> None:
    """Wait until nothing is left, the front included."""

    def still() -> list[str]:
        return left() or (["the front process"] if front.poll() is None else [])

    assert wait_until(lambda: not still()), still()


class Outside:
    """A run of the command line, known only from outside."""

    def __init__(self, front: subprocess.Popen[bytes]) -> None:
        self.front = front
        self.mark = mark_of(front)
        self.pid_spaces: set[int] = set()
        self.net_spaces: set[int] = set()
        self.programs: set[int] = set()

    def processes(self) -> dict[int, str]:
        return processes(self.mark, self.pid_spaces)

    def look(self) -> None:
        """Note what there is: the run's PID namespace, its network namespaces, its loaded
        programs."""
        init = Path(f"/proc/{self.front.pid}/task/{self.front.pid}/children").read_text().split()[0]
        self.pid_spaces.add(os.stat(f"/proc/{init}/ns/pid").st_ino)
        own = os.stat("/proc/self/ns/net").st_ino
        for pid in self.processes():
            try:
                self.net_spaces.add(os.stat(f"/proc/{pid}/ns/net").st_ino)
                held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            except OSError:
                continue
            self.net_spaces |= {int(name[5:-1]) for name in held if name.startswith("net:[")}
        self.net_spaces.discard(own)
        for pin in (loader.INGRESS, loader.EGRESS):
            # both: bpftool needs its /proc/self
            enter = ["nsenter", f"--mount=/proc/{init}/ns/mnt", f"--pid=/proc/{init}/ns/pid", "--"]
            show = [*enter, "bpftool", "-j", "prog", "show", "pinned", str(pin)]
            self.programs.add(
                int(json.loads(subprocess.run(show, capture_output=True, check=True).stdout)["id"])
            )
        assert self.net_spaces and self.programs, "the test must be able to see the run"

    def pid_of(self, *words: str) -> int:
        """The one process whose name and command line have all these words in them."""
        found = [
            pid for pid, line in self.processes().items() if all(word in line for word in words)
        ]
        assert len(found) == 1, (words, found)
        return found[0]

    def worker(self) -> int:
        init = Path(f"/proc/{self.front.pid}/task/{self.front.pid}/children").read_text().split()[0]
        children = Path(f"/proc/{init}/task/{init}/children").read_text().split()
        return next(
            int(pid)
            for pid in children
            if Path(f"/proc/{pid}/comm").read_text() == "mrcbed-worker\n"
        )

    def left(self) -> list[str]:
        return remains(self.mark, self.pid_spaces, self.net_spaces, self.programs)

    def assert_gone(self) -> None:
        assert_gone(self.front, self.left)
