"""What a machine is, for the question whether two may share a sweep: version, engine, CPU, kernel.

Every worker offers Dask *resources* whose names are these facts as JSON. A block asks for one of them, so the scheduler gives it to fitting
workers alone, also to those that join later, and the head can say of any other how it differs.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from scenarios.run.manifest import ROOT, cpu_model, engine
from testbed.simulated import SIMULATED

Facts = dict[str, Any]
ROOMS = ("agents", "mrcbed", "scenarios", "testbed", "topologies")
"""The folders of our source."""
SAME = ("mrcbed", "engine", "python", "numpy", "distributed")
"""Facts in which every worker must be like the head, in both worlds: they could change results, or the answer's form."""
ALIKE = ("cpu", "kernel")
"""Facts in which emulated workers must be like each other, unless the user wants columns of them. No simulated result depends on them."""
_FIXES = {
    "mrcbed": "install the same version on both",
    "engine": "compile it there as here (make install)",
    "python": "use the same Python on both",
    "numpy": "install the pinned version on both",
    "distributed": "install the pinned version on both",
    "cpu": "use equal machines, or --mixed, which adds columns",
    "kernel": "use equal machines, or --mixed, which adds columns",
}


@cache
def version() -> str:
    """The version of mrcbed with a hash of its source, which tells two clones apart that carry the same number."""
    digest = hashlib.sha256()
    for path in sorted(path for room in ROOMS for end in ("py", "c") for path in (ROOT / room).rglob(f"*.{end}")):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return f"{importlib.metadata.version('mrcbed')}+{digest.hexdigest()[:12]}"


def facts(world: str) -> Facts:
    """Return what this machine is, as a worker for ``world``."""
    return {
        "world": world,
        "mrcbed": version(),
        "engine": engine(),
        "python": ".".join(map(str, sys.version_info[:2])),
        "numpy": importlib.metadata.version("numpy"),
        "distributed": importlib.metadata.version("distributed"),
        "cpu": cpu_model(),
        "kernel": platform.release(),
    }


def resource(these: Mapping[str, Any], mixed: bool = False) -> str:
    """Return the name of the resource that a block asks for: with CPU and kernel, unless they do not matter."""
    dropped = ALIKE if mixed or these["world"] == SIMULATED else ()
    return json.dumps({key: value for key, value in these.items() if key not in dropped}, sort_keys=True)


def offers(these: Mapping[str, Any]) -> dict[str, float]:
    """Return the resources of a worker: it carries out one block at a time, whichever name the block asks by."""
    return {resource(these): 1, resource(these, mixed=True): 1}


def offered(resources: Mapping[str, float]) -> Facts | None:
    """Return the facts of a worker from its resources; None if it is no worker of mrcbed."""
    for name in sorted(resources, key=len, reverse=True):
        try:
            these = json.loads(name)
        except ValueError:
            continue
        if isinstance(these, dict) and "mrcbed" in these:
            return these
    return None


def difference(there: Facts | None, wanted: Facts, mixed: bool) -> str:
    """Return in words why a worker does not fit, and the fix; "" if it does."""
    if there is None:
        return "is no worker of this version of mrcbed: start it with mrcbed worker, of the same version"
    if there.get("world") != wanted["world"]:
        return f"is for the {there.get('world')} world: start one with --world {wanted['world']}"
    keys = SAME if mixed or wanted["world"] == SIMULATED else (*SAME, *ALIKE)
    for key in keys:
        if there.get(key) != wanted[key]:
            return f"has {key} {there.get(key)}, not {wanted[key]}: {_FIXES[key]}"
    return ""
