"""A deterministic virtual-time network for engines: no root, no clock, no threads.

Every host of a fabric has an engine; a frame takes its path's links one after the other, each a FIFO at the link's rate with a
finite buffer, and time jumps to the next thing that happens. Tests decide on loss, extra delay and copies, link by link.
Switching uses the real static tables and uSID shifts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from agents.transport import NEVER, Engine
from topologies.addressing import BLOCK, shift, switch_usid
from topologies.clos import Fabric
from topologies.paths import static_tables

HIGH_BYTE = 15


class VirtualNetwork:
    """Engines joined by a fabric. ``fate(frame, link_name, now) -> bool`` decides whether a link carries a frame."""

    def __init__(self, fabric: Fabric, engines: list[Engine], delay: int = 10_000) -> None:
        self.fabric = fabric
        self.engines = engines
        self.delay = delay  # ns per link, on top of serialisation
        self.now = 1_000_000
        self.tables = static_tables(fabric)
        self.usids = {s: switch_usid(s) for s in fabric.switches}
        self.far = {}
        self.rates = {}
        self.link_of = {}
        for link in fabric.links:
            for near, far in ((link.a, link.b), (link.b, link.a)):
                self.far[near.name] = far
                self.rates[near.name] = link.rate
                self.link_of[near.name] = link.name
        self.busy: dict[tuple[str, bool], int] = {}
        self.down: set[str] = set()
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = 0
        self.arrivals: dict[tuple[str, bool], int] = {}  # when the last frame of a FIFO reached the far end
        self.jitter: Callable[[bytes, str, int], int] = lambda frame, link, now: 0  # extra ns on a link; its FIFO keeps its order
        self.copies: Callable[[bytes, str, int], int] = lambda frame, link, now: 1
        self.taken: Callable[[int, int, bytes], None] = lambda now, host, frame: None  # what reaches a host
        self.fate: Callable[[bytes, str, int], bool] = lambda frame, link, now: True
        self.trace: Callable[[int, str, bytes], None] = lambda now, port, frame: None
        self.delivered = 0
        self.dropped = 0

    def at(self, when: int, what: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.queue, (when, self.serial, what))

    def _egress(self, port: str, frame: bytes) -> None:
        self.trace(self.now, port, frame)
        link = self.link_of[port]
        high = frame[HIGH_BYTE - 1] & 0x0F == 0x0C  # class selector 6: the control class overtakes
        key = (port, high)
        start = max(self.now, self.busy.get(key, 0))
        done = start + len(frame) * 8_000_000_000 // self.rates[port]
        backlog = (start - self.now) * self.rates[port] // 8_000_000_000
        if link in self.down or not self.fate(frame, link, self.now) or backlog > self.fabric.buffer_bytes:
            self.dropped += 1
            return
        self.busy[key] = done
        there = max(done + self.delay + self.jitter(frame, link, self.now), self.arrivals.get(key, 0))
        self.arrivals[key] = there
        for _ in range(self.copies(frame, link, self.now)):
            self.at(there, lambda: self._ingress(port, frame))

    def _ingress(self, from_port: str, frame: bytes) -> None:
        if self.link_of[from_port] in self.down:
            self.dropped += 1
            return
        port = self.far[from_port]
        if port.node.startswith("h"):
            self.delivered += 1
            host = int(port.node[1:])
            self.taken(self.now, host, frame)
            self.engines[host].receive(self.now, port.plane, bytearray(frame), 0, len(frame))
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
        self._egress(egress, frame[:38] + dst + frame[54:])

    def step(self, until: int) -> bool:
        """Let every engine act, then jump to the next event; False when nothing happens before ``until``."""
        soonest = NEVER
        for host, engine in enumerate(self.engines):
            engine.timer(self.now)
            while (port := engine.transmit(self.now)) >= 0:
                frame = bytes(engine.tx_frame[: engine.tx_length]) + bytes(engine.tx_payload or b"") + engine.tx_trailer
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
