"""The queue pairs of one host: the verbs on them, their states and paths, and their reports. It
never looks at a packet."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from struct import Struct

from agents.packets.headers import PSN_MASK
from agents.packets.memory import Memory, memory_of
from agents.packets.numbers import Numbers
from agents.roce.congestion import NotificationPoint
from agents.roce.counters import Counters
from agents.roce.options import Options
from agents.roce.queue_pair import ERROR, INIT, RTS, STATES, QueuePair
from agents.roce.requester import Requester
from agents.roce.responder import MAX_MESSAGE, Responder
from agents.roce.selective import SelectiveRequester, SelectiveResponder
from agents.roce.transmitter import Transmitter
from agents.roce.wire import rnr_code
from agents.transport import (
    FLUSHED,
    NEVER,
    RECEIVE,
    Completion,
    Domain,
    Event,
    Foreign,
    PathRow,
    Region,
    Remote,
    check_parameters,
    check_target,
    known_ps,
)
from topologies import ecmp
from topologies.addressing import ev_fields, inner_address, path_address
from topologies.clos import Fabric
from topologies.paths import living_evs

FIRST_QPN = 0x100
_FIRST_SPORT = 0xC000
_SPORTS = 0x4000
_OWNER = Struct("!II")  # host, QPN
_PARAMETERS = (
    ("qpn", 0, PSN_MASK),
    ("psn", 0, PSN_MASK),
    ("sport", 1, 0xFFFF),
    ("mtu", 0, 1 << 16),
    ("host", 0, 1 << 16),
)


def sport_of(host: int, qpn: int) -> int:
    """Two queue pairs of a host may have the same port [ours]."""
    return _FIRST_SPORT | zlib.crc32(_OWNER.pack(host, qpn)) & _SPORTS - 1


class QueuePairs(Transmitter):
    def __init__(self, fabric: Fabric, host: int, options: Mapping[str, object], seed: int) -> None:
        super().__init__(fabric, Counters())
        self._fabric: Fabric = fabric
        self._host: int = host
        self._address: bytes = inner_address(host)
        self._options: Options = Options(fabric, options)
        self._far_options: Options = (
            Options(fabric, options, True) if fabric.sites > 1 else self._options
        )
        self._rng: random.Random = random.Random(f"roce/{seed}/{host}")
        self._flow_seed: int = ecmp.fabric_seed(fabric)
        self._memory: Memory = Memory(self._rng)
        self._completions: list[Completion] = []
        self._events: list[Event] = []
        self._qps: dict[int, QueuePair] = {}
        self._sports: dict[int, int] = {}  # UDP source ports that were drawn -> QPN
        self._numbers: Numbers = Numbers(FIRST_QPN, FIRST_QPN + self._rng.randrange(1 << 20))
        self._gone_placed: int = 0  # payload bytes of queue pairs that were destroyed
        self._dead_links: set[str] = set()
        self._up: list[bool] = [True] * fabric.planes
        self._payload_rx: list[int] = [0] * fabric.planes  # placed, by plane

    # --- verbs ------------------------------------------------------------------------------------

    def register(self, memory: bytearray | memoryview | Foreign) -> Region:
        return self._memory.register(memory)

    def domain(self) -> Domain:
        return Memory(self._rng, self._memory.rkeys)

    def reserve_qp(self) -> int:
        return self._numbers.reserve()

    def _check_peer(self, peer: int) -> None:
        if not 0 <= peer < self._fabric.host_count or peer == self._host:
            raise ValueError(
                f"no peer {peer}: hosts are 0..{self._fabric.host_count - 1} and this is "
                f"{self._host}"
            )

    def remote_of(self, host: int, qpn: int, psn: int) -> Remote:
        self._check_peer(host)
        return {
            "transport": "roce",
            "host": host,
            "qpn": qpn,
            "psn": psn,
            "sport": sport_of(host, qpn),
            "mtu": self._fabric.mtu,
        }

    def _draw_sport(self, qpn: int) -> int:
        sport = self._rng.randrange(_FIRST_SPORT, _FIRST_SPORT + _SPORTS)
        while sport in self._sports and len(self._sports) < _SPORTS:
            sport = self._rng.randrange(_FIRST_SPORT, _FIRST_SPORT + _SPORTS)
        self._sports[sport] = qpn
        return sport

    def create_qp(
        self, peer: int, evs: int = 0, qpn: int = -1, domain: Domain | None = None
    ) -> Remote:
        self._check_peer(peer)
        memory = memory_of(domain, self._memory)
        given = qpn >= 0
        qpn = self._numbers.take(qpn)
        sport = sport_of(self._host, qpn) if given else self._draw_sport(qpn)
        psn = self._rng.getrandbits(24)
        o = self._far_options if self._fabric.is_far(self._host, peer) else self._options
        mtu = self._fabric.mtu
        common = self._counters, self._completions
        tx: Requester
        rx: Responder
        if o.selective:
            tx = SelectiveRequester(qpn, mtu, psn, o.rto_ps, o.ack_every, o.congestion(), *common)
            tx.reorder_ps = o.reorder_ps
            rx = SelectiveResponder(qpn, mtu, rnr_code(o.rnr_ps), memory, *common)
        else:
            tx = Requester(qpn, mtu, psn, o.rto_ps, o.ack_every, o.congestion(), *common)
            rx = Responder(qpn, mtu, rnr_code(o.rnr_ps), memory, *common)
        tx.rto_most_ps = o.rto_most_ps
        flow = ecmp.flow_hash(
            self._flow_seed, self._address, inner_address(peer), sport, self._fabric.udp_port
        )
        notification = NotificationPoint(o.cnp_interval_ps)
        qp = QueuePair(
            qpn, peer, self._address, (sport, self._fabric.udp_port), flow, tx, rx, notification
        )
        self._route(qp)
        self._qps[qpn] = qp
        return {
            "transport": "roce",
            "host": self._host,
            "qpn": qpn,
            "psn": psn,
            "sport": sport,
            "mtu": mtu,
        }

    def connect_qp(self, now: int, qpn: int, remote: Remote) -> None:
        qp = self._qp(qpn)
        if qp.state != INIT:
            raise ValueError(
                f"queue pair {qpn:#x} is in {STATES[qp.state]}: only one in INIT can be connected"
            )
        check_parameters(remote, _PARAMETERS)
        if remote["host"] != qp.peer:
            raise ValueError(
                f"connection parameters are of host {remote['host']}, this queue pair is for "
                f"host {qp.peer}"
            )
        if remote["mtu"] != self._fabric.mtu:
            raise ValueError(
                f"connection parameters: mtu {remote['mtu']} differs from this host's "
                f"{self._fabric.mtu}"
            )
        qp.remote_qpn = remote["qpn"]
        qp.remote_sport = remote["sport"]
        qp.rx.expected = remote["psn"]
        self._enter(now, qp, RTS, "connected")

    def start_qp(self, now: int, qpn: int, psn: int, timeout_ps: int, retries: int) -> None:
        qp = self._qp(qpn)
        if qp.state != RTS or not 0 <= psn <= PSN_MASK or not qp.tx.restart(psn):
            raise ValueError(
                f"queue pair {qpn:#x} is not in RTS, was posted to before, or {psn} has more "
                "than 24 bits"
            )
        if timeout_ps:
            qp.tx.rto_ps = min(qp.tx.rto_ps, timeout_ps)
            qp.tx.rto_most_ps = min(qp.tx.rto_most_ps, timeout_ps)
        qp.tx.patience_ps = timeout_ps * (1 + retries) if timeout_ps else NEVER

    def fail_qp(self, now: int, qpn: int) -> None:
        qp = self._qp(qpn)
        if qp.state != ERROR:
            self._fail(now, qp, FLUSHED, "ended by its user")

    def destroy_qp(self, now: int, qpn: int) -> None:
        self._numbers.release(qpn)
        qp = self._qps.pop(qpn, None)
        if qp is None:
            return  # it was reserved only
        if self._sports.get(qp.sport) == qpn:
            del self._sports[qp.sport]
        if qp.scheduled:
            self._ready[qp.port].remove(qp)
        if qp.answering:
            self._answers.remove(qp)
        self.tx_payload = None
        self._gone_placed += qp.rx.placed
        # in place: shared with the queue pairs
        self._completions[:] = [c for c in self._completions if c.qpn != qpn]

    def post_recv(self, qpn: int, wr_id: int) -> None:
        qp = self._qp(qpn)
        if qp.state == ERROR:
            self._completions.append(Completion(qpn, wr_id, RECEIVE, FLUSHED, -1, 0))
        else:
            qp.rx.receives.append(wr_id)

    def post_write(
        self, qpn: int, wr_id: int, memory: memoryview | Foreign, va: int, rkey: int, imm: int
    ) -> None:
        qp = self._qp(qpn)
        if qp.state != RTS:
            raise ValueError(
                f"queue pair {qpn:#x} is in {STATES[qp.state]}: only one in RTS takes requests"
            )
        held: memoryview | Foreign
        if isinstance(memory, Foreign):
            held = memory
        else:
            view = memoryview(memory)
            held = view if view.format == "B" and view.ndim == 1 else view.cast("B")
        length = len(held)
        check_target(va, rkey, length, imm)
        if length > MAX_MESSAGE:
            raise ValueError(
                f"a message of {length} bytes is longer than the {MAX_MESSAGE} that RoCE allows"
            )
        qp.tx.post(wr_id, held, va, rkey, imm)
        self._schedule(qp)

    def _qp(self, qpn: int) -> QueuePair:
        qp = self._qps.get(qpn)
        if qp is None:
            raise ValueError(f"there is no queue pair {qpn:#x}")
        return qp

    # --- states and paths -------------------------------------------------------------------------

    def _enter(self, now: int, qp: QueuePair, state: int, cause: str) -> None:
        qp.state = state
        qp.cause = cause
        self._events.append(
            (now, "qp", {"peer": qp.peer, "qpn": qp.qpn, "state": STATES[state], "cause": cause})
        )

    def _fail(self, now: int, qp: QueuePair, status: int, cause: str) -> None:
        qp.tx.flush(status)
        while qp.rx.receives:
            self._completions.append(
                Completion(qp.qpn, qp.rx.receives.popleft(), RECEIVE, FLUSHED, -1, 0)
            )
        self._enter(now, qp, ERROR, cause)

    def _route(self, qp: QueuePair) -> int:
        """Returns the EV that it had. Without a living path it keeps the old one."""
        old = qp.ev
        living = living_evs(self._fabric, self._host, qp.peer, self._dead_links)
        qp.dead = not living
        if living:
            value = ecmp.choose(qp.flow, living, self._fabric.ecmp_hash)
            qp.take_path(
                value, ev_fields(value)[0], path_address(self._fabric, self._host, qp.peer, value)
            )
        return old

    def port_state(self, now: int, port: int, up: bool) -> None:
        """A flow does not leave its port until the network re-routes it."""
        if 0 <= port < len(self._up):
            self._up[port] = up

    def deny(self, now: int, entries: list[str]) -> None:
        """Do nothing: RoCE does not choose its paths."""

    def quiesce(self) -> None:
        self._quiesced = True
        self._timer_at = NEVER
        for queue in self._ready:
            while queue:
                queue.pop().scheduled = False

    def hint(self, now: int, links: list[str]) -> None:
        """Do nothing: its network re-routes by itself, see :meth:`reroute`."""

    def reroute(self, now: int, dead_links: list[str]) -> None:
        self._dead_links = {self._fabric.link(name).name for name in dead_links}
        for qp in self._qps.values():
            was = qp.port
            old = self._route(qp)
            if old == qp.ev:
                continue
            if qp.scheduled:
                self._ready[was].remove(qp)
                self._ready[qp.port].append(qp)
            self._counters.reroutes += 1
            self._events.append(
                (
                    now,
                    "reroute",
                    {
                        "peer": qp.peer,
                        "ev": qp.ev,
                        "old": old,
                        "last_data_ps": known_ps(qp.last_data_ps),
                    },
                )
            )

    # --- reports ----------------------------------------------------------------------------------

    def completed(self) -> bool:
        return len(self._completions) > 0

    def completions(self) -> list[Completion]:
        done = self._completions[:]
        self._completions.clear()  # shared with the queue pairs
        return done

    def events(self) -> list[Event]:
        events = self._events
        self._events = []
        return events

    def goodput(self) -> tuple[list[int], list[int]]:
        return self._payload_tx[:], self._payload_rx[:]

    def placed(self) -> dict[int, int]:
        placed = {qpn: qp.rx.placed for qpn, qp in self._qps.items()}
        if self._gone_placed:
            placed[-1] = self._gone_placed
        return placed

    def windows(self) -> list[dict[str, int]]:
        """``rate_bps`` 0: only the port limits it. ``srtt_ps`` 0: no ACK yet."""
        return [
            {
                "qpn": qpn,
                "peer": qp.peer,
                "cwnd": qp.tx.congestion.window,
                "in_flight": qp.tx.inflight,
                "srtt_ps": qp.tx.srtt_ps,
                "rate_bps": qp.tx.congestion.rate,
            }
            for qpn, qp in self._qps.items()
        ]

    def counters(self) -> dict[str, int]:
        return self._counters.as_dict()

    def paths(self) -> list[PathRow]:
        """``dead``: the port is down here, or the network knows of no way."""
        rows: list[PathRow] = []
        for qp in self._qps.values():
            plane, uplink = ev_fields(qp.ev)
            rows.append(
                {
                    "peer": qp.peer,
                    "qpn": qp.qpn,
                    "qp_state": STATES[qp.state],
                    "plane": plane,
                    "uplink": uplink,
                    "ev": qp.ev,
                    "state": "GOOD",
                    "dead": qp.dead or not self._up[qp.port],
                    "tx_packets": qp.tx_packets,
                    "rx_packets": qp.rx_packets,
                    "retransmitted": qp.tx.retransmitted,
                    "outstanding": qp.tx.nxt - qp.tx.una,
                    "rto_firing": qp.tx.firing,
                    "last_data_ps": known_ps(qp.last_data_ps),
                }
            )
        return rows
