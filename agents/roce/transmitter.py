"""Chooses what leaves a host, when, and on which port: frames built in one buffer, ports paced,
queue pairs taking turns.

One packet more is handed out ahead of its time, for timer slack. Answers do not wait for data, but
their time on the wire counts.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from agents.packets.dscp import CONTROL
from agents.packets.headers import PSN_MASK, crc32
from agents.packets.memory import read
from agents.roce.counters import Counters
from agents.roce.queue_pair import RTS, QueuePair
from agents.roce.wire import (
    ACK,
    ACK_FRAME,
    ACK_REQUEST,
    ACKNOWLEDGE,
    AETH,
    BECN,
    BODY_AT,
    BTH,
    BTH_AT,
    CNP,
    CNP_FRAME,
    CNP_RESERVED,
    DATA_DSCP,
    ICRC,
    ICRC_BYTES,
    IMM,
    MAX_HEADERS,
    PKEY,
    QPN_MASKED,
    RETH,
    SACK_FRAME,
    SACKED,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_MIDDLE,
    WRITE_ONLY,
)
from agents.transport import LOCAL_PROTECTION, LONG_AGO, NEVER, Engine
from topologies.clos import Fabric
from topologies.units import BYTE

_NO_BYTES: Final = b""
_RESERVED: Final = bytes(CNP_RESERVED)


class Transmitter(Engine):
    def __init__(self, fabric: Fabric, counters: Counters) -> None:
        super().__init__()
        self._frame = bytearray(MAX_HEADERS + ICRC_BYTES)
        self._tx_view: memoryview = memoryview(self._frame)
        self._counters: Counters = counters

        planes = fabric.planes
        self._rate: int = fabric.nic_rate
        self._ahead_ps: int = self._wire_ps(fabric.mtu + MAX_HEADERS + ICRC_BYTES)
        self._free_ps: list[int] = [LONG_AGO] * planes
        self._paused: list[bool] = [False] * planes  # by PFC: data waits, answers do not
        # and when that began, how long the port still had to send what it had
        self._owed_ps: list[int] = [0] * planes
        self._payload_tx: list[int] = [0] * planes  # sent for the first time, by plane
        self._ready: list[deque[QueuePair]] = [deque() for _ in range(planes)]
        self._turn: int = 0  # the port to look at first
        self._answers: deque[QueuePair] = deque()
        self._timer_at: int = NEVER  # no queue pair has anything due before this
        self._quiesced: bool = False

    def port_paused(self, now: int, port: int, paused: bool) -> None:
        free = self._free_ps[port]
        if paused and not self._paused[port]:
            self._owed_ps[port] = free - now if free > now else 0
        elif self._paused[port] and not paused and free < now + self._owed_ps[port]:
            # what it has, it had when it stopped: as much as ever, and no more
            self._free_ps[port] = now + self._owed_ps[port]
        self._paused[port] = paused

    def _fail(self, now: int, qp: QueuePair, status: int, cause: str) -> None:
        raise NotImplementedError

    def _answer(self, qp: QueuePair) -> None:
        if not qp.answering:
            qp.answering = True
            self._answers.append(qp)

    def _schedule(self, qp: QueuePair) -> None:
        if not qp.scheduled and not self._quiesced and qp.tx.may_send():
            qp.scheduled = True
            self._ready[qp.port].append(qp)

    def _arm(self, qp: QueuePair) -> None:
        if qp.state != RTS or self._quiesced:
            return
        tx = qp.tx
        due = tx.rto_at
        if qp.wake_at < due:
            due = qp.wake_at
        if tx.congestion.timer_at < due:
            due = tx.congestion.timer_at
        if due < self._timer_at:
            self._timer_at = due

    def deadline(self) -> int:
        due = self._timer_at
        for port, queue in enumerate(self._ready):
            if queue and not self._paused[port]:
                at = self._free_ps[port] - self._ahead_ps
                if at < due:
                    due = at
        for qp in self._answers:
            at = self._free_ps[qp.port] - 2 * self._ahead_ps
            if at < due:
                due = at
        return due

    def transmit(self, now: int) -> int:
        horizon = now + self._ahead_ps
        answers = self._answers
        for _ in range(len(answers)):
            qp = answers.popleft()
            # an answer overtakes data, but not without bound: a port's backlog of answers is at
            # most two packets' time
            if self._free_ps[qp.port] <= horizon + self._ahead_ps:
                qp.answering = False
                return self._build_answer(now, qp) if not qp.cnp_due else self._build_cnp(now, qp)
            answers.append(qp)
        planes = len(self._ready)
        for i in range(planes):
            port = (self._turn + i) % planes
            queue = self._ready[port]
            if self._free_ps[port] > horizon or self._paused[port]:
                continue
            while queue:
                qp = queue.popleft()
                qp.scheduled = False
                tx = qp.tx
                if not tx.may_send():
                    continue
                qp.wake_at = tx.release_ps()
                if qp.wake_at > now:  # its rate or its receiver holds it: the timer brings it back
                    self._arm(qp)
                    continue
                qp.wake_at = NEVER
                if not self._build_data(now, qp):
                    self._fail(now, qp, LOCAL_PROTECTION, "a request's memory cannot be read")
                    continue
                self._turn = port + 1
                self._arm(qp)
                self._schedule(qp)
                return port
        return -1

    def _build_answer(self, now: int, qp: QueuePair) -> int:
        syndrome, psn = qp.rx.take_answer()
        sack = qp.rx.take_sack(syndrome)
        length = ACK_FRAME if sack < 0 else SACK_FRAME
        frame = self._frame
        head, crc = qp.head(CONTROL, length - BTH_AT)
        frame[0:BTH_AT] = head
        BTH.pack_into(frame, BTH_AT, ACKNOWLEDGE, 0, PKEY, QPN_MASKED | qp.remote_qpn, psn)
        AETH.pack_into(frame, BODY_AT, syndrome << 24 | qp.rx.msn)
        if syndrome == ACK:
            self._counters.acks_tx += 1
        else:
            self._counters.naks_tx += 1
        if sack >= 0:
            SACKED.pack_into(frame, BODY_AT + 4, sack)
        if qp.rx.answers_wait():
            self._answer(qp)
        return self._finish_answer(now, qp, length, crc, 0)

    def _build_cnp(self, now: int, qp: QueuePair) -> int:
        qp.cnp_due = False
        frame = self._frame
        head, crc = qp.head(CONTROL, CNP_FRAME - BTH_AT)
        frame[0:BTH_AT] = head
        BTH.pack_into(frame, BTH_AT, CNP, 0, PKEY, QPN_MASKED | qp.remote_qpn, 0)
        frame[BODY_AT : BODY_AT + CNP_RESERVED] = _RESERVED
        self._counters.cnps_tx += 1
        if qp.rx.answers_wait():
            self._answer(qp)
        return self._finish_answer(now, qp, CNP_FRAME, crc, BECN)

    def _finish_answer(self, now: int, qp: QueuePair, length: int, crc: int, fifth: int) -> int:
        frame = self._frame
        at = length - ICRC_BYTES
        crc = crc32(self._tx_view[BTH_AT:at], crc)
        frame[BTH_AT + 4] = fifth
        ICRC.pack_into(frame, at, crc)
        self.tx_frame = bytes(self._tx_view[:length])
        self.tx_payload = None
        self.tx_trailer = _NO_BYTES
        self.tx_high = True
        self._occupy(now, qp.port, length)
        return qp.port

    def _build_data(self, now: int, qp: QueuePair) -> bool:
        """Returns False, with nothing changed, if the memory cannot be read."""
        tx = qp.tx
        work = tx.current()
        psn = tx.next_psn()
        mtu = tx.mtu
        frame = self._frame
        at = BODY_AT
        offset = (psn - work.first) * mtu
        size = work.length - offset
        last = psn == work.last
        if not last:
            size = mtu
        payload = read(work.memory, offset, offset + size)
        if payload is None:
            return False
        if psn == work.first or tx.full_reth:
            RETH.pack_into(frame, at, work.va + offset, work.rkey, work.length)
            at += 16
        if psn == work.first:
            opcode = WRITE_ONLY if last else WRITE_FIRST
        else:
            opcode = WRITE_LAST if last else WRITE_MIDDLE
        if last and work.imm >= 0:
            opcode += 1
            IMM.pack_into(frame, at, work.imm)
            at += 4
        pad = -size & 3
        bytes_all = at + size + pad + ICRC_BYTES
        head, crc = qp.head(DATA_DSCP, bytes_all - BTH_AT)
        frame[0:BTH_AT] = head
        word = psn & PSN_MASK
        if psn == tx.high:
            self._payload_tx[qp.port] += size
        if tx.advance(now, bytes_all):
            word |= ACK_REQUEST
        BTH.pack_into(frame, BTH_AT, opcode, pad << 4, PKEY, QPN_MASKED | qp.remote_qpn, word)
        crc = crc32(self._tx_view[BTH_AT:at], crc)
        frame[BTH_AT + 4] = 0
        if size:
            crc = crc32(payload, crc)
            if pad:
                padding = bytes(pad)
                self.tx_trailer = padding + ICRC.pack(crc32(padding, crc))
            else:
                self.tx_trailer = ICRC.pack(crc)
            self.tx_payload = payload
        else:
            ICRC.pack_into(frame, at, crc)
            at += ICRC_BYTES
            self.tx_payload = None
            self.tx_trailer = _NO_BYTES
        self.tx_frame = bytes(self._tx_view[:at])
        self.tx_high = False
        counters = self._counters
        counters.data_tx += 1
        counters.tx_payload_bytes += size
        qp.tx_packets += 1
        qp.last_data_ps = now
        self._occupy(now, qp.port, bytes_all)
        return True

    def _wire_ps(self, frame_bytes: int) -> int:
        return -(-frame_bytes * BYTE // self._rate)

    def _occupy(self, now: int, port: int, frame_bytes: int) -> None:
        free = self._free_ps[port]
        self._free_ps[port] = (free if free > now else now) + self._wire_ps(frame_bytes)

    def sent(self, now: int, port: int, ok: bool) -> None:
        if not ok:  # lost like any other packet: NAK or RTO will detect it
            self._counters.tx_refused += 1
