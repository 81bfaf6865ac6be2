"""Divides a fabric into the parts of machines that carry it together.

No cable is ever cut, because both of its ends count its queue. A T1 is cut instead: between its
table and its egress queue it keeps nothing. So a machine owns some T0s in all planes, their hosts,
and of every T1 the ports that face these T0s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from topologies.clos import Fabric, FabricError, Link, Port


@dataclass(frozen=True)
class Part:
    fabric: Fabric
    machine: int
    t0s: range

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        return tuple(
            host for host in range(self.fabric.host_count) if self.fabric.t0_of(host) in self.t0s
        )

    @cached_property
    def host_names(self) -> tuple[str, ...]:
        return tuple(self.fabric.hosts[host] for host in self.hosts)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        if len(self.t0s) == self.fabric.t0_per_plane:
            return self.fabric.links
        # as Fabric.switches lists them
        per_plane = self.fabric.t0_per_plane + self.fabric.t1_per_plane
        own = set(self.host_names)
        own |= {
            name
            for number, name in enumerate(self.fabric.switches)
            if number % per_plane in self.t0s
        }
        return tuple(link for link in self.fabric.links if link.a.node in own)

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        return tuple(port for link in self.links for port in (link.a, link.b))

    @cached_property
    def switches(self) -> tuple[str, ...]:
        own = {port.node for port in self.ports}
        return tuple(name for name in self.fabric.switches if name in own)


def whole(fabric: Fabric) -> Part:
    return Part(fabric, 0, range(fabric.t0_per_plane))


def divide(fabric: Fabric, machines: int) -> tuple[Part, ...]:
    """Parts have nearly equal size. Raises :class:`FabricError` if there are not enough T0s."""
    if not 1 <= machines <= fabric.t0_per_plane:
        raise FabricError(
            f"fabric {fabric.name!r} has {fabric.t0_per_plane} T0 per plane, and each machine "
            f"needs one: give at most {fabric.t0_per_plane} machines, not {machines}"
        )
    if machines > 1 and fabric.sites > 1:
        raise FabricError(
            f"fabric {fabric.name!r} has two sites, which one machine carries alone: give one "
            f"machine, not {machines}"
        )
    cuts = [fabric.t0_per_plane * number // machines for number in range(machines + 1)]
    return tuple(
        Part(fabric, number, range(cuts[number], cuts[number + 1])) for number in range(machines)
    )
