"""The shape of a cluster, and which of its cables are alive: two arrays of booleans, ``up[plane,
T0, uplink]`` and ``port[plane, host]``.

In two tiers, uplink j of a T0 leads to T1 number j. With more, it leads to T1 number j of the T0's
pod, and from there, through core group j, to T1 number j of every other pod (Al-Fares et al., *A
Scalable, Commodity Data Center Network Architecture*, SIGCOMM 2008, section 3). So a path needs the
same uplink number at both T0s. Cables above the T1s are always up [ours].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.errors import UserError
from topologies import Fabric, Link
from topologies.sizing import Size

Bools = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Cluster:
    links: Fabric
    planes: int
    t0s: int
    uplinks: int
    hosts_per_t0: int

    @classmethod
    def of_fabric(cls, fabric: Fabric) -> Cluster:
        """Raises :class:`UserError` for two sites."""
        if fabric.sites > 1:
            raise UserError(
                f"fabric {fabric.name!r} has two sites, and rates without packets know one place"
            )
        return cls(
            fabric, fabric.planes, fabric.t0_per_plane, fabric.t1_per_plane, fabric.hosts_per_t0
        )

    @classmethod
    def of_size(cls, size: Size) -> Cluster:
        """Raises :class:`UserError` unless the design's T0s are all full."""
        if size.tiers < 2 or size.nics % size.down:
            raise UserError(
                f"{size.nics:,} NICs do not fill T0s of {size.down} NICs: use a multiple of "
                f"{size.down}, two T0s or more"
            )
        links = Fabric("links", size.planes, 2, 1, 1, nic_rate=size.port_rate)
        return cls(links, size.planes, size.t0s, size.up, size.down)

    @property
    def hosts(self) -> int:
        return self.t0s * self.hosts_per_t0

    @property
    def fabric_links(self) -> int:
        return self.planes * self.t0s * self.uplinks

    @property
    def packets_per_second(self) -> float:
        return self.links.host_rate / (8 * self.links.mtu)

    def t0_of(self, hosts: Numbers) -> Numbers:
        return hosts // self.hosts_per_t0

    def interleaved_rings(self, ranks: int) -> tuple[Numbers, Numbers]:
        """Return (senders, receivers) of parallel rings; each host is in one, and all hosts of a T0
        send to one other T0. Raises
        :class:`UserError` where that cannot be."""
        if (
            self.t0s < 2
            or ranks < 2
            or self.hosts % ranks
            or (ranks % self.t0s and self.t0s % ranks)
        ):
            shape = f"rings of {ranks} ranks over {self.t0s} T0s of {self.hosts_per_t0} hosts"
            raise UserError(f"{shape}: use a multiple or a divisor of {self.t0s}, at least 2")
        order = np.arange(self.hosts, dtype=np.int64).reshape(self.t0s, self.hosts_per_t0).T.ravel()
        rings = order.reshape(-1, ranks)
        return rings.ravel(), np.roll(rings, -1, axis=1).ravel()


@dataclass
class State:
    cluster: Cluster
    up: Bools
    port: Bools

    @classmethod
    def healthy(cls, cluster: Cluster) -> State:
        up = np.ones((cluster.planes, cluster.t0s, cluster.uplinks), dtype=np.bool_)
        return cls(cluster, up, np.ones((cluster.planes, cluster.hosts), dtype=np.bool_))

    def set_link(self, plane: int, t0: int, t1: int, alive: bool = False) -> None:
        self.up[plane, t0, t1] = alive

    def set_port(self, plane: int, host: int, alive: bool = False) -> None:
        self.port[plane, host] = alive

    def set_cable(self, link: Link, alive: bool = False) -> None:
        if link.kind == "nic":
            self.set_port(link.plane, self.cluster.links.host_number(link.a.node), alive)
        else:
            t0, t1 = (int(node.rpartition("-")[2]) for node in (link.a.node, link.b.node))
            self.set_link(link.plane, t0, t1, alive)

    def set_t1(self, plane: int, t1: int) -> None:
        self.up[plane, :, t1] = False

    def cut_random(self, count: int, generator: np.random.Generator) -> None:
        alive = np.flatnonzero(self.up)
        if not 0 <= count <= len(alive):
            raise UserError(
                f"{count:,} dead links: this cluster has {len(alive):,} live T0-T1 links"
            )
        self.up.reshape(-1)[generator.choice(alive, count, replace=False)] = False

    def paths(self, sources: Numbers, destinations: Numbers) -> Numbers:
        """Count, [plane, pair], the uplink numbers that are up at both T0s of a pair."""
        return np.stack(
            [np.count_nonzero(plane[sources] & plane[destinations], axis=1) for plane in self.up]
        )
