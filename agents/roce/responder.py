"""The receiving half of a queue pair: places WRITEs in order, acknowledges, refuses.

All but iCRC, addresses and QP is checked here, before a byte of memory is touched. Only the newest
answer is pending: so ACKs coalesce. A PSN older than the expected one is a duplicate and
acknowledged again; a newer one is dropped. The first of a gap is answered by one NAK, after which
the responder is silent until the expected PSN comes (InfiniBand specification volume 1, section
9.7.5).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from agents.packets.headers import PSN_MASK
from agents.packets.memory import Memory
from agents.roce.counters import Counters
from agents.roce.wire import (
    ACK,
    IMM,
    KIND_END,
    KIND_IMM,
    KIND_START,
    NAK_ACCESS,
    NAK_INVALID,
    NAK_SEQUENCE,
    PSN_HALF,
    RETH,
    RETH_BYTES,
    RNR,
)
from agents.transport import OK, RECEIVE, Completion

NOTHING: Final = 0
ANSWER: Final = 1
FATAL: Final = 2
MAX_MESSAGE: Final = 1 << 31
"""The largest message of the InfiniBand specification, bytes."""


class Responder:
    """``mtu``: path MTU in payload bytes."""

    def __init__(
        self,
        qpn: int,
        mtu: int,
        rnr_code: int,
        memory: Memory,
        counters: Counters,
        completions: list[Completion],
    ) -> None:
        self.qpn: int = qpn
        self.mtu: int = mtu
        self.rnr_code: int = rnr_code
        self.memory: Memory = memory
        self.counters: Counters = counters
        self.completions: list[Completion] = completions
        self.expected: int = 0
        self.msn: int = 0
        self.placed: int = 0  # payload bytes
        self.pending: int = -1  # AETH syndrome of the answer that waits, or -1
        self.pending_psn: int = 0
        self.nak_sent: bool = False  # for the gap, or the receiver-not-ready, at `expected`
        self.fatal: int = -1  # syndrome that ended the QP here
        self.fatal_psn: int = 0
        self.receives: deque[int] = deque()
        self._arriving: bool = False  # between a message's first packet and its last
        self._rkey: int = 0
        self._va: int = 0
        self._remaining: int = 0
        self._length: int = 0

    def request(
        self,
        kind: int,
        psn: int,
        ack_requested: bool,
        view: memoryview,
        at: int,
        end: int,
        pad: int,
    ) -> int:
        """``view[at:end]``: extension headers, payload and ``pad`` bytes. Returns NOTHING, ANSWER
        or FATAL."""
        gap = (psn - self.expected) & PSN_MASK
        if gap:
            if gap >= PSN_HALF:
                self.counters.rx_duplicate += 1
                return self._acknowledge()
            self.counters.rx_out_of_order_dropped += 1
            if self.nak_sent:
                return NOTHING
            self.nak_sent = True
            self.pending, self.pending_psn = NAK_SEQUENCE, self.expected
            return ANSWER

        first = kind & KIND_START != 0
        last = kind & KIND_END != 0
        imm = -1
        payload_at = at + (RETH_BYTES if first else 0) + (4 if kind & KIND_IMM else 0)
        size = end - pad - payload_at
        if size < 0 or first == self._arriving:
            return self._reject(NAK_INVALID)
        rkey, va, remaining, length = self._rkey, self._va, self._remaining, self._length
        if first:
            va, rkey, length = RETH.unpack_from(view, at)
            remaining = length
            if length > MAX_MESSAGE:
                return self._reject(NAK_INVALID)
        # all that is still to come, so that nothing of a message which cannot fit is placed
        if not self.memory.allowed(rkey, va, remaining):
            return self._reject(NAK_ACCESS)
        # a packet that is not its message's last is full, and something must be left for the last
        if (
            (size != remaining or size > self.mtu or (not first and size == 0))
            if last
            else (size != self.mtu or size >= remaining)
        ):
            return self._reject(NAK_INVALID)
        if kind & KIND_IMM:
            if not self.receives:
                self.counters.rx_receiver_not_ready += 1
                self.nak_sent = True
                self.pending, self.pending_psn = RNR | self.rnr_code, psn
                return ANSWER
            imm = IMM.unpack_from(view, payload_at - 4)[0]

        if size and not self.memory.place(rkey, va, view, payload_at, size):
            return self._reject(NAK_ACCESS)
        self.counters.data_rx += 1
        self.counters.rx_payload_bytes += size
        self.placed += size
        self.expected = (psn + 1) & PSN_MASK
        if last:
            self._arriving = False
            self.msn = (self.msn + 1) & PSN_MASK
            if imm >= 0:
                self.completions.append(
                    Completion(self.qpn, self.receives.popleft(), RECEIVE, OK, imm, length)
                )
        else:
            self._arriving = True
            self._rkey = rkey
            self._va = va + size
            self._remaining = remaining - size
            self._length = length
        if self.nak_sent:
            self.nak_sent = False
            if self.pending >= 0:  # a NAK that did not leave before it was stale
                return self._acknowledge()
        return self._acknowledge() if ack_requested else NOTHING

    def _acknowledge(self) -> int:
        # else a NAK waits, which acknowledges all before it, too
        if self.pending < 0 or not self.nak_sent:
            self.pending = ACK
        return ANSWER

    def _reject(self, syndrome: int) -> int:
        if syndrome == NAK_ACCESS:
            self.counters.rx_bad_rkey += 1
        else:
            self.counters.rx_bad_request += 1
        return self.refuse(syndrome)

    def refuse(self, syndrome: int) -> int:
        """The caller sees to the queue pair's requests."""
        self.fatal, self.fatal_psn = syndrome, self.expected
        self.pending, self.pending_psn = syndrome, self.expected
        return FATAL

    def answers_wait(self) -> bool:
        return self.pending >= 0

    def take_sack(self, syndrome: int) -> int:
        """Return the PSN placed out of order, or -1."""
        return -1

    def take_answer(self) -> tuple[int, int]:
        """Take (AETH syndrome, PSN)."""
        syndrome = self.pending
        self.pending = -1
        if syndrome == ACK:
            return ACK, (self.expected - 1) & PSN_MASK
        return syndrome, self.pending_psn
