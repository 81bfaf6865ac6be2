"""Exchanges news of ports and paths between the hosts at both ends: Port Status Updates and EV
Probes. Sans-IO; one per endpoint.

Both are endpoint requests (QPN 2); bit 15 of the request id marks an EV Probe. Facts are the
specification's as third parties read it; the rest is [ours].

* **Port Status Update.** On every change of a local port each peer is sent the full mask (bit N:
  port N is reachable) under a new 15-bit serial. One copy goes over every live plane, again each
  RTT, eight times, then with doubling gaps, until one is answered. A peer applies an update newer
  than what it applied before, and always answers, on the plane by which it came.
* **EV Probe.** A host that only receives sends one per base RTT, on an EV drawn at random; EVs that
  answer carry its SACKs. A sender of data learns from its SACKs instead.

There is no authentication: a peer is its inner address. It can only make claims about planes
towards itself.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from agents.mrc import wire
from agents.mrc.framing import Route
from agents.mrc.queue_pair import RTS, QueuePair
from agents.transport import NEVER, Event

EV_PROBE: Final = 0x8000
SERIALS: Final = 0x7FFF
FAST_TRIES: Final = 8
MOST_OWED: Final = 64
ANSWER_RTTS: Final = 4
"""An EV Probe that is not answered for so many base RTTs has failed."""
ALL_PORTS: Final = 0xFFFFFFFF


class Operation(NamedTuple):
    route: Route
    ev: int
    request: bool
    number: int  # request id
    op: int  # 0 Port Status Update, 1 EV Probe
    mask: int  # of a request
    stamp: int  # of a response: the request's timestamp
    at: int  # of a response: when the request came, ps


class Neighbour:
    def __init__(self, peer: int, base_rtt: int, route: Route, evs: list[int], planes: int) -> None:
        self.peer = peer
        self.base_rtt = base_rtt  # of the paths to it, ps
        self.route = route
        self.evs: list[list[int]] = [[e for e in evs if e >> 16 == p] for p in range(planes)]
        self.ev_set = frozenset(evs)
        self.qps: list[QueuePair] = []
        # What the peer says of itself.
        self.mask = ALL_PORTS
        self.mask_serial = 0  # of the update that said so
        # What we say to the peer.
        self.serial = 0
        self.pending = False
        self.tries = 0
        self.gap = 0
        self.update_at = NEVER
        # EV Probes.
        self.probe_at = NEVER
        self.number = 0
        self.probes: dict[int, tuple[int, int]] = {}  # request id -> (EV, sent ps)
        self.queued = 0  # operations queued for it


class Neighbours:
    def __init__(self, planes: int, rng: Random, log: list[Event]) -> None:
        self.planes = planes
        self.rng = rng
        self.log = log
        self.peers: dict[int, Neighbour] = {}
        self.port_up = [True] * planes
        self.queue: list[tuple[Neighbour, Operation]] = []
        self.next_at = NEVER
        self.gone_serial = 0  # the highest of those that are gone: a peer may remember it
        self.updates_tx = 0
        self.updates_rx = 0
        self.ev_probes_tx = 0
        self.ev_probes_rx = 0
        self.responses_rx = 0
        self.stale = 0
        self.too_many = 0

    def add(self, qp: QueuePair, evs: list[int]) -> Neighbour:
        peer = self.peers.get(qp.peer)
        if peer is None:
            peer = self.peers[qp.peer] = Neighbour(
                qp.peer, qp.requester.config.base_rtt, qp.route, evs, self.planes
            )
            peer.serial = self.gone_serial
        peer.qps.append(qp)
        return peer

    def remove(self, qp: QueuePair) -> bool:
        peer = self.peers[qp.peer]
        peer.qps.remove(qp)
        if peer.qps:
            return False
        del self.peers[qp.peer]
        self.queue[:] = [(owner, operation) for owner, operation in self.queue if owner is not peer]
        self.gone_serial = max(self.gone_serial, peer.serial)
        return True

    def connected(self, now: int, peer: Neighbour) -> None:
        if not all(self.port_up) and not peer.pending:
            self._announce(now, peer)

    # --- our ports --------------------------------------------------------------------------------

    def local_port(self, now: int, port: int, up: bool) -> None:
        if self.port_up[port] == up:
            return
        self.port_up[port] = up
        self.log.append((now, "port", {"port": port, "up": up}))
        for peer in self.peers.values():
            if self._connected(peer):
                self._announce(now, peer)

    def _announce(self, now: int, peer: Neighbour) -> None:
        peer.serial = peer.serial % SERIALS + 1
        peer.pending = True
        peer.tries = 0
        peer.gap = peer.base_rtt
        peer.update_at = now
        self.next_at = min(self.next_at, now)

    def _send_update(self, now: int, peer: Neighbour) -> None:
        live = [p for p in range(self.planes) if self.port_up[p]]
        for p in [p for p in live if peer.mask >> p & 1] or live:
            self._queue(
                peer,
                Operation(
                    peer.route, self._any_ev(peer, p), True, peer.serial, 0, self._mask(), 0, 0
                ),
            )
        self.updates_tx += 1
        peer.tries += 1
        if peer.tries > FAST_TRIES:
            peer.gap = min(2 * peer.gap, 1024 * peer.base_rtt)
        peer.update_at = now + peer.gap

    @staticmethod
    def _connected(peer: Neighbour) -> list[QueuePair]:
        return [qp for qp in peer.qps if qp.state == RTS]

    def _mask(self) -> int:
        return sum(1 << p for p in range(self.planes) if self.port_up[p])

    def _any_ev(self, peer: Neighbour, plane: int) -> int:
        paths = peer.qps[0].requester.paths
        lap = paths.active[plane]
        if lap:
            return lap[int(self.rng.random() * len(lap))].ev
        return peer.evs[plane][int(self.rng.random() * len(peer.evs[plane]))]

    # --- EV Probes --------------------------------------------------------------------------------

    def receiving(self, now: int, qp: QueuePair) -> None:
        peer = self.peers[qp.peer]
        if peer.probe_at == NEVER:
            peer.probe_at = now + int(peer.base_rtt * self.rng.random())
            self.next_at = min(self.next_at, peer.probe_at)
        qp.watched = True

    def _probe(self, now: int, peer: Neighbour) -> None:
        limit = now - 2 * peer.base_rtt
        for number in [
            k for k, (_, sent) in peer.probes.items() if sent < now - ANSWER_RTTS * peer.base_rtt
        ]:
            ev, _ = peer.probes.pop(number)
            for qp in self._connected(peer):
                qp.responder.reverse.refuted(ev)
        receives = any(qp.responder.inflow.newest_ps > limit for qp in self._connected(peer))
        if not receives:
            peer.probe_at = NEVER if not peer.probes else now + peer.base_rtt
            for qp in peer.qps:
                qp.watched = peer.probe_at != NEVER
            return
        peer.probe_at = now + peer.base_rtt
        if any(qp.requester.last_ps > limit for qp in peer.qps):
            return  # its own data shows which EVs work
        planes = [p for p in range(self.planes) if self.port_up[p] and peer.mask >> p & 1]
        if not planes:
            return
        plane = planes[int(self.rng.random() * len(planes))]
        ev = peer.evs[plane][int(self.rng.random() * len(peer.evs[plane]))]
        peer.number = peer.number + 1 & SERIALS
        peer.probes[EV_PROBE | peer.number] = (ev, now)
        self._queue(
            peer, Operation(peer.route, ev, True, EV_PROBE | peer.number, 1, self._mask(), 0, 0)
        )
        self.ev_probes_tx += 1

    # --- frames -----------------------------------------------------------------------------------

    def _queue(self, peer: Neighbour, operation: Operation) -> None:
        if peer.queued >= MOST_OWED:
            self.too_many += 1
            return
        peer.queued += 1
        self.queue.append((peer, operation))

    def take(self) -> Operation | None:
        while self.queue:
            peer, operation = self.queue.pop(0)
            peer.queued -= 1
            if self.port_up[operation.ev >> 16]:
                return operation
        return None

    def request(
        self, now: int, peer: Neighbour, ev: int, number: int, op: int, mask: int, stamp: int
    ) -> bool:
        """Take a request, which must be answered on its plane. Returns True if it changed
        ``peer.mask``."""
        self._queue(peer, Operation(peer.route, ev, False, number, op, 0, stamp, now))
        if number & EV_PROBE:
            self.ev_probes_rx += 1
            return False
        self.updates_rx += 1
        ahead = (number - peer.mask_serial & SERIALS ^ 0x4000) - 0x4000
        if ahead <= 0:
            return False
        peer.mask_serial = number
        if mask == peer.mask:
            return False
        peer.mask = mask
        self.log.append(
            (
                now,
                "peer_ports",
                {"peer": peer.peer, "mask": mask & (1 << self.planes) - 1, "serial": number},
            )
        )
        return True

    def response(self, peer: Neighbour, now: int, number: int) -> None:
        if number & EV_PROBE:
            probe = peer.probes.pop(number, None)
            if probe is not None:
                self.responses_rx += 1
                for qp in self._connected(peer):
                    # otherwise this queue pair may use fewer paths
                    if probe[0] in qp.requester.paths.by_ev:
                        qp.responder.reverse.confirmed(now, probe[0])
                return
        elif peer.pending and number == peer.serial:
            self.responses_rx += 1
            peer.pending = False
            peer.update_at = NEVER
            return
        self.stale += 1  # includes the answers to further copies

    def timer(self, now: int) -> None:
        self.next_at = NEVER
        for peer in self.peers.values():
            if peer.update_at <= now:
                self._send_update(now, peer)
            if peer.probe_at <= now:
                self._probe(now, peer)
            # two by two: that much the compiler does without a call
            self.next_at = min(min(self.next_at, peer.update_at), peer.probe_at)

    def counters(self) -> dict[str, int]:
        return {
            "endpoint_operations_rx": self.updates_rx
            + self.ev_probes_rx
            + self.responses_rx
            + self.stale,
            "port_updates_tx": self.updates_tx,
            "port_updates_rx": self.updates_rx,
            "ev_probes_tx": self.ev_probes_tx,
            "ev_probes_rx": self.ev_probes_rx,
            "stale_responses": self.stale,
            "requests_unanswered": self.too_many,
        }


def request_fields(operation: Operation, stamp: int) -> bytes:
    return wire.S_ERTH.pack(operation.op, operation.mask, stamp, wire.FTYPE)


def response_fields(operation: Operation, stamp: int) -> bytes:
    return wire.S_EETH.pack(operation.op << 2, stamp)
