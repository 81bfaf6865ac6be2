"""Finds and ends what a run of ours left behind: normally nothing (sandbox.py).

A process is ours only if it carries the mark of a run (sandbox.RUN_MARK) whose front process is
gone, or shares the private PID namespace of one that does. Processes are ended by pidfd, so never a
stranger who got the number. Never removes anything by name.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from testbed.machine.sandbox import RUN_MARK, start_time

END_S = 2.0


@dataclass(frozen=True)
class Leftover:
    run: str
    pid: int
    name: str
    command: str
    interfaces: int
    began: str  # start time, which with the pid names the process for good


def find() -> list[Leftover]:
    own_net_ns, spaces, marks = namespace("self", "net"), namespaces("pid"), marked()
    dead = {mark for mark in set(marks.values()) if not alive(mark)}
    by_space = {
        space: mark
        for pid, mark in marks.items()
        if mark in dead and (space := spaces.get(pid, 0)) not in (0, namespace("self", "pid"))
    }
    leftovers = []
    for pid, space in spaces.items():
        mark = marks.get(pid, "") if marks.get(pid) in dead else by_space.get(space, "")
        # A living mark of its own takes precedence over a dead neighbour's: never end a run that
        # somebody still watches.
        if not mark or (pid in marks and marks[pid] not in dead) or pid == os.getpid():
            continue
        try:
            started = start_time(pid)
        except OSError:
            continue
        command = read(pid, "cmdline").replace("\0", " ").strip()
        leftovers.append(
            Leftover(mark, pid, read(pid, "comm"), command, _interfaces(pid, own_net_ns), started)
        )
    return sorted(leftovers, key=lambda item: item.pid)


def end(leftovers: list[Leftover], timeout: float = END_S) -> list[Leftover]:
    handles: list[tuple[Leftover, int]] = []
    for item in leftovers:
        try:
            handles.append((item, os.pidfd_open(item.pid)))
        except OSError:
            continue
    for item, fd in handles:
        # still the same process, not another with its number: the descriptor was opened before this
        # check
        if _lives(item):
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            except ProcessLookupError:
                pass
    until = time.monotonic() + timeout
    remaining = handles
    while remaining and time.monotonic() < until:
        remaining = [h for h in remaining if _lives(h[0])]
        time.sleep(0.01)
    for _, fd in handles:
        os.close(fd)
    return [item for item, _ in remaining]


def alive(mark: str) -> bool:
    """Say whether the run of a mark lives. Marks of another PID namespace are not ours to judge,
    and count as alive."""
    try:
        space, pid, started = mark.split(".")
        return int(space) != namespace("self", "pid") or start_time(int(pid)) == started
    except ValueError:
        return True  # not a mark of ours
    except OSError:
        return False


def _lives(item: Leftover) -> bool:
    fields = read(item.pid, "stat").rpartition(")")[2].split()
    return len(fields) > 19 and fields[19] == item.began and fields[0] not in "ZX"


def mark_of(pid: int) -> str:
    needle = RUN_MARK.encode() + b"="
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    return next(
        (
            v[len(needle) :].decode(errors="replace")
            for v in environment.split(b"\0")
            if v.startswith(needle)
        ),
        "",
    )


def marked() -> dict[int, str]:
    return {pid: mark for pid in namespaces("pid") if (mark := mark_of(pid))}


def namespaces(kind: str) -> dict[int, int]:
    return {int(entry): namespace(entry, kind) for entry in os.listdir("/proc") if entry.isdigit()}


def namespace(pid: int | str, kind: str) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/{kind}").st_ino
    except OSError:
        return 0


def _interfaces(pid: int, own: int) -> int:
    if namespace(pid, "net") in (0, own):
        return 0
    try:
        with open(f"/proc/{pid}/net/dev") as file:
            return sum(1 for line in file if ":" in line and not line.strip().startswith("lo:"))
    except OSError:
        return 0


def read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace").strip()
    except OSError:
        return ""
