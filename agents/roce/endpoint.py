"""One host's RoCE engine. It never raises on what arrives, and never touches memory outside a
registered region."""

from __future__ import annotations

from typing import Any, Final

from agents.packets.dscp import CE
from agents.packets.headers import PSN_MASK, crc32, icrc_of, psn_delta
from agents.roce.queue_pair import ERROR, QueuePair
from agents.roce.queue_pairs import QueuePairs
from agents.roce.requester import RING
from agents.roce.responder import FATAL, NOTHING
from agents.roce.selective import SelectiveRequester
from agents.roce.wire import (
    ACK_REQUEST,
    AETH,
    BODY_AT,
    BTH_AT,
    CNP_RESERVED,
    ECN_AT,
    FLAGS_AT,
    HEADERS,
    HEADERS_AT,
    ICRC,
    ICRC_BYTES,
    INNER_AT,
    KIND_ACK,
    KIND_CNP,
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
    SACKED,
)
from agents.transport import (
    FLUSHED,
    NEVER,
    REMOTE_ACCESS,
    REMOTE_INVALID,
    REMOTE_OPERATION,
    RETRY_EXCEEDED,
)
from topologies.units import US

_UDP_PORT_END: Final = BTH_AT  # a shorter frame does not contain its UDP port


class Endpoint(QueuePairs):
    """Raises ValueError on an option that is unknown or out of range."""

    # --- frames in --------------------------------------------------------------------------------

    def receive(self, now: int, port: int, buffer: Any, start: int, length: int) -> None:
        counters = self._counters
        if length < MIN_FRAME:
            self._runt(buffer, start, length)
            return
        (
            ethertype, outer_bytes, next_header, version, inner_bytes, protocol, src, dst,
            sport, dport, udp_bytes, opcode, flags, pkey, dqpn, word,
        ) = HEADERS.unpack_from(buffer, start + HEADERS_AT)  # fmt: skip
        if (
            ethertype != 0x86DD
            or next_header != 41
            or version >> 4 != 6
            or protocol != 17
            or dport != self._fabric.udp_port
        ):
            counters.rx_other += 1
            return
        counters.rx_packets += 1
        end = start + INNER_AT + outer_bytes - ICRC_BYTES
        if (
            outer_bytes > length - INNER_AT
            or inner_bytes + 40 != outer_bytes
            or udp_bytes != inner_bytes
            or end < start + BODY_AT
        ):
            counters.rx_bad_length += 1
            return
        view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
        qp = self._qps.get(dqpn & PSN_MASK)
        if (
            qp is not None
            and src == qp.peer_address
            and dst == self._address
            and sport == qp.remote_sport
        ):
            masked = bytes(view[start + BTH_AT : start + BTH_AT + 4]) + b"\xff"
            crc = crc32(
                view[start + BTH_AT + 5 : end], crc32(masked, qp.seed_from_peer(udp_bytes - 8))
            )
        else:
            crc = icrc_of(view, start, INNER_AT + outer_bytes)
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
        elif not qp.remote_sport:
            counters.rx_not_connected += 1
        else:
            self._dispatch(now, port, qp, opcode, word, view, start + BODY_AT, end)

    def _runt(self, buffer: Any, start: int, length: int) -> None:
        if length >= _UDP_PORT_END:
            frame = bytes(memoryview(buffer)[start : start + _UDP_PORT_END])
            port = frame[96] << 8 | frame[97]
            if (
                frame[12:14] == b"\x86\xdd"
                and frame[20] == 41
                and frame[60] == 17
                and port == self._fabric.udp_port
            ):
                self._counters.rx_packets += 1
                self._counters.rx_bad_length += 1
                return
        self._counters.rx_other += 1

    def _dispatch(
        self,
        now: int,
        port: int,
        qp: QueuePair,
        opcode: int,
        word: int,
        view: memoryview,
        at: int,
        end: int,
    ) -> None:
        counters = self._counters
        kind = KINDS[opcode]
        qp.rx_packets += 1
        if kind == 0:
            counters.rx_bad_opcode += 1
        elif kind == KIND_CNP:
            if end - at != CNP_RESERVED:
                counters.rx_bad_length += 1
            elif qp.state == ERROR:
                counters.rx_qp_error += 1
            else:
                counters.cnps_rx += 1
                qp.tx.congestion.on_cnp(now)
                self._repaced(now, qp)
        elif kind == KIND_ACK:
            early = end - at == 8 and isinstance(qp.tx, SelectiveRequester)
            if end - at != 4 and not early:
                counters.rx_bad_length += 1
            elif qp.state == ERROR:
                counters.rx_qp_error += 1
            elif early:
                self._placed_early(
                    now, qp, word & PSN_MASK, SACKED.unpack_from(view, at + 4)[0] & PSN_MASK
                )
            else:
                self._answered(now, qp, AETH.unpack_from(view, at)[0] >> 24, word & PSN_MASK)
        elif qp.state == ERROR:
            counters.rx_qp_error += 1
            self._refuse_in_error(now, qp, word & PSN_MASK)
        elif kind == KIND_UNSUPPORTED:
            counters.rx_bad_opcode += 1
            # an answer without a request of ours is dropped; an unsupported request is refused when
            # its turn comes
            if not 0x0D <= opcode <= 0x12 and (word & PSN_MASK) == qp.rx.expected:
                qp.rx.refuse(NAK_INVALID)
                self._fail_here(now, qp)
        else:
            if view[at - BODY_AT + ECN_AT] >> 4 & CE == CE:
                counters.marked_rx += 1
                if qp.notification.on_mark(now):
                    qp.cnp_due = True
                    self._answer(qp)
            before = counters.rx_payload_bytes
            pad = view[at - BODY_AT + FLAGS_AT] >> 4 & 3
            act = qp.rx.request(kind, word & PSN_MASK, word & ACK_REQUEST != 0, view, at, end, pad)
            self._payload_rx[port] += counters.rx_payload_bytes - before
            if act != NOTHING:
                self._answer(qp)
                if act == FATAL:
                    self._fail_here(now, qp)

    def _fail_here(self, now: int, qp: QueuePair) -> None:
        self._answer(qp)
        self._fail(now, qp, FLUSHED, f"refused a request of the peer ({_NAK_NAMES[qp.rx.fatal]})")

    def _refuse_in_error(self, now: int, qp: QueuePair, psn: int) -> None:
        """The specification drops a request for a QP in ERROR and counts on the peer's retries.
        Ours may be endless, so the peer gets a NAK, at most once per base RTT [ours]."""
        if now - qp.refused_at < self._fabric.base_rtt_ps:
            return
        qp.refused_at = now
        rx = qp.rx
        if rx.fatal >= 0:
            rx.pending, rx.pending_psn = rx.fatal, rx.fatal_psn
        else:
            rx.pending, rx.pending_psn = NAK_OPERATION, psn
        self._answer(qp)

    def _answered(self, now: int, qp: QueuePair, syndrome: int, wire_psn: int) -> None:
        """A NAK of packet p acknowledges all before p."""
        counters, tx = self._counters, qp.tx
        nak = syndrome & 0xE0 == 0x60
        psn = tx.locate(wire_psn)
        if (
            psn < 0
            or (nak and syndrome > NAK_OPERATION)
            or syndrome & 0xE0 not in (0x00, RNR, 0x60)
        ):
            counters.rx_stale_response += 1
            return
        if syndrome & 0xE0 == 0x00:
            counters.acks_rx += 1
            tx.acknowledge(now, psn)
            if isinstance(tx, SelectiveRequester):
                self._resend(now, qp, tx)
        else:
            if syndrome == NAK_SEQUENCE and psn == tx.last_nak:
                counters.rx_stale_response += 1  # a copy: the responder sends one per gap
                return
            counters.naks_rx += 1
            if psn > tx.una:
                tx.acknowledge(now, psn - 1)
            if not nak:
                self._go_back(now, qp, "rnr")
                tx.hold_until = now + RNR_TIMER_US[syndrome & 0x1F] * US
            elif syndrome == NAK_SEQUENCE:
                tx.last_nak = psn
                self._go_back(now, qp, "nak")
            else:
                self._fail(
                    now, qp, _NAK_STATUS[syndrome], f"the peer answered {_NAK_NAMES[syndrome]}"
                )
                return
        self._arm(qp)
        self._schedule(qp)

    def _placed_early(self, now: int, qp: QueuePair, expected: int, placed: int) -> None:
        """Take a NAK of selective repeat: all before ``expected`` has arrived, and ``placed``."""
        tx = qp.tx
        first, early = tx.una + psn_delta(expected, tx.una), tx.una + psn_delta(placed, tx.una)
        if (
            not isinstance(tx, SelectiveRequester)
            or not tx.una <= first <= tx.nxt
            or early >= tx.nxt
        ):
            self._counters.rx_stale_response += 1
            return
        self._counters.naks_rx += 1
        if first > tx.una:
            tx.acknowledge(now, first - 1)
        tx.arrived(now, early)
        self._resend(now, qp, tx)
        self._arm(qp)
        self._schedule(qp)

    def _resend(self, now: int, qp: QueuePair, tx: SelectiveRequester) -> None:
        for psn in tx.find_lost():
            sent_ps = tx.sent_ps[psn & RING - 1]
            self._events.append(
                (
                    now,
                    "loss",
                    {
                        "peer": qp.peer,
                        "ev": qp.ev,
                        "psn": psn & PSN_MASK,
                        "rule": "later",
                        "sent_ps": sent_ps,
                    },
                )
            )

    def _go_back(self, now: int, qp: QueuePair, rule: str) -> None:
        tx = qp.tx
        psn = tx.una & PSN_MASK
        if rule != "rnr":
            sent_ps = tx.sent_ps[tx.una & RING - 1]
            self._events.append(
                (
                    now,
                    "loss",
                    {"peer": qp.peer, "ev": qp.ev, "psn": psn, "rule": rule, "sent_ps": sent_ps},
                )
            )
        count = tx.go_back(now)
        self._counters.go_backs += 1
        self._events.append(
            (now, "rtx", {"peer": qp.peer, "ev": qp.ev, "psn": psn, "count": count})
        )

    # --- time -------------------------------------------------------------------------------------

    def timer(self, now: int) -> None:
        if now < self._timer_at:
            return
        self._timer_at = NEVER
        for qp in self._qps.values():
            tx = qp.tx
            if now >= tx.congestion.timer_at:
                tx.congestion.on_timer(now)
                self._repaced(now, qp)
            if now >= qp.wake_at:
                qp.wake_at = NEVER
                self._schedule(qp)
            if now >= tx.rto_at:
                self._rto(now, qp)
            self._arm(qp)

    def _repaced(self, now: int, qp: QueuePair) -> None:
        if qp.wake_at < NEVER:
            qp.wake_at = max(now, qp.tx.release_ps())
        self._arm(qp)

    def _rto(self, now: int, qp: QueuePair) -> None:
        tx = qp.tx
        tx.firing += 1
        if tx.firing == 1:
            tx.fired_ps = now
        self._counters.rtos += 1
        self._events.append(
            (now, "rto", {"peer": qp.peer, "psn": tx.una & PSN_MASK, "firing": tx.firing})
        )
        over = (
            now - tx.fired_ps + tx.rto_ps >= tx.patience_ps
            if tx.patience_ps
            else 0 <= self._options.retry_count < tx.firing
        )
        if over:
            self._fail(now, qp, RETRY_EXCEEDED, "retries exhausted")
            return
        self._go_back(now, qp, "rto")
        self._schedule(qp)


_NAK_NAMES: Final = {
    NAK_INVALID: "invalid request",
    NAK_ACCESS: "remote access error",
    NAK_OPERATION: "remote operational error",
}
_NAK_STATUS: Final = {
    NAK_INVALID: REMOTE_INVALID,
    NAK_ACCESS: REMOTE_ACCESS,
    NAK_OPERATION: REMOTE_OPERATION,
}
