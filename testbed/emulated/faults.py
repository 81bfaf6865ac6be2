"""Takes links and switches of a running fabric down and up, and notices when they change otherwise.

A fault acts on the switch's end of a cable, as a pulled cable does (docs/why/dataplane.md). Down:
gate closed in both directions, interface down, queues off at both ends, what was queued declared
flushed. Up: interface up, carrier and queues back at both ends, flushed again, gate opened. So the
books stay exact. A monitor thread does the same when somebody runs `ip link set` by hand in a node.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Mapping

from agents.clock import WallClock
from testbed.dataplane.counters import Counters
from testbed.dataplane.layout import PORT_BASE
from testbed.emulated.netlink import OPER_UP, LinkEvents, LinkSocket
from testbed.faults.holders import Holders
from testbed.machine.slowness import patient
from topologies.clos import Fabric, Link, Port
from topologies.parts import Part, whole

SETTLE_S = 1.0


class Faults(Holders):
    """``namespaces``: node -> descriptor of its network namespace, switches under "". Of cables
    outside ``part`` only the state is kept."""

    def __init__(
        self,
        fabric: Fabric,
        clock: WallClock,
        counters: Counters,
        namespaces: Mapping[str, int],
        part: Part | None = None,
    ) -> None:
        super().__init__(fabric, clock.now)
        own = (whole(fabric) if part is None else part).links
        self._own = {link.name for link in own}
        self.counters = counters
        self._sockets = {node: LinkSocket(fd) for node, fd in namespaces.items()}
        self._events = LinkEvents(namespaces[""])
        self._by_index = {
            PORT_BASE + p.number: link
            for link in own
            for p in (link.a, link.b)
            if p.node in self._switch_numbers
        }
        self._wake, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="mrcbed-ports", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.write(self._waker, b"x")
        self._thread.join()
        self._events.close()
        for sock in self._sockets.values():
            sock.close()
        os.close(self._wake)
        os.close(self._waker)

    # --- how --------------------------------------------------------------------------------------

    def _switch_ends(self, link: Link) -> list[Port]:
        return [p for p in (link.a, link.b) if p.node in self._switch_numbers]

    def _socket(self, port: Port) -> LinkSocket:
        return self._sockets["" if port.node in self._switch_numbers else port.node]

    def _switch(self, name: str, state: int) -> None:
        self.counters.set_switch(self._switch_numbers[name], state)

    def _close(self, link: Link) -> None:
        if link.name in self._own:
            self._gate(link, closed=True)

    def _settle(self, link: Link, up: bool) -> None:
        if link.name not in self._own:
            self._up[link.name] = up
            return
        for port in self._switch_ends(link):
            self._socket(port).set_up(PORT_BASE + port.number, up)
        if up:
            self._raise(link)
        else:
            self._lower(link)

    def _lower(self, link: Link) -> None:
        """Count what waited as lost once no end can send. The kernel empties a host's queue a
        moment after the carrier has gone, and not at all if the carrier is back by then."""
        self._wait_for(link, up=False)
        self._flush(link)
        self._up[link.name] = False

    def _raise(self, link: Link) -> None:
        """Open the gates once both ends can send: a queue comes back a moment after the carrier."""
        if not self._wait_for(link, up=True):
            return  # its other end was taken down by hand: the monitor hears when that changes
        self._flush(link)
        self._gate(link, closed=False)
        self._up[link.name] = True

    def _wait_for(self, link: Link, up: bool) -> bool:
        until = time.monotonic() + patient(SETTLE_S)
        for port in (link.a, link.b):
            sock = self._socket(port)
            while (sock.get(PORT_BASE + port.number).operstate == OPER_UP) != up:
                if time.monotonic() > until:
                    return False
                time.sleep(0.0001)
            sock.wait(PORT_BASE + port.number)
        return True

    def _gate(self, link: Link, closed: bool) -> None:
        for port in (link.a, link.b):
            self.counters.set_gate(port.number, closed)

    def _flush(self, link: Link) -> None:
        for port in (link.a, link.b):
            self.counters.flush(port.number)

    def _watch(self) -> None:
        while True:
            readable, _, _ = select.select([self._events.fileno(), self._wake], [], [])
            if self._wake in readable:
                return
            changed = self._events.read()
            if changed is None:
                links = [link for link in self.fabric.links if link.name in self._own]
            else:
                links = list(
                    {id(li): li for s in changed if (li := self._by_index.get(s.ifindex))}.values()
                )
            for link in links:
                with self._lock:
                    self._follow(link)

    def _follow(self, link: Link) -> None:
        try:
            carries = all(
                self._socket(p).get(PORT_BASE + p.number).carries for p in self._switch_ends(link)
            )
            if carries == self._up[link.name]:
                return
            if carries:
                self._raise(link)
            else:
                self._gate(link, closed=True)
                self._lower(link)
        except OSError:
            return  # the interface is disappearing, and with it the fabric
