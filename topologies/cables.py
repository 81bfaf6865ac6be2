"""Enumerates the ports and cables of a fabric, once and in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from topologies.clos import Fabric

Kind = Literal["nic", "fabric", "haul"]
"""Host to T0, T0 to T1, or T1 of site 0 to T1 of site 1."""


@dataclass(frozen=True, slots=True)
class Port:
    # unique in the fabric, dense from 0; the emulation derives the interface index from it
    number: int
    name: str
    node: str
    plane: int


@dataclass(frozen=True, slots=True)
class Link:
    """``a`` is the lower end (host or T0), ``b`` the upper one (T0 or T1); of a long-haul cable
    ``a`` is in site 0."""

    name: str
    kind: Kind
    plane: int
    rate: int  # bits/s, each direction
    a: Port
    b: Port


def cables(fabric: Fabric) -> tuple[Link, ...]:
    """Plane by plane: cables of hosts, those between T0s and T1s, long-haul cables. Ends are
    numbered in this order."""
    links: list[Link] = []

    def cable(
        kind: Kind, plane: int, low: tuple[str, str], high: tuple[str, str], rate: int
    ) -> None:
        n = 2 * len(links)
        a = Port(n, low[1], low[0], plane)
        b = Port(n + 1, high[1], high[0], plane)
        links.append(Link(f"{a.node}:{b.node}", kind, plane, rate, a, b))

    for p in range(fabric.planes):
        for h in range(fabric.host_count):
            t0 = t0_name(p, fabric.t0_of(h))
            cable(
                "nic",
                p,
                (f"h{h}", f"h{h}-p{p}"),
                (t0, f"{t0}-d{fabric.downlink_of(h)}"),
                fabric.nic_rate,
            )
        for i in range(fabric.t0_per_plane):
            for j in fabric.t1s_of_t0(i):
                t0, t1 = t0_name(p, i), t1_name(p, j)
                cable("fabric", p, (t0, f"{t0}-u{j}"), (t1, f"{t1}-d{i}"), fabric.fabric_rate)
        for j in range(fabric.t1_per_plane if fabric.sites > 1 else 0):
            near, far = t1_name(p, j), t1_name(p, fabric.t1_per_plane + j)
            cable("haul", p, (near, f"{near}-s1"), (far, f"{far}-s0"), fabric.long_haul_rate)
    return tuple(links)


def t0_name(plane: int, index: int) -> str:
    return f"p{plane}-t0-{index}"


def t1_name(plane: int, index: int) -> str:
    return f"p{plane}-t1-{index}"
