"""Faults on a fluid fabric: the rules are those of the packet worlds, for the kinds that take links or switches. Made by
testbed.fluid.world."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from testbed.errors import UserError
from testbed.faults.holders import Holders, SlowPorts
from testbed.faults.injections import VirtualInjections
from testbed.faults.kinds import KINDS
from testbed.faults.packet_faults import MemoryPaths, PacketFaults
from testbed.faults.targets import Injected
from testbed.fluid.network import Network
from topologies.clos import Fabric, Link


def not_fluid(kind: str) -> str:
    """Why the fluid world does not have a kind of fault; "" if it has it."""
    entry = KINDS[kind]
    if not entry.heals or entry.stalls:
        return "acts on a process"
    return "" if entry.takes else "acts on single packets or on the rate of a link"


class LinkFaults(Holders):
    """Cables and switches."""

    def __init__(self, fabric: Fabric, network: Network) -> None:
        super().__init__(fabric, network.now)
        self.network = network

    def _switch(self, name: str, state: int) -> None:
        self.network.set_switch(name, state)

    def _settle(self, link: Link, up: bool) -> None:
        self._up[link.name] = up
        self.network.set_link(link, up)


class _Rates(SlowPorts):
    def _set(self, rates: Iterable[tuple[int, int]]) -> None:
        """Nothing slows a port here."""


class FluidInjector(VirtualInjections):
    """Raises :class:`UserError` for kinds that this world does not have."""

    def __init__(self, fabric: Fabric, network: Network) -> None:
        packets = PacketFaults([], MemoryPaths({}))  # of which there are none
        super().__init__(fabric, LinkFaults(fabric, network), packets, _Rates(fabric), network)

    def inject(self, kind: str, on: str, keys: Mapping[str, Any], run_seed: int) -> Injected:
        if why := not_fluid(kind):
            raise UserError(f"fault {kind} {why}: the fluid world has neither; use --world simulated")
        return super().inject(kind, on, keys, run_seed)
