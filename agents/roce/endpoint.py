"""One host's RoCE engine: :class:`agents.transport.Engine` for the baseline ``roce``.

The host process hands in frames and the time and takes frames and deadlines out. This module finds the queue pair that a
frame belongs to, refuses what is broken or hostile, and moves queue pairs between states and paths. What a packet means is decided
by ``requester`` and ``responder``, what leaves when by ``transmitter``. It never raises on what arrives, and never touches
memory outside a registered region.
"""

from __future__ import annotations

import random
from typing import Any, Final

from agents.mrc.memory import Memory
from agents.mrc.wire import PSN_MASK, UDP_PORT, crc32, icrc_in_place
from agents.roce import flow_hash
from agents.roce.counters import Counters
from agents.roce.options import Options
from agents.roce.queue_pair import ERROR, INIT, RTS, STATES, QueuePair
from agents.roce.requester import RING, Requester
from agents.roce.responder import FATAL, MAX_MESSAGE, NOTHING, Responder
from agents.roce.transmitter import Transmitter
from agents.roce.wire import (
    ACK_REQUEST,
    AETH,
    BODY_AT,
    BTH_AT,
    HEADERS,
    HEADERS_AT,
    ICRC,
    ICRC_BYTES,
    INNER_AT,
    KIND_ACK,
    KIND_UNSUPPORTED,
    KINDS,
    MIN_FRAME,
    NAK_ACCESS,
    NAK_INVALID,
    NAK_OPERATION,
    NAK_SEQUENCE,
    PKEY,
    RNR,
    RNR_TIMER_US,
    rnr_code,
)
from agents.transport import (
    FLUSHED,
    NEVER,
    RECEIVE,
    REMOTE_ACCESS,
    REMOTE_INVALID,
    REMOTE_OPERATION,
    RETRY_EXCEEDED,
    Completion,
    Event,
    Region,
)
from topologies.addressing import ev_fields, inner_address, path_address
from topologies.clos import Fabric
from topologies.paths import path_evs

_UDP_PORT_END: Final = BTH_AT  # a shorter frame does not show its UDP port


class Endpoint(Transmitter):
    """``host`` is this host's number, ``seed`` the run's. Raises ValueError on an option that is unknown or out of range."""

    def __init__(self, fabric: Fabric, host: int, options: dict[str, Any], seed: int) -> None:
        super().__init__(fabric, Counters())
        self._fabric: Fabric = fabric
        self._host: int = host
        self._address: bytes = inner_address(host)
        self._options: Options = Options(fabric, options)
        self._rng: random.Random = random.Random(f"roce/{seed}/{host}")
        self._flow_seed: int = flow_hash.fabric_seed(fabric)
        self._memory: Memory = Memory(self._rng)
        self._completions: list[Completion] = []
        self._events: list[Event] = []
        self._qps: dict[int, QueuePair] = {}
        self._sports: set[int] = set()
        self._next_qpn: int = 0x100 + self._rng.randrange(1 << 20)
        self._dead_links: set[str] = set()
        self._up: list[bool] = [True] * fabric.planes
        self._payload_rx: list[int] = [0] * fabric.planes  # placed, by plane

    # --- verbs -----------------------------------------------------------------------------------------------

    def register(self, memory: bytearray | memoryview) -> Region:
        """Raises ValueError if the memory is read-only or not contiguous."""
        return self._memory.register(memory)

    def create_qp(self, peer: int) -> dict[str, Any]:
        """A queue pair in INIT. Raises ValueError if ``peer`` is no other host's number."""
        if not 0 <= peer < self._fabric.host_count or peer == self._host:
            raise ValueError(f"no peer {peer}: hosts are 0..{self._fabric.host_count - 1} and this is {self._host}")
        qpn = self._next_qpn
        self._next_qpn = qpn + 1
        sport = self._rng.randrange(0xC000, 0x10000)
        while sport in self._sports and len(self._sports) < 0x4000:
            sport = self._rng.randrange(0xC000, 0x10000)
        self._sports.add(sport)
        psn = self._rng.getrandbits(24)
        o, mtu = self._options, self._fabric.mtu
        tx = Requester(qpn, mtu, psn, o.rto_ns, o.ack_every, o.congestion(), self._counters, self._completions)
        rx = Responder(qpn, mtu, rnr_code(o.rnr_ns), self._memory, self._counters, self._completions)
        peer_address = inner_address(peer)
        flow = flow_hash.flow_hash(self._flow_seed, self._address, peer_address, sport)
        qp = QueuePair(qpn, peer, self._address, peer_address, sport, flow, tx, rx)
        self._route(qp)
        self._qps[qpn] = qp
        return {"transport": "roce", "host": self._host, "qpn": qpn, "psn": psn, "sport": sport, "mtu": mtu}

    def connect_qp(self, now: int, qpn: int, remote: dict[str, Any]) -> None:
        """To RTS. Raises ValueError if the dictionary is not from the peer's :meth:`create_qp`, or the QP not in INIT."""
        qp = self._qp(qpn)
        if qp.state != INIT:
            raise ValueError(f"queue pair {qpn:#x} is in {STATES[qp.state]}: only one in INIT can be connected")
        for key, low, high in (("qpn", 0, PSN_MASK), ("psn", 0, PSN_MASK), ("sport", 0, 0xFFFF), ("mtu", 0, 1 << 16), ("host", 0, 1 << 16)):
            value = remote.get(key)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise ValueError(f"connection parameters: {key} = {value!r} must be a whole number in {low}..{high}")
        if remote["host"] != qp.peer:
            raise ValueError(f"connection parameters are of host {remote['host']}, this queue pair is for host {qp.peer}")
        if remote["mtu"] != self._fabric.mtu:
            raise ValueError(f"connection parameters: mtu {remote['mtu']} differs from this host's {self._fabric.mtu}")
        qp.remote_qpn = remote["qpn"]
        qp.remote_sport = remote["sport"]
        qp.rx.expected = remote["psn"]
        self._enter(now, qp, RTS, "connected")

    def post_recv(self, qpn: int, wr_id: int) -> None:
        """On a QP in ERROR it is flushed at once. Raises ValueError on a QP that does not exist."""
        qp = self._qp(qpn)
        if qp.state == ERROR:
            self._completions.append(Completion(qpn, wr_id, RECEIVE, FLUSHED, -1, 0))
        else:
            qp.rx.receives.append(wr_id)

    def post_write(self, qpn: int, wr_id: int, memory: memoryview, va: int, rkey: int, imm: int) -> None:
        """Raises ValueError on a QP not in RTS, or a message that does not fit its fields."""
        qp = self._qp(qpn)
        if qp.state != RTS:
            raise ValueError(f"queue pair {qpn:#x} is in {STATES[qp.state]}: only one in RTS takes requests")
        if not 0 <= va < 1 << 64 or not 0 <= rkey < 1 << 32 or not -1 <= imm < 1 << 32:
            raise ValueError("va, rkey or immediate do not fit their fields (64, 32 and 32 bits)")
        view = memoryview(memory)
        if view.format != "B" or view.ndim != 1:
            view = view.cast("B")
        if len(view) > MAX_MESSAGE:
            raise ValueError(f"a message of {len(view)} bytes is longer than the {MAX_MESSAGE} that RoCE allows")
        qp.tx.post(wr_id, view, va, rkey, imm)
        self._schedule(qp)

    def _qp(self, qpn: int) -> QueuePair:
        qp = self._qps.get(qpn)
        if qp is None:
            raise ValueError(f"there is no queue pair {qpn:#x}")
        return qp

    # --- frames in -------------------------------------------------------------------------------------------

    def receive(self, now: int, port: int, buffer: Any, start: int, length: int) -> None:
        counters = self._counters
        if length < MIN_FRAME:
            self._runt(buffer, start, length)
            return
        (
            ethertype, outer_bytes, next_header, version, inner_bytes, protocol, src, dst,
            sport, dport, udp_bytes, opcode, flags, pkey, dqpn, word,
        ) = HEADERS.unpack_from(buffer, start + HEADERS_AT)  # fmt: skip
        if ethertype != 0x86DD or next_header != 41 or version >> 4 != 6 or protocol != 17 or dport != UDP_PORT:
            counters.rx_other += 1
            return
        counters.rx_packets += 1
        end = start + INNER_AT + outer_bytes - ICRC_BYTES
        if outer_bytes > length - INNER_AT or inner_bytes + 40 != outer_bytes or udp_bytes != inner_bytes or end < start + BODY_AT:
            counters.rx_bad_length += 1
            return
        view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
        qp = self._qps.get(dqpn & PSN_MASK)
        if qp is not None and src == qp.peer_address and dst == self._address and sport == qp.remote_sport:
            view[start + BTH_AT + 4] = 0xFF
            crc = crc32(view[start + BTH_AT : end], qp.seed_from_peer(udp_bytes - 8))
        else:
            crc = icrc_in_place(view, start, INNER_AT + outer_bytes)
        if crc != ICRC.unpack_from(view, end)[0]:
            counters.rx_bad_icrc += 1
        elif dst != self._address:
            counters.rx_bad_address += 1
        elif pkey != PKEY:
            counters.rx_bad_pkey += 1
        elif qp is None:
            counters.rx_bad_qp += 1
        elif src != qp.peer_address:
            counters.rx_bad_source += 1
        elif flags & 0x0F:  # transport header version
            counters.rx_bad_opcode += 1
        elif qp.state == INIT:
            counters.rx_not_connected += 1
        else:
            self._dispatch(now, port, qp, opcode, flags, word, view, start + BODY_AT, end)

    def _runt(self, buffer: Any, start: int, length: int) -> None:
        """A frame too short for BTH and iCRC: ours if its UDP port can be seen and is ours."""
        if length >= _UDP_PORT_END:
            frame = bytes(memoryview(buffer)[start : start + _UDP_PORT_END])
            port = frame[96] << 8 | frame[97]
            if frame[12:14] == b"\x86\xdd" and frame[20] == 41 and frame[60] == 17 and port == UDP_PORT:
                self._counters.rx_packets += 1
                self._counters.rx_bad_length += 1
                return
        self._counters.rx_other += 1

    def _dispatch(
        self, now: int, port: int, qp: QueuePair, opcode: int, flags: int, word: int, view: memoryview, at: int, end: int
    ) -> None:
        """A sound packet of ``qp``'s peer."""
        counters = self._counters
        kind = KINDS[opcode]
        qp.rx_packets += 1
        if kind == 0:
            counters.rx_bad_opcode += 1
        elif kind == KIND_ACK:
            if end - at != 4:
                counters.rx_bad_length += 1
            elif qp.state == ERROR:
                counters.rx_qp_error += 1
            else:
                self._answered(now, qp, AETH.unpack_from(view, at)[0] >> 24, word & PSN_MASK)
        elif qp.state == ERROR:
            counters.rx_qp_error += 1
            self._refuse_in_error(now, qp, word & PSN_MASK)
        elif kind == KIND_UNSUPPORTED:
            counters.rx_bad_opcode += 1
            # an answer to what we never asked is dropped; a request that is not served here is refused when its turn comes
            if not 0x0D <= opcode <= 0x12 and (word & PSN_MASK) == qp.rx.expected:
                qp.rx.refuse(NAK_INVALID)
                self._fail_here(now, qp)
        else:
            before = counters.rx_payload_bytes
            act = qp.rx.request(kind, word & PSN_MASK, word & ACK_REQUEST != 0, view, at, end, flags >> 4 & 3)
            self._payload_rx[port] += counters.rx_payload_bytes - before
            if act != NOTHING:
                self._answer(qp)
                if act == FATAL:
                    self._fail_here(now, qp)

    def _fail_here(self, now: int, qp: QueuePair) -> None:
        """We refused a request for good: our NAK still goes out, all else ends."""
        self._answer(qp)
        self._fail(now, qp, FLUSHED, f"refused a request of the peer ({_NAK_NAMES[qp.rx.fatal]})")

    def _refuse_in_error(self, now: int, qp: QueuePair, psn: int) -> None:
        """A request for a QP in ERROR. The specification drops it silently and counts on the peer's retry counter; ours may be
        endless, so the peer is told, with the NAK it may have lost or "operational", once per base RTT at most [D]."""
        if now - qp.refused_at < self._fabric.base_rtt_ns:
            return
        qp.refused_at = now
        rx = qp.rx
        if rx.fatal >= 0:
            rx.pending, rx.pending_psn = rx.fatal, rx.fatal_psn
        else:
            rx.pending, rx.pending_psn = NAK_OPERATION, psn
        self._answer(qp)

    def _answered(self, now: int, qp: QueuePair, syndrome: int, wire_psn: int) -> None:
        """An ACK or NAK. A NAK of packet p acknowledges all before p."""
        counters, tx = self._counters, qp.tx
        nak = syndrome & 0xE0 == 0x60
        psn = tx.locate(wire_psn)
        if psn < 0 or (nak and syndrome > NAK_OPERATION) or syndrome & 0xE0 not in (0x00, RNR, 0x60):
            counters.rx_stale_response += 1
            return
        if syndrome & 0xE0 == 0x00:
            counters.acks_rx += 1
            tx.acknowledge(now, psn)
        else:
            if syndrome == NAK_SEQUENCE and psn == tx.last_nak:
                counters.rx_stale_response += 1  # a copy: the responder sends one per gap
                return
            counters.naks_rx += 1
            if psn > tx.una:
                tx.acknowledge(now, psn - 1)
            if not nak:
                self._go_back(now, qp, "rnr")
                tx.hold_until = now + RNR_TIMER_US[syndrome & 0x1F] * 1000
            elif syndrome == NAK_SEQUENCE:
                tx.last_nak = psn
                self._go_back(now, qp, "nak")
            else:
                self._fail(now, qp, _NAK_STATUS[syndrome], f"the peer answered {_NAK_NAMES[syndrome]}")
                return
        self._arm(qp)
        self._schedule(qp)

    def _go_back(self, now: int, qp: QueuePair, rule: str) -> None:
        tx = qp.tx
        psn = tx.una & PSN_MASK
        if rule != "rnr":
            sent_ns = tx.sent_ns[tx.una & RING - 1]
            self._events.append((now, "loss", {"peer": qp.peer, "ev": qp.ev, "psn": psn, "rule": rule, "sent_ns": sent_ns}))
        count = tx.go_back(now)
        self._counters.go_backs += 1
        self._events.append((now, "rtx", {"peer": qp.peer, "ev": qp.ev, "psn": psn, "count": count}))

    # --- time ------------------------------------------------------------------------------------------------

    def timer(self, now: int) -> None:
        if now < self._timer_at:
            return
        self._timer_at = NEVER
        for qp in self._qps.values():
            tx = qp.tx
            if tx.hold_until != -NEVER and now >= tx.hold_until:
                tx.hold_until = -NEVER
                self._schedule(qp)
            if now >= tx.rto_at:
                self._rto(now, qp)
            self._arm(qp)

    def _rto(self, now: int, qp: QueuePair) -> None:
        tx = qp.tx
        tx.firing += 1
        self._counters.rtos += 1
        self._events.append((now, "rto", {"peer": qp.peer, "psn": tx.una & PSN_MASK, "firing": tx.firing}))
        if 0 <= self._options.retry_count < tx.firing:
            self._fail(now, qp, RETRY_EXCEEDED, "retries exhausted")
            return
        self._go_back(now, qp, "rto")
        self._schedule(qp)

    # --- states and paths ------------------------------------------------------------------------------------

    def _enter(self, now: int, qp: QueuePair, state: int, cause: str) -> None:
        qp.state = state
        qp.cause = cause
        self._events.append((now, "qp", {"peer": qp.peer, "state": STATES[state], "cause": cause}))

    def _fail(self, now: int, qp: QueuePair, status: int, cause: str) -> None:
        """To ERROR: the oldest request ends with ``status``, all others and the receive queue are flushed, in order."""
        qp.tx.flush(status)
        while qp.rx.receives:
            self._completions.append(Completion(qp.qpn, qp.rx.receives.popleft(), RECEIVE, FLUSHED, -1, 0))
        self._enter(now, qp, ERROR, cause)

    def _route(self, qp: QueuePair) -> int:
        """Give ``qp`` the path its flow hashes to; returns the EV it had. Without a living path it keeps the old one."""
        old = qp.ev
        evs = list(path_evs(self._fabric, self._host, qp.peer))
        living = flow_hash.living_paths(self._fabric, self._host, qp.peer, evs, self._dead_links)
        qp.dead = not living
        if living:
            value = flow_hash.choose(qp.flow, living)
            qp.take_path(value, ev_fields(value)[0], path_address(self._fabric, self._host, qp.peer, value))
        return old

    def port_state(self, now: int, port: int, up: bool) -> None:
        """Only remembered: a flow does not leave its port until the network re-routes it."""
        if 0 <= port < len(self._up):
            self._up[port] = up

    def reroute(self, now: int, dead_links: list[str]) -> None:
        """``dead_links`` are all that are dead now. Every flow is hashed over what lives."""
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
            self._events.append((now, "reroute", {"peer": qp.peer, "ev": qp.ev, "old": old, "last_data_ns": qp.last_data_ns}))

    # --- reports ---------------------------------------------------------------------------------------------

    def completions(self) -> list[Completion]:
        done = self._completions[:]
        self._completions.clear()  # shared with the queue pairs
        return done

    def events(self) -> list[Event]:
        seen = self._events
        self._events = []
        return seen

    def goodput(self) -> tuple[list[int], list[int]]:
        return self._payload_tx[:], self._payload_rx[:]

    def counters(self) -> dict[str, int]:
        return self._counters.as_dict()

    def paths(self) -> list[dict[str, Any]]:
        """One row per queue pair: it has one path. ``dead``: its port is down here, or the network knows of no way."""
        rows: list[dict[str, Any]] = []
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
                    "last_data_ns": qp.last_data_ns,
                }
            )
        return rows


_NAK_NAMES: Final = {NAK_INVALID: "invalid request", NAK_ACCESS: "remote access error", NAK_OPERATION: "remote operational error"}
_NAK_STATUS: Final = {NAK_INVALID: REMOTE_INVALID, NAK_ACCESS: REMOTE_ACCESS, NAK_OPERATION: REMOTE_OPERATION}
