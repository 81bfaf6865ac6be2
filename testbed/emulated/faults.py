"""Takes links and switches of a running fabric down and up, and notices when somebody else does.

One :class:`Faults` per FabricNet. Several may keep one thing down; it comes back when the last lets go. A fault acts on the switch's
end of a cable, never on a host's: the host sees its carrier go, as with a pulled cable, and keeps its routes. Down: gate closed in both
directions, interface down, what was queued declared flushed. Up: interface up, carrier and queues back at both ends, flushed again, gate
opened; so the books stay exact. A monitor thread does the same for whoever runs `ip link set` by hand in a node.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from testbed.dataplane.counters import Counters
from testbed.dataplane.layout import PORT_BASE, SWITCH_DEAD, SWITCH_SILENT, SWITCH_WORKS
from testbed.emulated.netlink import OPER_UP, LinkEvents, LinkSocket
from topologies.clos import Fabric, FabricError, Link, Port
from topologies.theory import links_of_switch

SETTLE_S = 1.0
"""Longest wait for the kernel to report carrier at both ends of a cable."""
BY_HAND = 0
"""The holder behind set_link and set_switch; faults have numbers from 1 on."""


class _Held(NamedTuple):
    """What one holder keeps down."""

    links: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()


class Faults:
    """``namespaces``: node name -> descriptor of its network namespace, switches under the key ""."""

    def __init__(self, fabric: Fabric, counters: Counters, namespaces: Mapping[str, int]) -> None:
        self.fabric = fabric
        self.counters = counters
        self._switch_numbers = {name: i for i, name in enumerate(fabric.switches)}
        self._sockets = {node: LinkSocket(fd) for node, fd in namespaces.items()}
        self._events = LinkEvents(namespaces[""])
        self._lock = threading.RLock()
        self._up = {link.name: True for link in fabric.links}  # as it is
        self._held: dict[int, _Held] = {}  # who keeps what down
        self._by_index = {PORT_BASE + p.number: link for link in fabric.links for p in (link.a, link.b) if p.node in self._switch_numbers}
        self._wake, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="mrcbed-ports", daemon=True)
        self._thread.start()

    # --- what callers use ------------------------------------------------------------------------------------

    def hold(
        self, holder: int, links: Iterable[str] = (), dead: Iterable[str] = (), silent: Iterable[str] = ()
    ) -> tuple[int, tuple[str, ...]]:
        """What ``holder`` keeps down from now on, all of it: cables, dead switches, silent switches. Nothing: it lets go.

        A thing is down while anybody holds it. Returns the monotonic ns at which the first change was made, and the cables that went or
        came, in the fabric's order. Raises :class:`FabricError` for a name that is not there, and then changes nothing.
        """
        wanted = _Held(frozenset(self.fabric.link(name).name for name in links), frozenset(dead), frozenset(silent))
        for name in wanted.dead | wanted.silent:
            self._number(name)
        with self._lock:
            return self._change(holder, wanted)

    def set_link(self, name: str, up: bool) -> int:
        """Pull or plug a cable by hand; returns the monotonic ns at which the kernel was told. One that a fault holds stays down."""
        link = self.fabric.link(name).name
        with self._lock:
            mine = self._held.get(BY_HAND, _Held())
            return self._change(BY_HAND, mine._replace(links=mine.links - {link} if up else mine.links | {link}), (link,))[0]

    def set_switch(self, name: str, up: bool) -> int:
        """Kill or revive a switch with all its cables by hand; returns the monotonic ns at which the first change was made."""
        self._number(name)
        with self._lock:
            mine = self._held.get(BY_HAND, _Held())
            wanted = mine._replace(dead=mine.dead - {name} if up else mine.dead | {name})
            return self._change(BY_HAND, wanted, links_of_switch(self.fabric, name))[0]

    def heal(self) -> None:
        """Everything up again, also what was taken down by hand at a switch's end."""
        with self._lock:
            self._held.clear()
            self._apply(self._up)

    def link_states(self) -> dict[str, bool]:
        """Cable -> whether it carries, in the fabric's order."""
        with self._lock:
            return dict(self._up)

    def close(self) -> None:
        """Stop watching. The fabric itself goes with its namespaces."""
        os.write(self._waker, b"x")
        self._thread.join()
        self._events.close()
        for sock in self._sockets.values():
            sock.close()
        os.close(self._wake)
        os.close(self._waker)

    # --- how ---------------------------------------------------------------------------------------------------

    def _switch_ends(self, link: Link) -> list[Port]:
        return [p for p in (link.a, link.b) if p.node in self._switch_numbers]

    def _socket(self, port: Port) -> LinkSocket:
        return self._sockets["" if port.node in self._switch_numbers else port.node]

    def _number(self, switch: str) -> int:
        if switch not in self._switch_numbers:
            first, last = self.fabric.switches[0], self.fabric.switches[-1]
            raise FabricError(f"fabric {self.fabric.name!r} has no switch {switch!r}: they are {first}..{last}")
        return self._switch_numbers[switch]

    def _change(self, holder: int, wanted: _Held, also: Iterable[str] = ()) -> tuple[int, tuple[str, ...]]:
        before, was = dict(self._up), self._held.get(holder, _Held())
        if any(wanted):
            self._held[holder] = wanted
        else:
            self._held.pop(holder, None)
        switches = was.dead | wanted.dead
        touched = was.links | wanted.links | {li.name for li in self.fabric.links if switches & {li.a.node, li.b.node}}
        told = time.monotonic_ns()
        self._apply(touched.union(also))
        return told, tuple(name for name, up in self._up.items() if up != before[name])

    def _apply(self, touched: Container[str]) -> None:
        """Make switches and the cables in ``touched`` what the holders want. Gates first: what goes together goes at one moment."""
        pulled = {name for held in self._held.values() for name in held.links}
        dead = {name for held in self._held.values() for name in held.dead}
        silent = {name for held in self._held.values() for name in held.silent}
        for name, number in self._switch_numbers.items():
            self.counters.set_switch(number, SWITCH_DEAD if name in dead else SWITCH_SILENT if name in silent else SWITCH_WORKS)
        wanted = {link.name: link.name not in pulled and not dead & {link.a.node, link.b.node} for link in self.fabric.links}
        changing = [link for link in self.fabric.links if link.name in touched and wanted[link.name] != self._up[link.name]]
        for link in changing:
            if not wanted[link.name]:
                self._gate(link, closed=True)
        for link in changing:
            self._settle(link, wanted[link.name])

    def _settle(self, link: Link, up: bool) -> None:
        for port in self._switch_ends(link):
            self._socket(port).set_up(PORT_BASE + port.number, up)
        if up:
            self._raise(link)
        else:
            self._flush(link)
            self._up[link.name] = False

    def _raise(self, link: Link) -> None:
        """Open the gates once both ends can send: the kernel brings a queue back a moment after the carrier."""
        until = time.monotonic() + SETTLE_S
        for port in (link.a, link.b):
            sock = self._socket(port)
            while sock.get(PORT_BASE + port.number).operstate != OPER_UP:
                if time.monotonic() > until:
                    return  # its other end was taken down by hand: the monitor hears when that changes
                time.sleep(0.0001)
        for port in self._switch_ends(link):
            self._socket(port).set_up(PORT_BASE + port.number, True)  # changes nothing, but waits for the kernel's work in progress
        self._flush(link)
        self._gate(link, closed=False)
        self._up[link.name] = True

    def _gate(self, link: Link, closed: bool) -> None:
        for port in (link.a, link.b):
            self.counters.set_gate(port.number, closed)

    def _flush(self, link: Link) -> None:
        for port in (link.a, link.b):
            self.counters.flush(port.number)

    def _watch(self) -> None:
        while True:
            ready, _, _ = select.select([self._events.fileno(), self._wake], [], [])
            if self._wake in ready:
                return
            changed = self._events.read()
            if changed is None:
                links = list(self.fabric.links)
            else:
                links = list({id(li): li for s in changed if (li := self._by_index.get(s.ifindex))}.values())
            for link in links:
                with self._lock:
                    self._follow(link)

    def _follow(self, link: Link) -> None:
        """Adopt what the kernel says of a cable, if that is not our own doing."""
        try:
            carries = all(self._socket(p).get(PORT_BASE + p.number).carries for p in self._switch_ends(link))
        except OSError:
            return  # the interface is going: so is the fabric
        if carries == self._up[link.name]:
            return
        if carries:
            self._raise(link)
            return
        self._gate(link, closed=True)
        self._flush(link)
        self._up[link.name] = False
