"""Decides which of Dask's workers get blocks: those like the client in what could change results,
and not root.

A plugin goes to every worker, also later ones. A fitting worker offers a *resource* that blocks ask
for; another tells the client why it does not.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from distributed import WorkerPlugin

from scenarios.run.manifest import cpu_model, engine, version
from testbed.world import EMULATED

SAME = {
    "mrcbed": "install the same version on both",
    "engine": "compile it there as here (make install)",
    "python": "use the same Python on both",
    "numpy": "install the pinned version on both",
    "distributed": "install the pinned version on both",
}
"""Every worker must be like the client in these facts, which could change results, or the answer's
form. Values are the fix."""
ALIKE = ("cpu", "kernel")
"""Facts in which emulated workers must be alike, unless the user wants columns of them."""
# how a worker has an emulated block carried out
COMMAND = ("sudo", "-n", str(Path(sys.executable).with_name("mrcbed")), "run", "-")


def facts() -> dict[str, Any]:
    return {
        "mrcbed": version(),
        "engine": engine(),
        "python": ".".join(map(str, sys.version_info[:2])),
        "numpy": importlib.metadata.version("numpy"),
        "distributed": importlib.metadata.version("distributed"),
        "cpu": cpu_model(),
        "kernel": platform.release(),
    }


class Fitting(WorkerPlugin):  # type: ignore[misc]
    """``name`` begins the resources' names of a session. ``wanted``: the client's facts. ``alike``:
    those that end a resource's name."""

    def __init__(
        self, name: str, wanted: dict[str, Any], world: str, alike: tuple[str, ...]
    ) -> None:
        self.name, self.wanted, self.world, self.alike = name, wanted, world, alike

    async def setup(self, worker: Any) -> None:
        """Called by Dask in the worker."""
        if reason := self.unfit(worker.state.nthreads):
            worker.log_event(self.name, [worker.address, reason])
        else:
            await worker.set_resources(**{self.resource(): 1})

    async def teardown(self, worker: Any) -> None:
        """Called by Dask in the worker, when the client needs it no more."""
        await worker.set_resources(**{self.resource(): 0})

    def resource(self) -> str:
        here = facts()
        return self.name + json.dumps({key: here[key] for key in self.alike})

    def unfit(self, threads: int) -> str:
        """Return why this process does not fit, and the fix, or ""."""
        here = facts()
        if os.geteuid() == 0:
            return "is root, and carries out what it is sent: start it as a user without rights"
        for key, fix in SAME.items():
            if here[key] != self.wanted[key]:
                return f"has {key} {here[key]}, not {self.wanted[key]}: {fix}"
        if threads != 1:
            return (
                f"has {threads} threads, and would carry out as many blocks at once: start it "
                "with --nthreads 1"
            )
        if self.world == EMULATED and not _may_be_root():
            return (
                f"may not run emulated blocks as root: allow 'NOPASSWD: {' '.join(COMMAND[2:])}' "
                "in sudoers there"
            )
        return ""


def _may_be_root() -> bool:
    asked = (*COMMAND[:2], "-l", *COMMAND[2:])
    try:
        return (
            subprocess.run(
                asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
            ).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
