"""Faults on a simulated fabric: the emulated world's rules, carried out by the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableSequence
from typing import Any

from testbed.errors import UserError
from testbed.faults.holders import Holders, SlowPorts
from testbed.faults.injections import Injections
from testbed.faults.packet_faults import MemoryPaths, PacketFaults
from testbed.faults.targets import Injected, Target
from testbed.simulated.hosts import Steered
from testbed.simulated.network import Network
from topologies.clos import Fabric, Link

Called = Callable[..., None]
"""Gets a method's name and arguments after its call here: other processes may have to call it,
too."""


def nobody(method: str, *args: Any) -> None:
    """Do nothing: there are no other processes."""


class LinkFaults(Holders):
    def __init__(
        self,
        fabric: Fabric,
        network: Network,
        changed: Callable[[str, bool], None],
        called: Called = nobody,
    ) -> None:
        super().__init__(fabric, network.now)
        self.network, self._changed, self._called = network, changed, called

    def _switch(self, name: str, state: int) -> None:
        self.network.set_switch(name, state)
        self._called("set_switch", name, state)

    def _settle(self, link: Link, up: bool) -> None:
        self._up[link.name] = up
        self.network.set_link(link, up)
        self._called("set_link", link, up)
        self._changed(link.name, up)


class Rates(SlowPorts):
    def __init__(self, fabric: Fabric, network: Network, called: Called) -> None:
        super().__init__(fabric)
        self.network, self._called = network, called

    def _set(self, rates: Iterable[tuple[int, int]]) -> None:
        rates = list(rates)
        self.network.set_rates(rates)
        self._called("set_rates", rates)


class PortWords(MutableSequence[int]):
    def __init__(self, network: Network, called: Called) -> None:
        self.network, self._called = network, called

    def __len__(self) -> int:
        return len(self.network.fault_words)

    def __getitem__(self, at: Any) -> Any:
        return self.network.fault_words[at]

    def __setitem__(self, at: Any, word: Any) -> None:
        self.network.set_fault_word(at, word)
        self._called("set_fault_word", at, word)

    def __delitem__(self, at: Any) -> None:
        raise TypeError("a map has its size")

    def insert(self, index: int, value: int) -> None:
        raise TypeError("a map has its size")


class PathMap(MemoryPaths):
    """Draws that other processes have counted stay theirs."""

    def __init__(self, network: Network, called: Called) -> None:
        super().__init__(network.path_faults)
        self.network, self._called = network, called

    def update(self, key: bytes, value: bytes) -> None:
        self._set(key, value)

    def delete(self, key: bytes) -> bool:
        there = self.lookup(key) is not None
        self._set(key, None)
        return there

    def _set(self, key: bytes, value: bytes | None) -> None:
        self.network.set_path_fault(key, value)
        self._called("set_path_fault", key, value)


class SimulatedInjector(Injections):
    """Whatever is due is booked in the network's calendar. ``host_of(number)`` is the present
    simulated host, or None."""

    def __init__(
        self,
        fabric: Fabric,
        network: Network,
        faults: LinkFaults,
        host_of: Callable[[int], Steered | None],
        called: Called = nobody,
    ) -> None:
        packets = PacketFaults(PortWords(network, called), PathMap(network, called))
        super().__init__(fabric, faults, packets, Rates(fabric, network, called), network.now)
        self.network, self.host_of = network, host_of
        self._booked: int | None = None  # when the calendar will call

    def strike(self, target: Target) -> Injected:
        fault = super().strike(target)
        self.network.halted = True
        return fault

    def _look_again(self) -> None:
        self._book(self._next_due())

    def _book(self, due: int | None) -> None:
        if due is not None and due != self._booked:
            self._booked = due
            self.network.at(due, self._due)

    def _due(self, *_: object) -> None:
        if self._booked == self.network.now():
            self._booked = None
            due = self.advance()
            self.network.halted = True  # code that reacts to cables that change runs now
            self._book(due)

    def pause(self, host: int, stop: bool) -> None:
        target = self.host_of(host)
        if target is not None:
            target.pause(stop)

    def kill(self, host: int) -> int:
        target = self.host_of(host)
        if target is None or target.over:
            raise UserError(
                f"kill: there is no {'controller' if host < 0 else f'agent of h{host}'} running"
            )
        target.kill()
        return self.network.time
