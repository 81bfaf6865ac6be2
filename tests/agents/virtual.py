"""A deterministic virtual-time network for engines: no root, no clock, no threads.

Every host of a fabric has an engine; a frame takes its path's links one after the other. Each link
serialises what its egress port (:mod:`tests.agents.nic.egress`: marking, trimming, tail drop, two
classes) gives it, and the fabric's propagation delay passes once, at the receiving host, as in the
agents: an idle path's round trip is the fabric's base RTT. Time jumps to the next thing that
happens. Tests decide on loss, extra delay and copies, link by link. Switching uses the real static
tables and uSID shifts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

from agents.delay_line import LOCAL_HOPS
from agents.transport import NEVER, Engine
from tests.agents.nic.egress import Egress, is_high
from topologies.addressing import BLOCK, host_of_inner, shift, switch_usid
from topologies.clos import Fabric, Port
from topologies.paths import static_tables
from topologies.units import US, wire_time


class VirtualNetwork:
    """Engines joined by a fabric. ``delay``: ps per link in addition to the fabric's own; ``seed``:
    which packets a ramp marks."""

    def __init__(
        self, fabric: Fabric, engines: list[Engine], delay: int = 0, seed: int = 0
    ) -> None:
        self.fabric = fabric
        self.engines = engines
        self.delay = delay
        self.now = US
        self.tables = static_tables(fabric)
        self.usids = {s: switch_usid(s) for s in fabric.switches}
        self.far: dict[str, Port] = {}
        self.link_of: dict[str, str] = {}
        self.ports: dict[str, Egress] = {}  # by name, host ports too
        rng = Random(seed)
        for link in fabric.links:
            for near, far in ((link.a, link.b), (link.b, link.a)):
                self.far[near.name] = far
                self.link_of[near.name] = link.name
                self.ports[near.name] = Egress(
                    fabric, link.rate, not near.node.startswith("h"), far.node.startswith("h"), rng
                )
        self.free = dict.fromkeys(self.ports, 0)  # when the last frame was through
        self.down: set[str] = set()
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = 0
        # when the last frame of a class reached the far end of a link
        self.arrivals: dict[tuple[str, bool], int] = {}
        # whether a link carries a frame
        self.fate: Callable[[bytes, str, int], bool] = lambda frame, link, now: True
        # extra ps on a link; its FIFOs keep their order
        self.jitter: Callable[[bytes, str, int], int] = lambda frame, link, now: 0
        self.copies: Callable[[bytes, str, int], int] = lambda frame, link, now: 1
        # what comes to an egress port
        self.trace: Callable[[int, str, bytes], None] = lambda now, port, frame: None
        # what a host's engine gets
        self.taken: Callable[[int, int, bytes], None] = lambda now, host, frame: None
        self.delivered = 0
        self.dropped = 0  # by fate, a dead cable, a full queue or for want of a way

    def at(self, when: int, what: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.queue, (when, self.serial, what))

    def _egress(self, name: str, frame: bytes, rate: int = 0) -> None:
        self.trace(self.now, name, frame)
        link = self.link_of[name]
        port = self.ports[name]
        if (
            link in self.down
            or not self.fate(frame, link, self.now)
            or not port.offer(self.now, frame)
        ):
            self.dropped += 1
        elif not port.sending:
            self._start(name, rate)

    def _start(self, name: str, rate: int = 0) -> None:
        """Put the port's next frame on the wire; ``rate``: of the cable over which it comes in just
        now."""
        port = self.ports[name]
        if self.link_of[name] in self.down:
            self.dropped += port.flush(self.now)
        frame = port.take(self.now)
        port.sending = frame is not None
        if frame is not None:
            begun = self.now
            if self.fabric.cut_through and rate >= port.rate and not self.delay:
                begun = max(begun - wire_time(len(frame), rate), self.free[name])
            self.at(
                max(self.now, begun + wire_time(len(frame), port.rate)),
                lambda: self._done(name, frame),
            )

    def _done(self, name: str, frame: bytes) -> None:
        """The frame has left; the next one may."""
        self.free[name] = self.now
        link = self.link_of[name]
        key = (name, is_high(frame))
        there = max(
            self.now + self.delay + self.jitter(frame, link, self.now), self.arrivals.get(key, 0)
        )
        self.arrivals[key] = there
        for _ in range(self.copies(frame, link, self.now)):
            if there == self.now:
                self._ingress(name, frame)
            else:
                self.at(there, lambda: self._ingress(name, frame))
        self._start(name)

    def _ingress(self, from_port: str, frame: bytes) -> None:
        if self.link_of[from_port] in self.down:
            self.dropped += 1
            return
        port = self.far[from_port]
        if port.node.startswith("h"):
            host = int(port.node[1:])
            far = self.fabric.sites > 1 and self.fabric.is_far(host, host_of_inner(frame[62:78]))
            late = (
                self.fabric.local_delay_ps if frame[21] == LOCAL_HOPS else self.fabric.delay_ps
            ) + (self.fabric.long_haul_delay_ps if far else 0)
            self.at(self.now + late, lambda: self._deliver(host, port.plane, frame))
            return
        dst = frame[38:54]
        if dst[:4] != BLOCK or int.from_bytes(dst[4:6], "big") != self.usids[port.node]:
            self.dropped += 1
            return
        dst = shift(dst)
        egress = self.tables[port.node].get(int.from_bytes(dst[4:6], "big"))
        if egress is None:
            self.dropped += 1
            return
        self._egress(
            egress,
            frame[:21] + bytes((frame[21] - 1,)) + frame[22:38] + dst + frame[54:],
            self.ports[from_port].rate,
        )

    def _deliver(self, host: int, plane: int, frame: bytes) -> None:
        self.delivered += 1
        self.taken(self.now, host, frame)
        self.engines[host].receive(self.now, plane, bytearray(frame), 0, len(frame))

    def step(self, until: int) -> bool:
        """Let every engine act, then jump to the next event; False when nothing happens before
        ``until``."""
        soonest = NEVER
        for host, engine in enumerate(self.engines):
            engine.timer(self.now)
            while (port := engine.transmit(self.now)) >= 0:
                frame = engine.tx_frame + bytes(engine.tx_payload or b"") + engine.tx_trailer
                engine.sent(self.now, port, True)
                self._egress(f"h{host}-p{port}", frame)
            soonest = min(soonest, engine.deadline())
        if self.queue:
            soonest = min(soonest, self.queue[0][0])
        if soonest > until:
            self.now = until
            return False
        self.now = max(self.now + 1, soonest)
        while self.queue and self.queue[0][0] <= self.now:
            heapq.heappop(self.queue)[2]()
        return True

    def run(self, until: int, done: Callable[[], bool] = lambda: False) -> bool:
        """Run to a time or until ``done()``; returns what ``done()`` says."""
        while not done():
            if not self.step(until):
                return done()
        return True


def connect(a: Any, b: Any, ha: int, hb: int, now: int) -> tuple[int, int]:
    """A connected QP between two engines; their QPNs."""
    ra, rb = a.create_qp(hb), b.create_qp(ha)
    a.connect_qp(now, ra["qpn"], rb)
    b.connect_qp(now, rb["qpn"], ra)
    return ra["qpn"], rb["qpn"]
