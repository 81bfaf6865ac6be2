"""Faults on a simulated fabric: the rules are those of the emulated world, but the network carries them out.

Made by testbed.simulated.cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from testbed.errors import UserError
from testbed.faults.holders import Holders, SlowPorts
from testbed.faults.injections import VirtualInjections
from testbed.faults.packet_faults import MemoryPaths, PacketFaults
from testbed.simulated.hosts import SimulatedHost
from testbed.simulated.network import Network
from topologies.clos import Fabric, Link


class LinkFaults(Holders):
    """Cables and switches. ``changed(link, up)`` is called for every cable that changes."""

    def __init__(self, fabric: Fabric, network: Network, changed: Callable[[str, bool], None]) -> None:
        super().__init__(fabric, network.now)
        self.network, self._changed = network, changed

    def _switch(self, name: str, state: int) -> None:
        self.network.set_switch(name, state)

    def _settle(self, link: Link, up: bool) -> None:
        self._up[link.name] = up
        self.network.set_link(link, up)
        self._changed(link.name, up)


class Rates(SlowPorts):
    """Slow links."""

    def __init__(self, fabric: Fabric, network: Network) -> None:
        super().__init__(fabric)
        self.network = network

    def _set(self, rates: Iterable[tuple[int, int]]) -> None:
        self.network.set_rates(rates)


class SimulatedInjector(VirtualInjections):
    """``host_of(number)``: the present simulated host, None if there is none."""

    def __init__(self, fabric: Fabric, network: Network, faults: LinkFaults, host_of: Callable[[int], SimulatedHost | None]) -> None:
        packets = PacketFaults(network.fault_words, MemoryPaths(network.path_faults))
        super().__init__(fabric, faults, packets, Rates(fabric, network), network)
        self.network, self.host_of = network, host_of

    def pause(self, host: int, stop: bool) -> None:
        target = self.host_of(host)
        if target is not None:
            target.pause(stop)

    def kill(self, host: int) -> int:
        target = self.host_of(host)
        if target is None or target.over:
            raise UserError(f"kill: there is no {'controller' if host < 0 else f'agent of h{host}'} running")
        target.kill()
        return self.network.time
