"""What a fault of the catalogue hits on a given fabric: cables, switches, ports, packets. Pure: seeds in, names out.

Called by the cluster before it injects, and by scenarios to check and to explain. Raises FabricError for what the fabric lacks.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.faults.kinds import KINDS, FaultError, read_keys
from topologies.addressing import TIER_T0, TIER_T1, ev, host_usid, sid_list, switch_usid, usid, usid_fields
from topologies.clos import Fabric, FabricError, Link
from topologies.denylist import check_entry
from topologies.paths import path_links
from topologies.theory import links_of_switch

Path = tuple[int, tuple[int, int, int]]
"""Number of a switch's port, and the three uSIDs that follow the switch's own in the frames meant; 0 after the last."""
_NIC_PORT = re.compile(r"h\d+-p\d+")
_PLANES = re.compile(r"fabric|p\d+")


@dataclass(frozen=True)
class Target:
    """A fault, resolved. ``links``: cables that it takes down or affects; ``switches``: those that are dead or silent meanwhile."""

    kind: str
    on: str
    keys: dict[str, Any]
    links: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    host: int = -1  # whose agent; -1 with kind kill: the controller
    ports: tuple[int, ...] = ()  # those at which frames that come in are hit, or of kind slow those that send slower
    paths: tuple[Path, ...] = ()  # which frames are hit at which switch's port

    @property
    def takes(self) -> bool:
        """Whether its links carry nothing while it lasts."""
        return KINDS[self.kind].takes


@dataclass
class Injected:
    """A fault that is there. ``told_ns``: when it began, monotonic; what follows is its injector's."""

    number: int
    target: Target
    told_ns: int
    due_ns: int | None = None  # when there is something to do for it
    down: bool = True  # of one that comes and goes: whether it is there just now


@dataclass(frozen=True)
class FaultEvent:
    """Something that a fault did. ``t``: monotonic ns at which the kernel was told. ``phase``: begin, down and up (of one that comes and
    goes), reboot, heal. ``links``: with begin all that it takes or affects, else the cables that went or came."""

    t: int
    number: int
    phase: str
    links: tuple[str, ...] = ()


def resolve(fabric: Fabric, kind: str, on: str, given: Mapping[str, Any], seed: int) -> Target:
    """A fault as written, on a fabric. ``seed`` stands in where ``given`` has none.

    Raises :class:`FaultError` for a bad parameter and :class:`FabricError` for a thing that this fabric lacks.
    """
    keys = read_keys(kind, given)
    if "seed" in KINDS[kind].keys:
        keys.setdefault("seed", seed & 0xFFFFFFFF)
    if kind == "link":
        name = fabric.link(on).name
        return Target(kind, name, keys, (name,))
    if kind == "port":
        return Target(kind, on, keys, (_nic(fabric, on).name,))
    if kind == "flap":
        link = _cable(fabric, on)
        return Target(kind, _told(on, link), keys, (link.name,))
    if kind == "transceiver":
        return Target(kind, on, keys, _together(fabric, on, keys.get("links")))
    if kind in ("switch", "silent"):
        return Target(kind, on, keys, links_of_switch(fabric, on), (on,))
    if kind == "plane":
        plane = _plane(fabric, on)
        links = tuple(link.name for link in fabric.links if link.plane == plane)
        return Target(kind, on, keys, links, tuple(s for s in fabric.switches if s.startswith(f"p{plane}-")))
    if kind == "dead-paths":
        return Target(kind, on, keys, _drawn(fabric, on, keys["share"], keys["seed"]))
    if kind in ("loss", "corrupt") and _PLANES.fullmatch(on):
        between = _between(fabric, on)
        ports = tuple(number for link in between for number in _ends(link, keys["direction"], sending=False))
        return Target(kind, on, keys, tuple(link.name for link in between), ports=ports)
    if kind in ("loss", "corrupt", "slow"):
        link = _cable(fabric, on)
        return Target(kind, _told(on, link), keys, (link.name,), ports=_ends(link, keys["direction"], sending=kind == "slow"))
    if kind == "path-loss":
        src, dst, value = _path(fabric, on)
        first = path_links(fabric, src, dst, value)[0].b
        return Target(kind, check_entry(fabric, on), keys, paths=((first.number, _next(sid_list(fabric, src, dst, value)[1:])),))
    if kind == "destination-loss":
        return Target(kind, on, keys, paths=_towards(fabric, on, fabric.host_number(keys["to"])))
    if kind == "straggler":
        return Target(kind, on, keys, host=fabric.host_number(on))
    if kind == "kill":
        return Target(kind, on, keys, host=-1 if on == "controller" else fabric.host_number(on))
    raise AssertionError(kind)


def _nic(fabric: Fabric, name: str) -> Link:
    found = next((link for link in fabric.links if link.a.name == name and link.kind == "nic"), None)
    if found is None:
        ports = [link.a.name for link in fabric.links if link.kind == "nic"]
        near = difflib.get_close_matches(name, ports, n=3, cutoff=0.0)
        raise FabricError(f"fabric {fabric.name!r} has no NIC port {name!r}; near it: {', '.join(near)}")
    return found


def _cable(fabric: Fabric, name: str) -> Link:
    """By its own name or by that of a NIC port."""
    return _nic(fabric, name) if _NIC_PORT.fullmatch(name) else fabric.link(name)


def _told(on: str, link: Link) -> str:
    """A NIC port as it was named, a link with its ends in the fabric's order."""
    return on if _NIC_PORT.fullmatch(on) else link.name


def _ends(link: Link, direction: str, sending: bool) -> tuple[int, ...]:
    """The ports at which a direction's frames come in, or go out. ``b`` is the upper end."""
    ends = {"up": link.a.number if sending else link.b.number, "down": link.b.number if sending else link.a.number}
    return tuple(number for way, number in ends.items() if direction in (way, "both"))


def _path(fabric: Fabric, text: str) -> tuple[int, int, int]:
    """(source, destination, EV) of ``h0>h5@p0/3``."""
    if ">" not in text:
        raise FabricError(f"{text!r} is not a path: write it as source>destination@plane/uplink, like h0>h5@p0/3")
    src, dst, plane, uplink = map(int, re.findall(r"\d+", check_entry(fabric, text)))
    return src, dst, ev(plane, uplink)


def _next(sids: tuple[int, ...]) -> tuple[int, int, int]:
    first, second, third = (*sids, 0, 0, 0)[:3]
    return first, second, third


def _towards(fabric: Fabric, switch: str, host: int) -> tuple[Path, ...]:
    """Every form in which a frame for a host may come in at a switch, probes that turn around at a T1 included."""
    links_of_switch(fabric, switch)  # raises if there is none
    plane, tier, index = usid_fields(switch_usid(switch))
    last, down = usid(plane, TIER_T0, fabric.t0_of(host)), host_usid(fabric, plane, host)
    ports = [port for port in fabric.ports if port.node == switch]
    if tier == TIER_T1:
        return tuple((port.number, (last, down, 0)) for port in ports)
    own = index == fabric.t0_of(host)
    made: list[Path] = []
    for port in ports:
        if own:
            made.append((port.number, (down, 0, 0)))
        if "-d" in port.name:
            made += [(port.number, (usid(plane, TIER_T1, j), last, down)) for j in range(fabric.t1_per_plane)]
    return tuple(made)


def _plane(fabric: Fabric, name: str) -> int:
    if not re.fullmatch(r"p\d+", name):
        raise FabricError(f"fabric {fabric.name!r} has no plane {name!r}: planes are p0..p{fabric.planes - 1}")
    return int(check_entry(fabric, name)[1:])


def _links_of(fabric: Fabric, node: str) -> tuple[str, ...]:
    """A host's or switch's cables, by port."""
    if re.fullmatch(r"h\d+", node):
        fabric.host_number(node)
        return tuple(link.name for link in fabric.links if link.a.node == node)
    return links_of_switch(fabric, node)


def _together(fabric: Fabric, node: str, wanted: Any) -> tuple[str, ...]:
    """The first links by port, as neighbours share a transceiver, unless they are named."""
    every = _links_of(fabric, node)
    if isinstance(wanted, tuple):
        names = tuple(dict.fromkeys(fabric.link(name).name for name in wanted))
        foreign = [name for name in names if name not in every]
        if foreign:
            raise FaultError("links", f"= {foreign[0]!r} is no link of {node}: it has {', '.join(every)}")
        return names
    count = max(1, len(every) // 2) if wanted is None else int(wanted)
    if count > len(every):
        raise FabricError(f"{node} has {len(every)} links, not {count}")
    return every[:count]


def _between(fabric: Fabric, on: str) -> tuple[Link, ...]:
    """The T0-T1 links of a plane or of the fabric, in the fabric's order."""
    plane = None if on == "fabric" else _plane(fabric, on)
    every = tuple(link for link in fabric.links if link.kind == "fabric" and plane in (None, link.plane))
    if not every:
        raise FabricError(f"fabric {fabric.name!r} has no T0-T1 links")
    return every


def _drawn(fabric: Fabric, on: str, share: float, seed: int) -> tuple[str, ...]:
    """A share of the T0-T1 links, at least one, in the fabric's order."""
    every = [link.name for link in _between(fabric, on)]
    chosen = set(random.Random(seed).sample(every, max(1, round(share * len(every)))))
    return tuple(name for name in every if name in chosen)
