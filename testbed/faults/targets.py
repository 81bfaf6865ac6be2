"""Finds what a fault hits on a given fabric. Raises FabricError for unknown names."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from testbed.faults.keys import Keys
from topologies.clos import Fabric, FabricError, Link
from topologies.denylist import check_entry
from topologies.paths import path_links

Path = tuple[int, tuple[int, int, int]]
"""A switch's port, and the three uSIDs that follow the switch's own in the frames meant; 0 after
the last."""
_NIC_PORT = re.compile(r"h[0-9]+-p[0-9]+")


@dataclass(frozen=True)
class Target:
    """``links`` are the cables that a fault takes down or affects, ``switches`` those that are dead
    or silent meanwhile."""

    kind: str
    on: str
    keys: Keys
    links: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    host: int = -1  # whose agent; -1 with kind kill: the controller
    # those at which frames that come in are hit, or of kind slow those that send slower
    ports: tuple[int, ...] = ()
    paths: tuple[Path, ...] = ()  # which frames are hit at which switch's port
    lasts: int = 0  # ps after which it is taken back; 0: when somebody does


@dataclass
class Injected:
    """An active fault. Attributes beside ``told_ps``, when it began, belong to its injector."""

    number: int
    target: Target
    told_ps: int
    due_ps: int | None = None  # when there is something to do for it
    over_ps: int | None = None  # when it is to be taken back
    down: bool = True  # for a fault that comes and goes: whether it is present now


@dataclass(frozen=True)
class FaultEvent:
    """One action of a fault, at the time ``t`` when the kernel was told. ``phase`` is begin, down
    or up (of a cycle), reboot, or heal. ``links``: at the begin all that it takes down or affects,
    otherwise the cables that changed."""

    t: int
    number: int
    phase: str
    links: tuple[str, ...] = ()


def nic_link(fabric: Fabric, port: str) -> Link:
    nic = next((link for link in fabric.links if link.a.name == port and link.kind == "nic"), None)
    if nic is None:
        ports = [link.a.name for link in fabric.links if link.kind == "nic"]
        near = difflib.get_close_matches(port, ports, n=3, cutoff=0.0)
        raise FabricError(
            f"fabric {fabric.name!r} has no NIC port {port!r}; near it: {', '.join(near)}"
        )
    return nic


def cable(fabric: Fabric, on: str) -> tuple[str, Link]:
    """Find a link by its own name or that of a NIC port, and the name to keep: a NIC port's as
    written, a link's in the fabric's order."""
    if _NIC_PORT.fullmatch(on):
        return on, nic_link(fabric, on)
    link = fabric.link(on)
    return link.name, link


def ends(link: Link, direction: str, sending: bool) -> tuple[int, ...]:
    """Return ports at which a direction's frames come in, or go out (``sending``). ``b`` is the
    upper end."""
    ports = {
        "up": link.a.number if sending else link.b.number,
        "down": link.b.number if sending else link.a.number,
    }
    return tuple(number for way, number in ports.items() if direction in (way, "both"))


def plane_of(fabric: Fabric, name: str) -> int:
    if not re.fullmatch(r"p[0-9]+", name):
        raise FabricError(
            f"fabric {fabric.name!r} has no plane {name!r}: planes are p0..p{fabric.planes - 1}"
        )
    return int(check_entry(fabric, name)[1:])


def between_switches(fabric: Fabric, on: str) -> tuple[Link, ...]:
    plane = None if on == "fabric" else plane_of(fabric, on)
    every = tuple(
        link for link in fabric.links if link.kind == "fabric" and plane in (None, link.plane)
    )
    if not every:
        raise FabricError(f"fabric {fabric.name!r} has no T0-T1 links")
    return every


def cable_of_path(fabric: Fabric, src: int, dst: int, ev: int) -> Link:
    """Choose the cable to pull: the path's first T0-T1 link, or the receiver's NIC link under one
    T0."""
    links = path_links(fabric, src, dst, ev)
    return next((link for link in links if link.kind == "fabric"), links[-1])
