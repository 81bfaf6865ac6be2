"""Checks and counts what arrives at an endpoint, and hands it to its QP. Sans-IO.

Nothing is used before the iCRC is verified. No frame raises, and one that failed a check touches no
memory.
"""

from __future__ import annotations

from typing import Any, Final

from librt.strings import read_i16_be, read_i64_be
from librt.vecs import vec
from mypy_extensions import i64

from agents.mrc import wire
from agents.mrc.config import NACKED, Config
from agents.mrc.departures import Departures
from agents.mrc.neighbours import Neighbour, Neighbours
from agents.mrc.packet import WritePacket
from agents.mrc.queue_pair import ERROR, RTS, QueuePair
from agents.mrc.receiver.responder import BEYOND, DUPLICATE, NEW, REFUSED
from agents.mrc.sender import resend
from agents.packets import dscp, headers
from agents.packets.headers import u16, u32
from agents.transport import PEER_UNKNOWN, REMOTE_ACCESS, REMOTE_INVALID, REMOTE_OPERATION
from topologies.addressing import inner_address
from topologies.clos import Fabric

_NET_HIGH: Final[i64] = int.from_bytes(inner_address(0)[:8], "big", signed=True)
_NET_LOW: Final[i64] = int.from_bytes(inner_address(0)[8:14], "big")
"""What all inner addresses have in common."""
_LONGEST: Final = wire.AFTER_BTH + max(wire.EXT_LENGTH.values())
_SHORTEST: Final = wire.AFTER_BTH + 4 + headers.ICRC
_STATUS: Final = {
    wire.SYNDROME_INVALID: REMOTE_INVALID,
    wire.SYNDROME_ACCESS: REMOTE_ACCESS,
    wire.SYNDROME_OPERATION: REMOTE_OPERATION,
}
PROBE_BYTES: Final = wire.EXT_LENGTH[wire.PROBE] + 12 + 8 + headers.ICRC + 40
_MAX_OWED: Final = 64


class Arrivals:
    def __init__(
        self,
        config: Config,
        fabric: Fabric,
        host: int,
        qps: dict[int, QueuePair],
        out: Departures,
        neighbours: Neighbours,
    ) -> None:
        self.config = config
        self.hosts = fabric.host_count
        self.me = host
        self.udp_port: i64 = fabric.udp_port
        self.qps = qps
        self.out = out
        self.neighbours = neighbours
        # the peer whose ports changed, according to the frame just read
        self.changed_peer: Neighbour | None = None
        self.met: QueuePair | None = None  # whose frame it is
        self.packet = WritePacket()
        self.icrc = headers.IcrcCheck()
        self.shift = config.ts_shift
        self.rx_packets = 0
        self.bad_length = 0
        self.foreign = 0
        self.bad_icrc = 0
        self.bad_opcode = 0
        self.bad_qp = 0
        self.bad_ev = 0
        self.refused = 0
        self.beyond = 0
        self.duplicate = 0
        self.unexpected = 0
        self.bad_nacks = 0
        self.too_many = 0
        self.unsupported = 0
        self.data_rx = 0
        self.marked_rx = 0
        self.trimmed_rx = 0
        self.sacks_rx = 0
        self.acks_rx = 0
        self.nacks_rx = 0
        self.probes_rx = 0
        self.payload_rx = vec[i64]([0] * fabric.planes)

    def counters(self) -> dict[str, int]:
        return {
            "rx_packets": self.rx_packets,
            "data_rx": self.data_rx,
            "sacks_rx": self.sacks_rx,
            "acks_rx": self.acks_rx,
            "nacks_rx": self.nacks_rx,
            "probes_rx": self.probes_rx,
            "marked_rx": self.marked_rx,
            "trimmed_rx": self.trimmed_rx,
            "rx_duplicate": self.duplicate,
            "rx_beyond_window": self.beyond,
            "rx_unexpected": self.unexpected,
            "rx_bad_length": self.bad_length,
            "rx_foreign": self.foreign,
            "rx_bad_icrc": self.bad_icrc,
            "rx_bad_opcode": self.bad_opcode,
            "rx_bad_qp": self.bad_qp,
            "rx_bad_ev": self.bad_ev,
            "rx_refused": self.refused,
            "rx_too_many": self.too_many,
            "rx_unsupported": self.unsupported,
            "bad_nacks": self.bad_nacks,
        }

    def frame(self, now: int, port: int, buffer: Any, start: int, length: int) -> QueuePair | None:
        """Returns the frame's QP if that may have something to send now or has failed."""
        if length < _SHORTEST:
            self.rx_packets += 1
            self.bad_length += 1
            return None
        head = bytes(buffer[start : start + min(length, _LONGEST)])
        return self._frame(now, port, head, u16(head, 14), buffer, start, length, False)

    def intact(
        self, now: int, port: int, head: bytes, word: int, payload: memoryview | None, length: int
    ) -> QueuePair | None:
        """See :meth:`agents.transport.FrameIO.receive_intact`."""
        return self._frame(now, port, head, word, payload, 0, length, True)

    def _frame(
        self,
        now: int,
        port: int,
        head: bytes,
        word: int,
        buffer: Any,
        start: int,
        length: int,
        intact: bool,
    ) -> QueuePair | None:
        """``buffer``: the whole frame from ``start`` on; the payload alone, if ``intact``."""
        self.rx_packets += 1
        # From here on by place: outer header from 14, inner one from 54, UDP from 94, BTH from 102,
        # extension headers from 114.
        iword = u32(head, 54)
        if (
            u16(head, 12) != 0x86DD
            or head[20] != 41
            or head[60] != 17
            or word >> 12 != 6
            or iword >> 28 != 6
        ):
            self.foreign += 1
            return None
        src, dst = u16(head, 76), u16(head, 92)
        if (
            u16(head, 96) != self.udp_port or dst != self.me + 1 or not 0 < src <= self.hosts
            or read_i64_be(head, 62) != _NET_HIGH or u32(head, 70) << 16 | u16(head, 74) != _NET_LOW
            or read_i64_be(head, 78) != _NET_HIGH or u32(head, 86) << 16 | u16(head, 90) != _NET_LOW
        ):  # fmt: skip
            self.foreign += 1
            return None
        olen, ilen, ulen = u16(head, 18), u16(head, 58), u16(head, 98)
        klass = word >> 6 & 0x3F
        trimmed = klass == dscp.TRIMMED or klass == dscp.TRIMMED_LASTHOP
        if (
            olen != length - 54
            or ulen != ilen
            or (ilen != olen - 40 and not (trimmed and ilen > olen - 40))
        ):
            self.bad_length += 1
            return None
        ev = (iword & 0xFFFF) << 16 | u16(head, 94)
        if not intact and not trimmed and not self.icrc.good(head, buffer, start, length):
            self.bad_icrc += 1
            return None
        op, pword = i64(head[headers.BTH_AT]), u32(head, 110)
        qpn = u32(head, 106) & headers.PSN_MASK
        qp = self.qps.get(qpn)
        if qp is None or qp.peer != src - 1 or qp.state < RTS:
            if qpn == wire.ENDPOINT_QPN:
                valid_ev = ev if ev >> 16 == port else -1
                self._endpoint_operation(
                    now, head, length, -1 if trimmed else op, src - 1, valid_ev, pword
                )
            else:
                self.bad_qp += 1
            return None
        self.met = qp
        if qp.state == ERROR:
            self.unexpected += 1
            # it was connected: there is somebody to answer, and a way
            known = len(qp.responder.reverse.evs) > 0
            if (
                known
                and now - qp.unexpected_nack_ps > self.config.base_rtt
                and self._refuse(qp, op, head, length, pword, ev)
            ):
                qp.unexpected_nack_ps = now
                return qp
            return None
        if ev >> 16 != port or ev not in qp.requester.paths.by_ev:
            self.bad_ev += 1
            return None
        marked = trimmed or word >> 4 & 3 == 3
        if wire.WRITE_FIRST <= op <= wire.WRITE_ONLY_IMM:
            if length < wire.WRITE_HEADERS:
                self.bad_length += 1
                return None
            p = self.packet
            p.op = op
            p.psn = qp.responder.absolute(pword & headers.PSN_MASK)
            p.rtx = pword & wire.F_RTX != 0
            p.asks = pword & wire.F_ACKREQ != 0
            p.marked = marked
            p.ev = ev
            p.imm = -1
            p.rqmsn, p.msn, p.ts = u16(head, 114), u16(head, 116), u16(head, 118)
            p.va, p.rkey, p.dmalen = read_i64_be(head, 122), u32(head, 130), u32(head, 134)
            if trimmed:
                return self._trimmed(now, qp, p, klass == dscp.TRIMMED_LASTHOP)
            payload = (
                length - (head[headers.BTH_AT + 1] >> 4 & 3) - headers.ICRC - wire.WRITE_HEADERS
            )
            at = wire.WRITE_HEADERS
            if op == wire.WRITE_LAST_IMM or op == wire.WRITE_ONLY_IMM:
                payload -= 4
                at += 4
                if payload >= 0:
                    p.imm = u32(head, wire.WRITE_HEADERS)
            if payload < 0:
                self.bad_length += 1
                return None
            return self._write(now, qp, p, buffer, 0 if intact else start + at, payload)
        if op not in wire.EXT_LENGTH or (trimmed and op != wire.PROBE):
            self.bad_opcode += 1
            return None
        if length != wire.AFTER_BTH + wire.EXT_LENGTH[op] + headers.ICRC:
            self.bad_length += 1
            return None
        if op == wire.SACK:
            self.sacks_rx += 1
            return self._sack(now, qp, head, pword)
        if op == wire.ACK:
            return self._ack(now, qp, head[wire.AFTER_BTH], pword & headers.PSN_MASK)
        if op == wire.PROBE:
            if len(qp.answers) >= _MAX_OWED:
                self.too_many += 1
                return None
            self.probes_rx += 1
            _, pid, _, _, ts, _ = wire.S_PETH.unpack_from(head, wire.AFTER_BTH)
            qp.answers.append((ev, pid, ts, now, 1 if marked else 0))
            qp.responder.probed(now)
            return qp
        if op == wire.NACK:
            return self._nack(now, qp, head)
        self.unsupported += 1
        return None

    @staticmethod
    def _refuse(qp: QueuePair, op: int, head: bytes, length: int, pword: int, ev: int) -> bool:
        """Owe a NACK that names the packet by PSN (a probe by its id), EV and timestamp. Frames
        without such names get no answer [ours]."""
        if wire.WRITE_FIRST <= op <= wire.WRITE_ONLY_IMM and length >= wire.WRITE_HEADERS:
            qp.nacks.append((wire.UNEXP_EVENT, pword & headers.PSN_MASK, ev, u16(head, 118)))
        elif (
            op == wire.PROBE
            and length == wire.AFTER_BTH + wire.EXT_LENGTH[wire.PROBE] + headers.ICRC
        ):
            _, pid, _, _, ts, _ = wire.S_PETH.unpack_from(head, wire.AFTER_BTH)
            qp.nacks.append((wire.UNEXP_EVENT, pid, ev, ts))
        else:
            return False
        return True

    def _write(
        self, now: int, qp: QueuePair, p: WritePacket, buffer: Any, at: int, payload: int
    ) -> QueuePair | None:
        """``buffer``: with ``payload`` bytes of payload from ``at`` on."""
        d = qp.responder
        d.arrived(now, p.ev >> 16, p.ev)
        if not qp.watched:
            self.neighbours.receiving(now, qp)
        if p.marked:
            self.marked_rx += 1
        outcome = d.data(now, p, buffer, at, payload)
        if outcome == NEW:
            self.data_rx += 1
            self.payload_rx[p.ev >> 16] += payload
            qp.placed += payload
        elif outcome == DUPLICATE:
            self.duplicate += 1
        elif outcome == BEYOND:
            self.beyond += 1
            if len(qp.nacks) < _MAX_OWED and self.config.out_of_window == NACKED:
                qp.nacks.append((wire.PSN_OOR_WINDOW, p.psn, p.ev, p.ts))
        elif outcome == REFUSED:
            self.refused += 1
        return qp

    def _trimmed(self, now: int, qp: QueuePair, p: WritePacket, last_hop: bool) -> QueuePair | None:
        d = qp.responder
        d.arrived(now, p.ev >> 16, p.ev)
        self.trimmed_rx += 1
        if d.trimmed(now, p, last_hop):
            if len(qp.nacks) >= _MAX_OWED:
                self.too_many += 1
                return None
            qp.nacks.append((wire.TRIMMED_LASTHOP if last_hop else wire.TRIMMED, p.psn, p.ev, p.ts))
        return qp

    def _sack(self, now: int, qp: QueuePair, head: bytes, pword: int) -> QueuePair | None:
        w, offset, entropy, cack = (
            u16(head, 114),
            int(read_i16_be(head, 116)),
            u32(head, 118),
            u32(head, 126) & headers.PSN_MASK,
        )
        mpr, first, bitmap = (
            head[131],
            int(read_i16_be(head, 132)),
            int(u32(head, 134)) << 32 | int(u32(head, 138)),
        )
        ts, waiting, cc = u16(head, 142), u16(head, 144), u32(head, 146)
        r = qp.requester
        edge = r.sent.una + headers.psn_delta(cack, r.sent.una)
        fresh = r.on_sack(now, cack, first, bitmap, cc & headers.PSN_MASK, mpr)
        if fresh < 0:
            return None
        rtt = ((now >> self.shift) - ts & 0xFFFF) << self.shift
        path = r.paths.by_ev.get(entropy)
        m = w >> 5 & 3
        sample = -1
        if w >> 1 & 1:
            # an answer may take several SACKs and counts once
            probe = qp.probes.pop(offset & 0xFFFF, None)
            if probe is not None:
                path, seq, at, urgent = probe
                qp.health.answered(now, path.plane, at)
                r.probe_answered(
                    now,
                    path,
                    seq,
                    at,
                    r.rtt.as_full(rtt, PROBE_BYTES, r.full) if m == wire.M_NONE else -1,
                    urgent,
                )
        else:
            sample = r.sample(now, edge + offset, pword & wire.F_RTX != 0, rtt)
        if path is not None:
            qp.responder.reverse.confirmed(now, path.ev)
        pen = cc >> 24 & 0x7F
        r.congestion.on_sack(
            now, r.news, r.sent.in_flight, m == wire.M_SKIP_ONCE, sample, pen, cc >> 31 != 0
        )
        if path is not None:
            if m == wire.M_SKIP_ONCE:
                r.paths.marked(path)
            elif m == wire.M_NONE:
                r.paths.unmarked(now, path)
            elif m == wire.M_ALWAYS_SKIP:
                r.paths.lost(now, path, now, r.rtt.srtt, "always_skip")
                r.planes_changed()
        if fresh:
            r.loss.verdicts(r, now, edge + 1, edge + first, 64, bitmap, waiting & 0x7FFF)
        return qp

    def _endpoint_operation(
        self, now: int, head: bytes, length: int, op: int, src: int, ev: int, pword: int
    ) -> None:
        """Sets ``changed_peer`` if that peer's ports changed. ``op`` -1: a switch trimmed the
        frame. ``ev`` -1: it came by another plane than its EV names."""
        if op not in (wire.ENDPOINT_REQUEST, wire.ENDPOINT_RESPONSE):
            self.bad_opcode += 1
            return
        peer = self.neighbours.peers.get(src)
        if peer is None:
            self.bad_qp += 1
            return
        if length != wire.AFTER_BTH + wire.EXT_LENGTH[op] + headers.ICRC:
            self.bad_length += 1
            return
        if ev not in peer.ev_set:
            self.bad_ev += 1
            return
        number = pword & 0xFFFF
        if op == wire.ENDPOINT_RESPONSE:
            self.neighbours.response(peer, now, number)
            return
        word, mask, stamp, _ = wire.S_ERTH.unpack_from(head, wire.AFTER_BTH)
        if word & 3 != number >> 15:
            self.unsupported += 1  # an undefined operation, or an id of the other kind of operation
        elif self.neighbours.request(now, peer, ev, number, word & 3, mask, stamp):
            self.changed_peer = peer

    def _ack(self, now: int, qp: QueuePair, syndrome: int, psn: int) -> QueuePair | None:
        if syndrome == wire.SYNDROME_OK:
            self.acks_rx += 1
            qp.requester.on_ack(now, psn)
            return None
        if syndrome in _STATUS:
            self.acks_rx += 1
            if not qp.requester.may_end_at(psn):
                return None  # not from the peer: it would know how far it is
            qp.requester.on_ack(now, psn)  # what was complete before the failure is complete
            qp.cause = _STATUS[syndrome]
            return qp
        self.bad_opcode += 1
        return None

    def _nack(self, now: int, qp: QueuePair, head: bytes) -> QueuePair | None:
        _, reason, _, entropy, _, _, psn, _, _, ts = wire.S_NETH.unpack_from(head, wire.AFTER_BTH)
        if reason == wire.UNEXP_EVENT:
            self.nacks_rx += 1
            number = psn & headers.PSN_MASK
            if not resend.names_latest(
                qp.requester, number, entropy, ts, self.shift
            ) and not qp.asked(number, entropy, ts, self.shift):
                self.bad_nacks += 1
                return None  # not from the peer: it would name something that we sent
            qp.cause = PEER_UNKNOWN
            return qp
        if reason in (wire.TRIMMED, wire.TRIMMED_LASTHOP):
            self.nacks_rx += 1
            resend.trimmed(
                qp.requester,
                now,
                psn & headers.PSN_MASK,
                entropy,
                ts,
                self.shift,
                reason == wire.TRIMMED_LASTHOP,
            )
            return None
        if reason in (wire.PSN_OOR_WINDOW, wire.NO_BITMAP, wire.NO_PKT_BUFFER, wire.NO_RESOURCE):
            self.nacks_rx += 1
            resend.push_back(
                qp.requester,
                now,
                psn & headers.PSN_MASK,
                entropy,
                ts,
                self.shift,
                reason == wire.PSN_OOR_WINDOW,
            )
            return None
        self.unsupported += 1
        return None
