"""Slows cables down and gives them their rate back, by changing HTB's classes in place.

One :class:`Rates` per built fabric, used by testbed/emulated/injector.py. A queue's thresholds stay what they are in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from testbed.emulated import bringup
from topologies.clos import Fabric, Port


class Rates:
    """``path_of(node)``: its network namespace for nsenter, "" for the switches'. Several may slow a port: the slowest counts."""

    def __init__(self, fabric: Fabric, path_of: Callable[[str], str]) -> None:
        self.fabric = fabric
        self._path_of = path_of
        self._built = {port.number: link.rate for link in fabric.links for port in (link.a, link.b)}
        self._shares: dict[int, dict[int, float]] = {}  # port -> holder -> share of the rate left

    def slow(self, holder: int, ports: Iterable[int], share: float) -> None:
        """What these ports send goes at ``share`` of the rate they were built with. Raises UserError where tc refuses."""
        changed = list(ports)
        for port in changed:
            self._shares.setdefault(port, {})[holder] = share
        self._write(changed)

    def drop(self, holder: int) -> None:
        """Whatever ``holder`` slowed is as fast as the others let it be."""
        changed = [port for port, shares in self._shares.items() if shares.pop(holder, None) is not None]
        self._write(changed)
        for port in changed:
            if not self._shares[port]:
                del self._shares[port]

    def reset(self) -> None:
        """Every port at the rate it was built with."""
        changed = list(self._shares)
        for port in changed:
            self._shares[port].clear()
        self._write(changed)
        self._shares.clear()

    def _write(self, ports: Iterable[int]) -> None:
        batches: dict[str, list[tuple[Port, int]]] = {}
        for number in ports:
            port = self.fabric.ports[number]
            rate = max(8, round(self._built[number] * min(self._shares[number].values(), default=1.0)))
            batches.setdefault(port.node if port.node in self.fabric.hosts else "", []).append((port, rate))
        for node, rated in batches.items():
            lines = [line for port, rate in rated for line in bringup.class_lines(self.fabric, "change", port, rate)]
            bringup.run_batch("tc", lines, self._path_of(node))
