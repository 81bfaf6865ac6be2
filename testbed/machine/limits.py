"""Limits that a shell sets (ulimit): raised where we may, and refused at the start where a command
could not end well under them."""

from __future__ import annotations

import os
import resource
import threading

from testbed.errors import UserError

ROOM = {
    resource.RLIMIT_AS: (4 << 30, "address space", "-v"),
    resource.RLIMIT_DATA: (1 << 30, "data", "-d"),
}
"""Limit -> the least bytes, its name, and the shell's option. A run on the smallest fabric takes
2.7 GB of addresses and 0.45 GB of data [ours; measured]. OpenBLAS, which comes with SciPy, waits
for ever or crashes with less."""
FILES = 16_384
"""tc of iproute2 6.15 keeps a file open for every filter of a batch, so `wide` takes it 1,280
[ours]."""


def raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < FILES:
        most = FILES if os.geteuid() == 0 else min(FILES, hard if hard >= 0 else FILES)
        try:
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (most, max(most, hard) if hard >= 0 else hard)
            )
        except (OSError, ValueError):
            # root of a container without the right to: what lacks files says so
            return


def check_memory() -> None:
    for limit, (least, name, option) in ROOM.items():
        soft = resource.getrlimit(limit)[0]
        if 0 <= soft < least:
            raise UserError(
                f"{name} is limited to {soft >> 10} kB, too little: ulimit {option} "
                f"{least >> 10}, or unlimited"
            )


def check_room(jobs: int, each: int, least: int) -> None:
    """Raises :class:`UserError` unless limits leave ``each`` processes and threads to each of
    ``jobs`` and to this process; ``least`` jobs need no check. A pool that cannot start a thread
    waits for ever. It is tried out, since no limit says how much others take of it."""
    enough = threading.Event()
    started: list[threading.Thread] = []
    needed = each * (jobs + 1)
    try:
        while len(started) < needed:
            thread = threading.Thread(target=enough.wait)
            thread.start()
            started.append(thread)
    except RuntimeError:
        few = max(least, len(started) // each - 1)
        fewer = f"use --jobs {few}, or " if few > 0 else ""
        raise UserError(
            f"{needed} processes and threads are needed for --jobs {jobs}, and only "
            f"{len(started)} may start here: {fewer}raise the limit (ulimit -u, or pids.max of "
            "the cgroup)"
        ) from None
    finally:
        enough.set()
        for thread in started:
            thread.join()
