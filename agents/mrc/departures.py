"""Chooses what leaves an endpoint, and when: control first, then probes, then data, QPs taking
turns. Sans-IO.

Ports are paced here at line rate, give or take ``lookahead`` packets: a window in the host's own
queue would look like congestion in the network.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.framing import Framer
from agents.mrc.neighbours import Neighbours, request_fields, response_fields
from agents.mrc.packet import Echo, WritePacket
from agents.mrc.paths.ev_state import ASSUMED_BAD
from agents.mrc.queue_pair import PROBE_IDS, RTS, QueuePair
from agents.mrc.sender.requester import UNREADABLE
from agents.mrc.sender.sent_packets import SentPacket
from agents.packets import dscp, headers
from agents.transport import LONG_AGO, NEVER, REMOTE_ACCESS, REMOTE_INVALID, REMOTE_OPERATION
from topologies.units import BYTE

_BYTE: Final[i64] = BYTE
_FAILURE = {
    wire.SYNDROME_INVALID: REMOTE_INVALID,
    wire.SYNDROME_ACCESS: REMOTE_ACCESS,
    wire.SYNDROME_OPERATION: REMOTE_OPERATION,
}


class Departures:
    def __init__(self, config: Config, planes: int, neighbours: Neighbours) -> None:
        self.config = config
        self.neighbours = neighbours
        self.framer = Framer(config)
        self.control: list[QueuePair] = []
        self.free = vec[i64]([LONG_AGO] * planes)
        self.port_up = neighbours.port_up
        self.paced_rate: i64 = int(config.port_rate * config.pace)
        self.slack = (
            config.lookahead
            * (config.mtu + wire.WRITE_HEADERS + headers.ICRC)
            * BYTE
            // config.port_rate
        )
        self.turn = 0
        self.packet = WritePacket()
        self.payload: memoryview | None = None
        self.high = False
        self.wait = NEVER
        self.failed: QueuePair | None = None
        self.left: QueuePair | None = None  # whose frame it is; None: no queue pair's
        self.quiet = False  # no queue pair has data or a probe to send
        # whose next packet's memory could not be read: they have to fail
        self.unreadable: list[QueuePair] = []
        self.tx_packets = 0
        self.tx_refused = 0
        self.sacks_tx = 0
        self.acks_tx = 0
        self.nacks_tx = 0
        self.probes_tx = 0
        self.operations_tx = 0
        self.payload_tx = vec[i64]([0] * planes)
        self.first_tx = vec[i64]([0] * planes)  # data packets that left for the first time
        self.last_plane = -1  # of the latest of them
        self.repeats = 0  # those that left by the plane of the one before

    def last_in_turn(self, qps: list[QueuePair], qp: QueuePair) -> None:
        """Put an idle queue pair behind those that wait. In the order in which they were made, all
        hosts of an all-to-all would send to the same peer at once [ours]."""
        if len(qps) < 2:
            return
        at, turn = qps.index(qp), self.turn
        if at < turn:
            turn -= 1
        qps.insert(turn, qps.pop(at))
        self.turn = turn + 1 if turn + 1 < len(qps) else 0

    def forget(self, qps: list[QueuePair], qp: QueuePair) -> None:
        if qp in qps:
            at = qps.index(qp)
            qps.pop(at)
            if at < self.turn:
                self.turn -= 1
            if self.turn >= len(qps):
                self.turn = 0
        if qp.listed:
            self.control.remove(qp)
        self.payload = None

    def next(self, now: int, qps: list[QueuePair]) -> int:
        """Returns the frame's port, or -1 and sets ``wait`` to the time until which nothing may
        leave."""
        self.payload = None
        self.left = None
        if self.neighbours.queue:
            ev = self._endpoint_operation(now)
            if ev >= 0:
                return self._account(now, ev >> 16, True)
        while self.control:
            qp = self.control[0]
            ev = self._control(now, qp)
            if ev >= 0:
                self.left = qp
                return self._account(now, ev >> 16, True)
            self.control.pop(0)
            qp.listed = False
        self.wait = NEVER
        if self.quiet:
            return -1
        n = len(qps)
        quiet = True
        for k in range(n):
            at = self.turn + k
            if at >= n:
                at -= n
            qp = qps[at]
            if qp.state != RTS:
                continue
            if qp.to_probe:
                quiet = False
                ev = self._probe(now, qp)
                if ev >= 0:
                    self.left = qp
                    return self._account(now, ev >> 16, False)
            r = qp.requester
            if r.has_data():
                quiet = False
                packet = r.next_packet(now, self.free, self.slack)
                if packet is not None:
                    self.turn = at + 1 if at + 1 < n else 0
                    self.left = qp
                    ev = self._data(now, qp, packet)
                    return self._account(now, ev >> 16, packet.urgent)
                if r.wait == UNREADABLE:
                    self.unreadable.append(qp)
                elif r.wait < self.wait:
                    self.wait = r.wait
        self.quiet = quiet
        return -1

    def _account(self, now: int, port: int, high: bool) -> int:
        self.high = high
        self.tx_packets += 1
        size: i64 = len(self.framer.frame) + len(self.framer.trailer)
        if self.payload is not None:
            size += len(self.payload)
        begin: i64 = now
        if self.free[port] > begin:
            begin = self.free[port]
        self.free[port] = begin + size * _BYTE // self.paced_rate
        return port

    def _data(self, now: int, qp: QueuePair, packet: SentPacket) -> int:
        m = packet.message
        k = packet.psn - m.first
        at = k * self.config.mtu
        end = at + self.config.mtu
        imm = -1
        if end >= m.length:
            end = m.length
            imm = m.imm
            if k == 0:
                op = wire.WRITE_ONLY_IMM if imm >= 0 else wire.WRITE_ONLY
            else:
                op = wire.WRITE_LAST_IMM if imm >= 0 else wire.WRITE_LAST
        else:
            op = wire.WRITE_MIDDLE if k else wire.WRITE_FIRST
        payload = m.take()
        ev = packet.path.ev
        again = packet.count > 1
        p = self.packet
        p.op, p.psn, p.rtx, p.asks, p.ev, p.imm = (
            op,
            packet.psn,
            again,
            not qp.requester.has_data(),
            ev,
            imm,
        )
        p.rqmsn, p.msn, p.va, p.rkey, p.dmalen = m.rqmsn, m.msn, m.va + at, m.rkey, m.length
        self.framer.write(now, qp.route, qp.remote_qpn, p, payload)
        self.payload = payload if end > at else None
        if not again:
            self.payload_tx[ev >> 16] += end - at
            self.first_tx[ev >> 16] += 1
            if ev >> 16 == self.last_plane:
                self.repeats += 1
            self.last_plane = ev >> 16
        return ev

    def _probe(self, now: int, qp: QueuePair) -> int:
        path = qp.to_probe.pop(0)
        while not self.port_up[path.plane]:
            if not qp.to_probe:
                return -1
            path = qp.to_probe.pop(0)
        pid = qp.next_probe_id
        qp.next_probe_id = pid + 1 if pid < PROBE_IDS else 1
        if len(qp.probes) > 256:
            del qp.probes[next(iter(qp.probes))]
        # The data's class, or that of retransmissions if such a packet waits longest: its FIFO is
        # what gives a probe meaning.
        urgent = path.urgent_first()
        klass = self.framer.again_class if urgent else self.framer.data_class
        qp.probes[pid] = (path, qp.requester.sent.probe_sent(), now, urgent)
        ext = wire.S_PETH.pack(
            0, pid, qp.qpn & 0xFFFF, qp.remote_qpn & 0xFFFF, self.framer.stamp(now), wire.FTYPE
        )
        self.framer.bare(qp.route, path.ev, klass, wire.PROBE, qp.remote_qpn, 0, ext)
        self.probes_tx += 1
        return path.ev

    def _endpoint_operation(self, now: int) -> int:
        o = self.neighbours.take()
        if o is None:
            return -1
        if o.request:
            op, ext = wire.ENDPOINT_REQUEST, request_fields(o, self.framer.stamp(now))
        else:
            op, ext = (
                wire.ENDPOINT_RESPONSE,
                response_fields(o, o.stamp + (now - o.at >> self.framer.shift) & 0xFFFF),
            )
        self.framer.bare(o.route, o.ev, dscp.CONTROL, op, wire.ENDPOINT_QPN, o.number, ext)
        self.operations_tx += 1
        return o.ev

    def _reverse(self, qp: QueuePair) -> int:
        paths = qp.requester.paths
        fallback = -1
        for _ in range(len(self.port_up)):
            ev = qp.responder.reverse.next()
            plane = ev >> 16
            if not self.port_up[plane]:
                continue
            if qp.health.peer_up[plane]:
                if paths.by_ev[ev].state < ASSUMED_BAD:
                    return ev
                if paths.active[plane]:
                    return paths.active[plane][0].ev
            if fallback < 0:
                fallback = ev
        if fallback >= 0:
            return fallback
        return next(
            (ev for ev in qp.responder.reverse.evs if self.port_up[ev >> 16]),
            qp.responder.reverse.evs[0],
        )

    def _control(self, now: int, qp: QueuePair) -> int:
        d = qp.responder
        if d.nak:
            syndrome = d.nak
            d.nak = 0
            qp.cause = _FAILURE[syndrome]
            self.failed = qp
            return self._ack(qp, d.last_done, syndrome)
        if qp.answers:
            ev, pid, ts, at, marked = qp.answers[0]
            if not qp.answer_bases:
                qp.answer_bases = d.complete_bases()
            # the edge may have moved since the list was made
            base = max(qp.answer_bases.pop(0), d.expected)
            if not qp.answer_bases:
                qp.answers.pop(0)
            delay = now - at >> self.framer.shift
            return self._sack(
                now,
                qp,
                ev,
                base,
                Echo(pid, True, ev, ts + delay, wire.M_SKIP_ONCE if marked else wire.M_NONE, False),
            )
        if qp.nacks:
            reason, psn, ev, ts = qp.nacks.pop(0)
            psn &= headers.PSN_MASK
            ext = wire.S_NETH.pack(
                0,
                reason,
                0,
                ev,
                qp.qpn & 0xFFFF,
                qp.remote_qpn & 0xFFFF,
                psn,
                wire.CC_NACK << 4,
                0,
                ts,
            )
            back = self._reverse(qp)
            self.framer.bare(qp.route, back, dscp.CONTROL, wire.NACK, qp.remote_qpn, psn, ext)
            self.nacks_tx += 1
            return back
        if d.sack_due:
            echo = d.echo(now, self.framer.shift)
            back = self._reverse(qp)
            self._sack(now, qp, back, d.bitmap_base(), echo)
            d.sack_built()
            return back
        if d.ack_due:
            d.ack_due = False
            return self._ack(qp, d.last_done, wire.SYNDROME_OK)
        return -1

    def _ack(self, qp: QueuePair, psn: int, syndrome: int) -> int:
        ev = self._reverse(qp)
        ext = wire.S_AETH.pack(syndrome << 24 | qp.responder.msn & headers.PSN_MASK)
        self.framer.bare(
            qp.route, ev, dscp.CONTROL, wire.ACK, qp.remote_qpn, psn & headers.PSN_MASK, ext
        )
        self.acks_tx += 1
        return ev

    def _sack(self, now: int, qp: QueuePair, back: int, base: int, echo: Echo) -> int:
        d = qp.responder
        cack = d.expected - 1
        offset = echo.offset if -32768 <= echo.offset <= 32767 else 0
        ext = wire.sack(
            wire.seth_word(echo.m, echo.probe) << 16 | offset & 0xFFFF,
            echo.ev,
            (qp.qpn & 0xFFFF) << 16 | qp.remote_qpn & 0xFFFF,
            cack & headers.PSN_MASK,
            (d.window(now) >> 7) << 16 | base - cack & 0xFFFF,
            d.bitmap(base),
            (echo.ts & 0xFFFF) << 16 | min(d.out_of_order(), 0x7FFF),
            d.window_advice(now) << 24 | d.inflow.bytes >> 8 & headers.PSN_MASK,
        )
        word = cack & headers.PSN_MASK
        if echo.rtx:
            word |= wire.F_RTX
        self.framer.bare(qp.route, back, dscp.CONTROL, wire.SACK, qp.remote_qpn, word, ext)
        self.sacks_tx += 1
        return back

    def counters(self) -> dict[str, int]:
        return {
            "tx_packets": self.tx_packets,
            "tx_refused": self.tx_refused,
            "sacks_tx": self.sacks_tx,
            "acks_tx": self.acks_tx,
            "nacks_tx": self.nacks_tx,
            "probes_tx": self.probes_tx,
            "endpoint_operations_tx": self.operations_tx,
        }
