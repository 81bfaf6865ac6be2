"""Where the fabrics that are up can be asked: `mrcbed denylist` and its like find a running fabric's controller by this.

The note lies in the run's own tmpfs, which only its processes have mounted: it is read through one of them (/proc/PID/root), so that a run
that is killed leaves nothing behind. Needs root to see into other runs.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from testbed import sandbox
from testbed.cleanup import mark_of

NOTE = Path(sandbox.RUN_DIR) / "controller-at.json"


@dataclass(frozen=True)
class Running:
    url: str
    fabric: str


def announce(url: str, fabric: str) -> None:
    """Leave the note. To be called inside the sandbox."""
    NOTE.write_text(json.dumps({"url": url, "fabric": fabric}))


def withdraw() -> None:
    """Take it away again: another fabric may follow in the same sandbox."""
    with contextlib.suppress(OSError):
        NOTE.unlink()


def find() -> list[Running]:
    """Every fabric that is up on this machine with a controller, as far as we may see."""
    found: dict[str, Running] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and mark_of(int(entry)):
            try:
                data = json.loads(Path(f"/proc/{entry}/root{NOTE}").read_text())
                found[data["url"]] = Running(str(data["url"]), str(data["fabric"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue
    return list(found.values())
