"""What a Python user works with: ``import mrcbed``. docs/how/python.md shows each name.

A name is imported when it is first used: whoever reads results loads no emulator, and the command
line starts at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.clock import WallClock as WallClock
    from agents.communicator import Communicator as Communicator
    from agents.nic.device import Device as Device
    from agents.transport import RECEIVE as RECEIVE
    from agents.transport import STATUS_NAMES as STATUS_NAMES
    from agents.transport import Completion as Completion
    from scenarios.figures.results import load as load
    from testbed.emulated.cluster import Cluster as Cluster
    from testbed.session import Session as Session
    from testbed.simulated.cluster import SimulatedCluster as SimulatedCluster
    from topologies.clos import Fabric as Fabric
    from topologies.fabrics import load_fabric as load_fabric
    from topologies.fabrics import usual_dilation as usual_dilation
    from topologies.units import MS as MS
    from topologies.units import NS as NS
    from topologies.units import US as US

_PLACES = {
    "agents.clock": ("WallClock",),
    "agents.communicator": ("Communicator",),
    "agents.nic.device": ("Device",),
    "agents.transport": ("RECEIVE", "STATUS_NAMES", "Completion"),
    "scenarios.figures.results": ("load",),
    "testbed.emulated.cluster": ("Cluster",),
    "testbed.session": ("Session",),
    "testbed.simulated.cluster": ("SimulatedCluster",),
    "topologies.clos": ("Fabric",),
    "topologies.fabrics": ("load_fabric", "usual_dilation"),
    "topologies.units": ("NS", "US", "MS"),
}
__all__ = sorted(name for names in _PLACES.values() for name in names)


def __getattr__(name: str) -> Any:
    place = next((module for module, names in _PLACES.items() if name in names), None)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(place), name)


def __dir__() -> list[str]:
    return __all__
