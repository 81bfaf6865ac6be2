"""The users that a run's agents become: numbers of this run alone, one for each process, so that no
other can signal them. No account is created: agents open their logs and sockets as root."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from testbed.errors import UserError

LOWEST, HIGHEST = 0x7800_0000, 0x7FFE_0000
"""User ids that no system assigns: above what sssd maps a directory's users to (2,000,200,000,
sssd-ad(5)), and in the part that systemd leaves unused (1,879,048,192 to 2,147,352,575,
UIDS-GIDS.md)."""
STEP = 1 << 20
DELEGATED = (Path("/etc/subuid"), Path("/etc/subgid"))


def choose(
    pid_space: int, count: int, proc: Path = Path("/proc"), delegated: Iterable[Path] = DELEGATED
) -> list[int]:
    """Choose up to ``count`` ids that no account, no delegated range and no process has. Raises
    :class:`UserError` if none is left.

    ``pid_space`` is the inode of the run's PID namespace, which no two living namespaces share in
    whatever container they are: so two runs differ without a lock.
    """
    in_use = _ids_of_processes(proc)
    ranges = [r for path in delegated for r in _ranges(path)]
    uids = range(LOWEST + pid_space % STEP, HIGHEST, STEP)
    free = (
        uid
        for uid in uids
        if uid not in in_use and not any(uid in r for r in ranges) and not _named(uid)
    )
    if chosen := list(islice(free, count)):
        return chosen
    raise UserError(
        f"no user id in {LOWEST}-{HIGHEST - 1} is free for this run's agents: /etc/subuid or "
        "/etc/passwd gives them all away"
    )


def _named(uid: int) -> bool:
    for look_up in (pwd.getpwuid, grp.getgrgid):
        try:
            look_up(uid)
        except KeyError:
            continue
        return True
    return False


def _ranges(path: Path) -> list[range]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    fields = [line.split(":") for line in lines]
    return [
        range(int(f[1]), int(f[1]) + int(f[2]))
        for f in fields
        if len(f) == 3 and f[1].isdecimal() and f[2].isdecimal()
    ]


def _ids_of_processes(proc: Path) -> set[int]:
    ids: set[int] = set()
    for path in proc.glob("[0-9]*/status"):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue  # it has ended
        for line in lines:
            if line.startswith(("Uid:", "Gid:", "Groups:")):
                ids.update(map(int, line.split()[1:]))
    return ids
