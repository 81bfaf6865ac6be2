"""One host's MRC: all its queue pairs behind the engine contract of ``agents.transport``. Sans-IO.

No frame makes :meth:`Endpoint.receive` raise: what is wrong is counted and dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from mypy_extensions import i64

from agents.mrc.arrivals import Arrivals
from agents.mrc.config import WEIGHTED, Config
from agents.mrc.departures import Departures
from agents.mrc.framing import Route
from agents.mrc.neighbours import Neighbour, Neighbours
from agents.mrc.paths.path import Path
from agents.mrc.paths.path_set import PathSet
from agents.mrc.paths.plane_health import PlaneHealth
from agents.mrc.paths.plane_state import STATE_NAMES
from agents.mrc.paths.rotation import Account, Deal, Wishes
from agents.mrc.queue_pair import ERROR, INIT, RTS, QueuePair
from agents.mrc.receiver.advice import Advice
from agents.mrc.receiver.responder import Responder
from agents.mrc.sender import resend
from agents.mrc.sender.congestion.choice import congestion_class
from agents.mrc.sender.requester import SUMS, Requester
from agents.packets.headers import PSN_MASK
from agents.packets.memory import Memory, memory_of
from agents.packets.numbers import Numbers
from agents.transport import (
    FLUSHED,
    LOCAL_PROTECTION,
    NEVER,
    PEER_UNKNOWN,
    RECEIVE,
    RETRY_EXCEEDED,
    Completion,
    Domain,
    Engine,
    Event,
    Foreign,
    PathRow,
    Region,
    Remote,
    SentByPath,
    check_parameters,
    check_target,
)
from topologies.addressing import ev_fields
from topologies.clos import ECMP, Fabric
from topologies.denylist import denied, over_links
from topologies.paths import path_evs

FIRST_QPN = 16
_CAUSES = {
    RETRY_EXCEEDED: "retries exhausted",
    PEER_UNKNOWN: "unknown at the peer",
    LOCAL_PROTECTION: "a request's memory cannot be read",
    FLUSHED: "ended by its user",
}
_PARAMETERS = (
    ("host", 0, 1 << 16),
    ("qpn", 0, PSN_MASK),
    ("psn", 0, PSN_MASK),
    ("mpr", 128, 255 * 128),
)


class _Told:
    def __init__(self) -> None:
        # around which switches that hash have converged
        self.dead_links: frozenset[str] = frozenset()
        self.denials: list[str] = []
        self.hinted: frozenset[str] = frozenset()


class _Gone:
    def __init__(self, planes: int) -> None:
        self.sums = [0] * len(SUMS)
        self.placed = 0
        self.account = Account(planes)


class _Deals:
    """Of planes, by purpose."""

    def __init__(self, fabric: Fabric, host: int, seed: int) -> None:
        self.data, self.few, self.control = (
            Deal(fabric.planes, Random(f"{purpose}/{seed}/{host}"))
            for purpose in ("data", "few", "control")
        )


class _Changes:
    """What changed since deadlines were last computed, so that a turn costs no look at every queue
    pair."""

    def __init__(self) -> None:
        self.qp: QueuePair | None = None
        self.all = True
        self.soonest: i64 = NEVER  # of all queue pairs' deadlines
        self.news = False  # something may have completed

    def touch(self, qp: QueuePair) -> None:
        if self.qp is None:
            self.qp = qp
        elif self.qp is not qp:
            self.all = True


class Endpoint(Engine):
    """Raises ValueError on unknown or impossible ``options``."""

    def __init__(self, fabric: Fabric, host: int, options: Mapping[str, object], seed: int) -> None:
        super().__init__()
        self.fabric = fabric
        self.host = host
        self.config = Config.from_fabric(fabric, options)
        self.far_config = self.config.between_sites(fabric) if fabric.sites > 1 else self.config
        self.congestion_class = congestion_class(self.config)
        self.rng = Random(seed << 16 | host)
        self.memory = Memory(self.rng)
        self.log: list[Event] = []
        self.qps: dict[int, QueuePair] = {}
        self.numbers = Numbers(FIRST_QPN, FIRST_QPN)
        self.routes: dict[int, Route] = {}
        self.told = _Told()
        self.quiesced = False
        self.order: list[QueuePair] = []
        # whose data may go, in the order of their turns; nobody's at rest
        self.senders: list[QueuePair] = []
        self.deals = _Deals(fabric, host, seed)
        self.wishes = Wishes(fabric, host, seed)
        self.first_evs = Random(f"evs/{seed}/{host}")
        self.advice = Advice(self.config)
        self.finished: list[Completion] = []
        self.neighbours = Neighbours(fabric.planes, self.rng, self.log)
        self.out = Departures(self.config, fabric.planes, self.neighbours)
        self.arrivals = Arrivals(self.config, fabric, host, self.qps, self.out, self.neighbours)
        self.gone = _Gone(fabric.planes)
        self.changes = _Changes()

    def _touch_all(self) -> None:
        self.changes.all = self.changes.news = True
        self.out.quiet = False

    # --- verbs ------------------------------------------------------------------------------------

    def register(self, memory: Any) -> Region:
        return self.memory.register(memory)

    def domain(self) -> Domain:
        return Memory(self.rng, self.memory.rkeys)

    def reserve_qp(self) -> int:
        return self.numbers.reserve()

    def _other_host(self, host: int) -> Config:
        if host == self.host or not 0 <= host < self.fabric.host_count:
            raise ValueError(f"h{self.host} cannot have a queue pair with host number {host}")
        return self.far_config if self.fabric.is_far(self.host, host) else self.config

    def remote_of(self, host: int, qpn: int, psn: int) -> Remote:
        return {"host": host, "qpn": qpn, "psn": psn, "mpr": self._other_host(host).mpr}

    def create_qp(
        self, peer: int, evs: int = 0, qpn: int = -1, domain: Domain | None = None
    ) -> Remote:
        config = self._other_host(peer)
        memory = memory_of(domain, self.memory)
        qpn = self.numbers.take(qpn)
        psn = self.rng.getrandbits(24)
        values = list(path_evs(self.fabric, self.host, peer))
        every = [e for e in values if evs <= 0 or ev_fields(e)[1] < evs]
        local, far = (
            self.fabric.t0_of(self.host) == self.fabric.t0_of(peer),
            self.fabric.is_far(self.host, peer),
        )
        first = self.deals.few.next() if config.active_evs < self.fabric.planes else 0
        paths = PathSet(config, peer, every, self.rng, self.log, qpn, in_order=evs > 0, first=first)
        health = PlaneHealth(config, peer, paths, self.rng, self.log)
        path_rtt = self.fabric.rtt_ps(self.host, peer)
        requester = Requester(
            config,
            qpn,
            peer,
            paths,
            self.congestion_class(config, path_rtt),
            self.log,
            self.deals.data,
        )
        requester.rtt.path_rtt = path_rtt
        requester.rtt.data_ps = (
            self.fabric.data_ps(local, far) * requester.congestion.mtu // self.fabric.frame_bytes
        )
        responder = Responder(config, qpn, memory, self.rng, self.advice)
        if peer not in self.routes:
            self.routes[peer] = Route(self.fabric, self.host, peer)
            self.routes[peer].reroute(self.told.dead_links)
        qp = QueuePair(qpn, peer, psn, self.routes[peer], health, requester, responder, self.log)
        self.qps[qpn] = qp
        self.order.append(qp)
        self.senders.append(qp)
        self.neighbours.add(qp, values)
        self._touch_all()
        return {"host": self.host, "qpn": qpn, "psn": psn, "mpr": config.mpr}

    def connect_qp(self, now: int, qpn: int, remote: Remote) -> None:
        check_parameters(remote, _PARAMETERS)
        qp = self._qp(qpn)
        if qp.state != INIT or remote["host"] != qp.peer:
            raise ValueError(
                f"QP {qpn} of h{self.host} is not in INIT or belongs to h{qp.peer}, not "
                f"h{remote['host']}"
            )
        qp.remote_qpn = remote["qpn"]
        every = qp.requester.paths.all
        # Drawn: if it were the first of each plane, control packets of all hosts would begin on the
        # same uplinks [ours].
        first = [
            self.first_evs.choice([path.ev for path in every if path.plane == p])
            for p in range(self.fabric.planes)
        ]
        qp.responder.start(remote["psn"], first, self.deals.control.next())
        peer = self.neighbours.peers[qp.peer]
        qp.requester.start(
            now, qp.first_psn, remote["mpr"], self.wishes.plane(qp.peer, peer.qps.index(qp))
        )
        self._ports_changed(now, peer)  # the known state of ports and paths applies to it, too
        self._apply_denials(now, qp)
        qp.to(now, RTS, "connected")
        self.neighbours.connected(now, peer)
        self._touch_all()

    def start_qp(self, now: int, qpn: int, psn: int, timeout_ps: int, retries: int) -> None:
        qp = self._qp(qpn)
        patience = timeout_ps * (1 + retries) if timeout_ps else NEVER
        if qp.state != RTS or not 0 <= psn <= PSN_MASK or not qp.requester.restart(psn, patience):
            raise ValueError(
                f"QP {qpn} of h{self.host} is not in RTS, was posted to before, or {psn} has "
                "more than 24 bits"
            )
        qp.first_psn = psn
        self._touch_all()

    def fail_qp(self, now: int, qpn: int) -> None:
        self._fail(now, self._qp(qpn), FLUSHED)

    def destroy_qp(self, now: int, qpn: int) -> None:
        self.numbers.release(qpn)
        qp = self.qps.pop(qpn, None)
        if qp is None:
            return  # it was reserved only
        r = qp.requester
        r.add_to(self.gone.sums)
        self.gone.placed += qp.placed
        self.gone.account.add(r)
        self.order.remove(qp)
        self.out.forget(self.senders, qp)
        self.changes.qp = None
        self._touch_all()
        self.tx_payload = None
        self.advice.forget(qp.responder.inflow)
        if self.neighbours.remove(qp):
            del self.routes[qp.peer]
        self.finished = [c for c in self.finished if c.qpn != qpn]

    def _qp(self, qpn: int) -> QueuePair:
        qp = self.qps.get(qpn)
        if qp is None:
            raise ValueError(f"h{self.host} has no queue pair {qpn}")
        return qp

    def post_recv(self, qpn: int, wr_id: int) -> None:
        qp = self._qp(qpn)
        if qp.state == ERROR:
            self.finished.append(Completion(qpn, wr_id, RECEIVE, FLUSHED, -1, 0))
            self.changes.news = True
        else:
            qp.responder.recv_queue.append(wr_id)

    def post_write(
        self, qpn: int, wr_id: int, memory: memoryview | Foreign, va: int, rkey: int, imm: int
    ) -> None:
        qp = self._qp(qpn)
        if qp.state != RTS:
            raise ValueError(f"QP {qpn} of h{self.host} is not in RTS")
        check_target(va, rkey, len(memory), imm)
        if not qp.requester.is_open():
            self.out.last_in_turn(self.senders, qp)
        qp.requester.post(wr_id, memory, va, rkey, imm)
        self.out.quiet = False
        self.changes.touch(qp)

    def completed(self) -> bool:
        if not self.changes.news:
            return False
        for qp in self.order:  # by hand: a generator costs more than all of this
            if qp.responder.completions or qp.requester.queue.completions:
                return True
        return len(self.finished) > 0

    def completions(self) -> list[Completion]:
        if not self.changes.news:
            return []
        self.changes.news = False
        completions = self.finished
        self.finished = []
        for qp in self.order:
            if qp.responder.completions:
                completions.extend(qp.responder.take())
            if qp.requester.queue.completions:
                completions.extend(qp.requester.queue.take())
        return completions

    # --- frames -----------------------------------------------------------------------------------

    def receive(self, now: int, port: int, buffer: Any, start: int, length: int) -> None:
        self._received(now, self.arrivals.frame(now, port, buffer, start, length))

    def spare_sums(self) -> bool:
        self.out.framer.sums = False
        return True

    def receive_intact(
        self, now: int, port: int, head: bytes, word: int, payload: memoryview | None, length: int
    ) -> None:
        self._received(now, self.arrivals.intact(now, port, head, word, payload, length))

    def _received(self, now: int, qp: QueuePair | None) -> None:
        if self.arrivals.changed_peer is not None:
            peer, self.arrivals.changed_peer = self.arrivals.changed_peer, None
            self._ports_changed(now, peer)
        met = self.arrivals.met
        if met is not None:
            self.arrivals.met = None
            self.changes.touch(met)
            if met.responder.completions or met.requester.queue.completions:
                self.changes.news = True
            if met.to_probe or met.requester.has_data():
                self.out.quiet = False
        if qp is not None:
            if qp.cause >= 0 and qp.state != ERROR:
                self._fail(now, qp, qp.cause)
            elif not qp.listed and qp.owes():
                qp.listed = True
                self.out.control.append(qp)

    def transmit(self, now: int) -> int:
        out = self.out
        port = out.next(now, self.senders)
        while out.unreadable:
            self._fail(now, out.unreadable.pop(0), LOCAL_PROTECTION)
        if port >= 0:
            self.tx_frame = out.framer.frame
            self.tx_payload = out.payload
            self.tx_trailer = out.framer.trailer
            self.tx_high = out.high
            if out.left is not None:
                self.changes.touch(out.left)
            qp = out.failed
            if qp is not None:
                out.failed = None
                self._fail(now, qp, qp.cause)
        return port

    def sent(self, now: int, port: int, ok: bool) -> None:
        """Frames that the kernel refused count as sent and lost."""
        if not ok:
            self.out.tx_refused += 1

    def timer(self, now: int) -> None:
        if self.neighbours.next_at <= now and not self.quiesced:
            self.neighbours.timer(now)
        if self.changes.all or self.changes.soonest <= now:
            self._touch_all()
            for qp in self.order:
                self._timer(now, qp)
        elif self.changes.qp is not None:
            self._timer(now, self.changes.qp)
            if self.changes.qp.to_probe:
                self.out.quiet = False

    def _timer(self, now: int, qp: QueuePair) -> None:
        if qp.state != RTS:
            return
        r = qp.requester
        if qp.responder.flush_at <= now:
            qp.responder.flush()
            if not qp.listed:
                qp.listed = True
                self.out.control.append(qp)
        if self.quiesced:
            return
        if r.timers.starting:
            r.timers.start(now)
        if r.is_open():
            if r.probe_at() <= now:
                self._tail_probe(now, qp)
            if r.rto_at() <= now:
                if not r.rto(now):
                    self._fail(now, qp, RETRY_EXCEEDED)
                    return
                if r.sent.una >= r.sent.next:
                    # only an ACK is missing: there is no packet to send again
                    self._tail_probe(now, qp)
        if r.doubts.at <= now:
            r.settle_doubts(now)
        if r.paths.next_probe <= now:
            path = r.paths.due_probe(now)
            while path is not None:
                r.paths.probe_sent(now, path)
                qp.to_probe.append(path)
                path = r.paths.due_probe(now)
        while qp.health.next_at <= now:
            path = qp.health.due_probe(now)
            if path is not None:
                qp.to_probe.append(path)

    def _tail_probe(self, now: int, qp: QueuePair) -> None:
        """Ask on the oldest packet's own path (FIFO makes the answer decisive) and on another
        plane, which alone can show a lost end of a message within a round trip [ours]."""
        r = qp.requester
        paths = r.paths
        own = -1
        probes = r.timers.tail_probes
        if r.sent.una < r.sent.next and probes == 0:
            oldest = r.sent.latest(r.sent.una).path
            own = oldest.plane
            if paths.open[own]:
                qp.to_probe.append(oldest)
        for k in range(paths.planes):
            plane = (r.plane + probes + k) % paths.planes
            if (
                paths.open[plane]
                and paths.usable[plane]
                and (plane != own or paths.live_planes == 1)
            ):
                qp.to_probe.append(paths.active[plane][probes % paths.usable[plane]])
                break
        r.timers.probed()

    def deadline(self) -> int:
        if self.quiesced:
            return (
                min(self.out.wait, *(qp.responder.flush_at for qp in self.order))
                if self.order
                else self.out.wait
            )
        if self.changes.all:
            for qp in self.order:
                qp.due = qp.deadline()
        elif self.changes.qp is not None:
            self.changes.qp.due = self.changes.qp.deadline()
        if self.changes.all or self.changes.qp is not None:
            soonest: i64 = NEVER
            for qp in self.order:
                if qp.due < soonest:
                    soonest = qp.due
            self.changes.soonest = soonest
            self.changes.qp = None
            self.changes.all = False
        return min(min(self.out.wait, self.neighbours.next_at), self.changes.soonest)

    def quiesce(self) -> None:
        self.quiesced = True
        self.senders = []
        for qp in self.order:
            qp.to_probe.clear()
        self._touch_all()

    # --- the world --------------------------------------------------------------------------------

    def port_state(self, now: int, port: int, up: bool) -> None:
        self.neighbours.local_port(now, port, up)
        for peer in self.neighbours.peers.values():
            self._ports_changed(now, peer)

    def _ports_changed(self, now: int, peer: Neighbour) -> None:
        self._touch_all()
        for qp in peer.qps:
            r = qp.requester
            for p in range(self.fabric.planes):
                if (
                    qp.health.set_ports(
                        now, p, self.out.port_up[p], peer.mask >> p & 1 != 0, r.rtt.srtt
                    )
                    and qp.state == RTS
                ):
                    resend.requeue_plane(r, now, p)
            if qp.state == RTS:
                r.planes_changed()

    def reroute(self, now: int, dead_links: list[str]) -> None:
        if self.fabric.routing == ECMP:
            self.told.dead_links = frozenset(dead_links)
            for route in self.routes.values():
                route.reroute(self.told.dead_links)

    def deny(self, now: int, entries: list[str]) -> None:
        """Denied EVs must be proved before use once an entry is removed."""
        self.told.denials = entries
        self._touch_all()
        for qp in self.order:
            self._apply_denials(now, qp)

    def _apply_denials(self, now: int, qp: QueuePair) -> None:
        r = qp.requester
        forbidden = denied(self.fabric, self.told.denials, self.host, qp.peer)
        for path in r.paths.all:
            if path.ev in forbidden:
                r.paths.deny(now, path)
            else:
                r.paths.allow(now, path, r.rtt.srtt)
        r.planes_changed()

    def _paths_over(self, qp: QueuePair, links: frozenset[str]) -> list[Path]:
        over = over_links(self.fabric, links, self.host, qp.peer)
        return [path for path in qp.requester.paths.all if path.ev in over]

    def hint(self, now: int, links: list[str]) -> None:
        """Packets in flight over newly dead links are sent again; their EVs return by probes
        [ours]."""
        before, self.told.hinted = self.told.hinted, frozenset(links)
        self._touch_all()
        for qp in self.order:
            r = qp.requester
            down = self._paths_over(qp, self.told.hinted - before)
            for path in down:
                r.paths.hinted(now, path, r.rtt.srtt)
            for path in self._paths_over(qp, before - self.told.hinted):
                if path not in down:
                    r.paths.probe_soon(now, path)
            if down:
                resend.requeue(r, now, set(down), "hint")
                r.planes_changed()

    def _fail(self, now: int, qp: QueuePair, status: int) -> None:
        if qp.state == ERROR:
            return
        self._touch_all()
        qp.to(now, ERROR, _CAUSES.get(status, "refused"))
        qp.requester.flush(status)
        qp.silence()
        qp.responder.fail()

    # --- for people -------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        events = self.log[:]
        self.log.clear()
        return events

    def goodput(self) -> tuple[list[int], list[int]]:
        return list(self.out.payload_tx), list(self.arrivals.payload_rx)

    def rotation(self) -> dict[str, int | list[int]]:
        if self.config.plane_load == WEIGHTED or self.config.active_evs < self.fabric.planes:
            return {}
        return self.gone.account.report(
            [q.requester for q in self.order], list(self.out.first_tx), self.out.repeats
        )

    def placed(self) -> dict[int, int]:
        placed = {q.qpn: q.placed for q in self.order}
        if self.gone.placed:
            placed[-1] = self.gone.placed
        return placed

    def windows(self) -> list[dict[str, int]]:
        return [
            {
                "qpn": q.qpn,
                "peer": q.peer,
                "cwnd": q.requester.congestion.cwnd,
                "in_flight": q.requester.sent.in_flight,
                "srtt_ps": q.requester.rtt.srtt,
            }
            for q in self.order
        ]

    def counters(self) -> dict[str, int]:
        counters = self.arrivals.counters()
        counters.update(self.out.counters())
        counters.update(self.neighbours.counters())
        sums = self.gone.sums[:]
        for q in self.order:
            q.requester.add_to(sums)
        counters.update(zip(SUMS, sums, strict=True))
        counters["in_flight_bytes"] = sum(q.requester.sent.in_flight for q in self.order)
        rtts = [q.requester.rtt for q in self.order if q.requester.rtt.samples]
        counters["min_rtt_ps"] = min((r.min_rtt for r in rtts), default=0)
        counters["srtt_ps"] = sum(r.srtt for r in rtts) // len(rtts) if rtts else 0
        return counters

    def sent_by_path(self) -> list[SentByPath]:
        return [
            (
                q.qpn,
                q.peer,
                [path.ev for path in q.requester.paths.all],
                [path.data_tx for path in q.requester.paths.all],
            )
            for q in self.order
        ]

    def paths(self) -> list[PathRow]:
        return [
            {"qpn": q.qpn, **row, "plane_state": STATE_NAMES[q.health.state[row["plane"]]]}
            for q in self.order
            for row in q.requester.paths.rows()
        ]
