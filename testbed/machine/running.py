"""Finds the controllers of running fabrics, by a note that each leaves in its run's own tmpfs.

The note is read through a process of the run (/proc/PID/root), so a run that is killed leaves
nothing behind. It holds the token that changes need, so it is root's alone, and only root's notes
are believed.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from testbed.machine import sandbox
from testbed.machine.cleanup import marked

NOTE = Path(sandbox.RUN_DIR) / "controller-at.json"


@dataclass(frozen=True)
class Running:
    url: str
    fabric: str
    token: str = field(repr=False)


def announce(url: str, fabric: str, token: str) -> None:
    write_secret(NOTE, json.dumps({"url": url, "fabric": fabric, "token": token}))


def write_secret(path: Path, text: str) -> None:
    """Write a file that nobody but us may read, not even for a moment."""
    path.unlink(missing_ok=True)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)


def withdraw() -> None:
    with contextlib.suppress(OSError):
        NOTE.unlink()


def find() -> list[Running]:
    fabrics: dict[str, Running] = {}
    for pid in marked():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            data = json.loads(_read(f"/proc/{pid}/root{NOTE}"))
            fabrics[data["url"]] = Running(
                str(data["url"]), str(data["fabric"]), str(data["token"])
            )
    return list(fabrics.values())


def sandboxes() -> list[Path]:
    roots: dict[str, Path] = {}
    for pid, mark in marked().items():
        root = Path(f"/proc/{pid}/root")
        with contextlib.suppress(OSError):
            own = root / sandbox.RUN_DIR.lstrip("/")
            if own.stat().st_uid == 0 and any(own.iterdir()):
                roots.setdefault(mark, root)
    return list(roots.values())


def _read(path: str) -> bytes:
    """Read a note. Any user may mark a process as a run's and put a pipe that never ends in the
    note's place. Raises OSError."""
    with open(
        os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb"
    ) as file:
        about = os.fstat(file.fileno())
        if about.st_uid != 0 or not stat.S_ISREG(about.st_mode):
            raise PermissionError(f"{path} is not root's")
        return file.read()
