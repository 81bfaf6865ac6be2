"""A deterministic network in virtual time for RoCE endpoints: rates, delay, loss, duplicates, dead
cables, no sockets.

A path never reorders: data of one path is one FIFO, control another that does not wait for it (the
high class). Every frame that crosses is kept with its times, so that a test can say exactly when
what happened.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import NamedTuple

from agents.packets.headers import PSN_MASK
from agents.roce.counters import RX_PARTS
from agents.roce.endpoint import Endpoint
from agents.roce.wire import HEADERS, HEADERS_AT
from agents.transport import NEVER
from topologies.clos import Fabric
from topologies.units import NS, wire_time

HEADROOM = 16
"""Frames are handed in at an offset, as packet rings do."""


class Sent(NamedTuple):
    """One frame as it left a host."""

    at: int
    host: int
    port: int
    frame: bytes
    opcode: int
    psn: int
    high: bool
    outer: bytes


class Network:
    """``lose(sent)`` and ``mark(sent)`` decide on each frame; ``delay_ps`` is one way, for data up
    to ``jitter_ps`` more; ``duplicate`` a probability."""

    def __init__(
        self,
        endpoints: dict[int, Endpoint],
        fabric: Fabric,
        delay_ps: int = 100 * NS,
        duplicate: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.endpoints = endpoints
        self.fabric = fabric
        self.delay_ps = delay_ps
        self.duplicate = duplicate
        self.jitter_ps = 0
        self.lose: Callable[[Sent], bool] = lambda sent: False
        self.mark: Callable[[Sent], bool] = lambda sent: False  # CE, if it is ECT
        self.rng = random.Random(seed)
        self.now = 0
        self.sent: list[Sent] = []
        self.delivered = dict.fromkeys(endpoints, 0)
        self._wire_free: dict[tuple[int, int], int] = {}
        self._arrivals: list[tuple[int, int, int, int, bytes]] = []
        self._order = 0

    def step(self, until: int = NEVER) -> bool:
        """The next thing that happens, at most at ``until``; False when nothing will."""
        self._pump()
        due = min((e.deadline() for e in self.endpoints.values()), default=NEVER)
        if self._arrivals:
            due = min(due, self._arrivals[0][0])
        if due >= NEVER or due > until:
            return False
        self.now = max(self.now, due)
        while self._arrivals and self._arrivals[0][0] <= self.now:
            _, _, host, port, frame = heapq.heappop(self._arrivals)
            self.hand_in(host, port, frame)
        self._pump()
        return True

    def run(
        self, until: int = NEVER, done: Callable[[], bool] = lambda: False, limit: int = 2_000_000
    ) -> None:
        """To quiet, to ``done()``, or to the time ``until`` (which it then is)."""
        for _ in range(limit):
            if done() or not self.step(until):
                if until < NEVER and not done():
                    self.now = max(self.now, until)
                return
        raise AssertionError("the network never came to rest")

    def hand_in(self, host: int, port: int, frame: bytes) -> None:
        self.delivered[host] += 1
        self.endpoints[host].receive(
            self.now,
            port,
            memoryview(bytes(HEADROOM) + bytes(frame) + bytes(7)),
            HEADROOM,
            len(frame),
        )

    def _pump(self) -> None:
        for host, e in self.endpoints.items():
            e.timer(self.now)
            while (port := e.transmit(self.now)) >= 0:
                frame = e.tx_frame + bytes(e.tx_payload or b"") + e.tx_trailer
                self._carry(host, port, frame, e.tx_high)
                e.sent(self.now, port, True)

    def _carry(self, host: int, port: int, frame: bytes, high: bool) -> None:
        fields = HEADERS.unpack_from(frame, HEADERS_AT)
        sent = Sent(
            self.now, host, port, frame, fields[11], fields[15] & PSN_MASK, high, frame[38:54]
        )
        self.sent.append(sent)
        wire = wire_time(len(frame), self.fabric.nic_rate)
        if high:
            arrives = self.now + wire + self.delay_ps
        else:
            start = max(self.now, self._wire_free.get((host, port), 0))
            self._wire_free[host, port] = start + wire
            arrives = (
                start
                + wire
                + self.delay_ps
                + (self.rng.randrange(self.jitter_ps) if self.jitter_ps else 0)
            )
        if self.lose(sent):  # at the far end: it took its time on the wire
            return
        if self.mark(sent) and frame[15] & 0x30:
            frame = frame[:15] + bytes([frame[15] | 0x30]) + frame[16:]
        to = int.from_bytes(frame[92:94], "big") - 1
        for _ in range(2 if self.duplicate and self.rng.random() < self.duplicate else 1):
            self._order += 1
            heapq.heappush(self._arrivals, (arrives, self._order, to, port, frame))

    def check_books(self) -> None:
        """Every frame that went out or came in has exactly one name."""
        for host, e in self.endpoints.items():
            c = e.counters()
            assert (
                c["tx_packets"]
                == c["data_tx"] + c["acks_tx"] + c["naks_tx"] + c["cnps_tx"]
                == sum(s.host == host for s in self.sent)
            )
            assert c["rx_packets"] + c["rx_other"] == self.delivered[host]
            assert c["rx_packets"] == sum(c[name] for name in RX_PARTS)


def pair(
    fabric: Fabric,
    hosts: tuple[int, int] = (0, 2),
    seed: int = 1,
    duplicate: float = 0.0,
    **options: object,
) -> tuple[Network, Endpoint, Endpoint, int, int]:
    """Two connected endpoints: (network, a, b, a's QPN, b's QPN)."""
    a, b = (Endpoint(fabric, host, dict(options), seed) for host in hosts)
    pa, pb = a.create_qp(hosts[1]), b.create_qp(hosts[0])
    a.connect_qp(0, pa["qpn"], pb)
    b.connect_qp(0, pb["qpn"], pa)
    a.events(), b.events()
    return (
        Network({hosts[0]: a, hosts[1]: b}, fabric, duplicate=duplicate, seed=seed),
        a,
        b,
        pa["qpn"],
        pb["qpn"],
    )
