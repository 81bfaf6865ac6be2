"""Allows one measurement at a time on a machine: two would disturb each other.

The front process of a run binds an abstract Unix socket, which ends with it; the name of a second
one says which run it is. Only runs whose front processes share a PID namespace exclude each other:
sandboxes may run side by side, as the tests do.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import UserError

NAME = f"mrcbed-measures-{os.stat('/proc/self/ns/pid').st_ino}"
ROOM = 107


class Measuring(UserError):
    """The text is one line: which process measures, its results, what to do."""


@contextmanager
def measuring(directory: Path, name: str = "") -> Iterator[None]:
    """Reserve the machine, by ``name`` in place of :data:`NAME`. Raises :class:`Measuring` if
    another run has it."""
    name = name or NAME
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    notice = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        try:
            lock.bind(f"\0{name}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise Measuring(_refusal(name)) from None
        text = f"{name}:{os.getpid()}:{directory.resolve()}".encode()
        notice.bind(b"\0" + (text if len(text) < ROOM else text[: ROOM - 4] + b"..."))
        yield
    finally:
        notice.close()
        lock.close()


def refuse_if_measuring(name: str = "") -> None:
    name = name or NAME
    if any(line == f"@{name}" for line in _names()):
        raise Measuring(_refusal(name))


def measured_directory() -> Path | None:
    holder = _holder(NAME)
    return None if holder is None or holder[1].endswith("...") else Path(holder[1])


def _holder(name: str) -> tuple[str, str] | None:
    holder = next((line.split(":", 2)[1:] for line in _names() if line.startswith(f"@{name}:")), [])
    return (holder[0], holder[1]) if len(holder) == 2 else None


def _refusal(name: str) -> str:
    holder = _holder(name)
    detail = "" if holder is None else f" (process {holder[0]}, results in {holder[1]})"
    return (
        f"another run is measuring on this machine{detail}: wait for its end, or use --world "
        "simulated, which disturbs nobody's figures"
    )


def _names() -> list[str]:
    try:
        lines = (
            Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()[1:]
        )
    except OSError:
        return []
    return [fields[7] for line in lines if len(fields := line.split(maxsplit=7)) == 8]
