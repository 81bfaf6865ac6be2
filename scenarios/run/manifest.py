"""Makes ``manifest.json``: how a run was made, so that its directory can be understood alone.

It is written at the start, so that a crash leaves the file too, and again at the end.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from scenarios.schema.fabrics import figures
from scenarios.schema.scenario import Scenario
from testbed.machine.slowness import patient

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agents", "mrcbed", "scenarios", "testbed", "topologies")  # folders of our source
DISTRIBUTIONS = (
    "mrcbed",
    "mininet",
    "ryu",
    "os-ken",
    "eventlet",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "jinja2",
    "msgspec",
    "isal",
    "click",
    "rich",
    "mypy",
)
TOOLS = (
    ("clang", "--version"),
    ("bpftool", "version"),
    ("tc", "-V"),
    ("ip", "-V"),
    ("tshark", "--version"),
    ("ovs-vswitchd", "--version"),
)


FORMAT = 4
"""Only directories of one format are compared. 2: runs have settings, and are rows. 3: figures are
in network time. 4: raw files and tables are in network time, whole ps in raw/."""

_SCALE = (
    "All times are the network's: whole ps in raw/, ns in tables and figures. Those of this "
    "machine have wall in their name."
)
_KIND = "Reconvergence is that of the scenario, in network time: real networks take far longer."
NOTES = {
    "emulated": (
        _SCALE,
        (
            "A path's propagation delay is a FIFO in the agents' receive path: the kernel's own "
            "TCP and MPTCP are spared it."
        ),
        _KIND,
    ),
    "simulated": (
        _SCALE,
        "Simulated, in virtual time: hosts compute in no time, no machine was measured. So no "
        "run is doubted for the machine's sake, and there are no figures of its CPU.",
        _KIND,
    ),
}


def _output(*command: str) -> str | None:
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=patient(5), cwd=ROOT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() if process.returncode == 0 else None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def git(*below: str) -> dict[str, Any] | None:
    """Return the commit, and whether files (``below``, or all) differ. Optional locks are off: a
    killed run leaves no index.lock."""
    if not (ROOT / ".git").exists():
        return None
    command = ("git", "--no-optional-locks", "-c", f"safe.directory={ROOT}")
    commit = _output(*command, "rev-parse", "HEAD")
    dirty = _output(*command, "status", "--porcelain", "--", *below)
    return {"commit": commit, "dirty": bool(dirty)} if commit else None


def _memory_bytes() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return int(file.readline().split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None


def cpu_model() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(
                (line.split(":", 1)[1].strip() for line in file if line.startswith("model name")),
                None,
            )
    except OSError:
        return None


@cache
def version() -> str:
    """Return the version with a hash of the source, which tells clones of one version apart."""
    digest = hashlib.sha256()
    for path in sorted(
        path for room in ROOMS for end in ("py", "c") for path in (ROOT / room).rglob(f"*.{end}")
    ):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return f"{_version('mrcbed')}+{digest.hexdigest()[:12]}"


def engine() -> str:
    try:
        spec = importlib.util.find_spec("agents.mrc.queue_pair")
    except ImportError:
        return "absent"
    return (
        "absent"
        if spec is None or spec.origin is None
        else "compiled"
        if spec.origin.endswith(".so")
        else "interpreted"
    )


def make_manifest(
    scenario: Scenario, command_line: list[str], world: str = "emulated"
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "world": world,
        "scenario": scenario.to_dict(),
        "scenario_file": scenario.text,
        "command_line": command_line,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seeds": list(scenario.seeds),
        "git": git(),
        "python": sys.version,
        "versions": {name: _version(name) for name in DISTRIBUTIONS},
        "tools": {tool: (_output(tool, flag) or "absent").splitlines()[0] for tool, flag in TOOLS},
        "engine": engine(),
        "kernel": platform.release(),
        "machine": {
            "cpu": cpu_model(),
            "arch": platform.machine(),
            "cores": os.cpu_count(),
            "memory_bytes": _memory_bytes(),
        },
        "fabrics": {name: {**figures(f), **f.to_dict()} for name, f in scenario.fabrics.items()},
        "notes": list(NOTES[world]),
    }
