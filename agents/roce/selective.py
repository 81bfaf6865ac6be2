"""Both halves of a queue pair with selective repeat: packets are placed in any order, and only what
is lost is sent again.

It serves IRN (Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018) and direct
placement under adaptive routing, whose packets overtake each other all the time. As in IRN each
packet has a RETH of its own, and the window is a BDP. A packet out of order is answered by a NAK of
the expected PSN that also names the packet.

A packet is lost once one that left more than ``reorder_ps`` later has arrived (RACK, RFC 8985; IRN:
0). Only when nothing arrives any more does the timer send the oldest packet again.
"""

from __future__ import annotations

from typing import Final

from agents.packets.headers import PSN_MASK
from agents.packets.memory import Memory
from agents.roce.congestion import Congestion
from agents.roce.counters import Counters
from agents.roce.requester import RING, Requester, Work
from agents.roce.responder import ANSWER, MAX_MESSAGE, NOTHING, Responder
from agents.roce.wire import (
    IMM,
    KIND_END,
    KIND_IMM,
    NAK_ACCESS,
    NAK_INVALID,
    NAK_SEQUENCE,
    PSN_HALF,
    RETH,
    RETH_BYTES,
    RNR,
)
from agents.transport import LONG_AGO, NEVER, OK, RECEIVE, Completion

_SLOT: Final = RING - 1
_FLYING: Final = 0
_ARRIVED: Final = 1
_LOST: Final = 2


class SelectiveRequester(Requester):
    """``nxt`` never goes back. Lost packets wait in ``again`` and go before anything new."""

    def __init__(
        self,
        qpn: int,
        mtu: int,
        first_psn: int,
        rto_ps: int,
        ack_every: int,
        congestion: Congestion,
        counters: Counters,
        completions: list[Completion],
    ) -> None:
        super().__init__(qpn, mtu, first_psn, rto_ps, ack_every, congestion, counters, completions)
        self.reorder_ps: int = 0
        self.again: list[int] = []
        self.fate: list[int] = [_FLYING] * RING
        self.repeated: list[bool] = [False] * RING
        # when the latest transmission left that is known to have arrived
        self.newest_ps: int = LONG_AGO

    @property
    def full_reth(self) -> bool:
        return True

    # --- sending ----------------------------------------------------------------------------------

    def may_send(self) -> bool:
        if self.again:
            return True  # it is out of the window's count, and makes no queue longer than it was
        nxt = self.nxt
        if nxt == self.end or nxt - self.una >= RING:
            return False
        return self.inflight == 0 or self.inflight + self._next_size() <= self.congestion.window

    def next_psn(self) -> int:
        return self.again[0] if self.again else self.nxt

    def current(self) -> Work:
        if not self.again:
            return super().current()
        psn = self.again[0]
        work = self._head
        while work is not None and work.last < psn:
            work = work.after
        assert work is not None
        return work

    def _next_size(self) -> int:
        size = super()._next_size()
        work = self._current
        return size if work is None or self.nxt == work.first else size + RETH_BYTES

    def advance(self, now: int, frame_bytes: int) -> bool:
        if not self.again:
            slot = self.nxt & _SLOT
            self.fate[slot] = _FLYING
            self.repeated[slot] = False
            return super().advance(now, frame_bytes)
        psn = self.again.pop(0)
        slot = psn & _SLOT
        self.sent_ps[slot] = now
        self.fate[slot] = _FLYING
        self.repeated[slot] = True
        self.inflight += frame_bytes
        self.retransmitted += 1
        self.counters.retransmitted += 1
        if psn == self.una or self.rto_at == NEVER:
            self.rto_at = now + self.timeout_ps()
        self.congestion.on_sent(now, frame_bytes)
        return True

    # --- answers ----------------------------------------------------------------------------------

    def acknowledge(self, now: int, psn: int) -> None:
        done = 0
        for p in range(self.una, psn + 1):
            done += self._arrive(now, p)
        self.una = psn + 1
        if self.again:
            self.again = [p for p in self.again if p > psn]
        self.firing = 0
        self.rto_at = now + self.rto_ps if self.una < self.nxt else NEVER
        self._complete(psn)
        self.congestion.on_ack(now, done)

    def arrived(self, now: int, psn: int) -> None:
        if psn < self.una or psn >= self.nxt:
            return
        done = self._arrive(now, psn)
        if psn in self.again:
            self.again.remove(psn)
        self.firing = 0
        self.congestion.on_ack(now, done)

    def _arrive(self, now: int, psn: int) -> int:
        """Returns the bytes taken out of flight."""
        slot = psn & _SLOT
        fate = self.fate[slot]
        if fate == _ARRIVED:
            return 0
        self.fate[slot] = _ARRIVED
        sent = self.sent_ps[slot]
        if not self.repeated[slot]:
            self._sample(now - sent)
            if sent > self.newest_ps:
                self.newest_ps = sent
        elif now - sent >= self.srtt_ps >> 1 and sent > self.newest_ps:
            # else it is the first transmission that has arrived
            self.newest_ps = sent
        if fate == _LOST:
            return 0
        self.inflight -= self.sizes[slot]
        return self.sizes[slot]

    def find_lost(self) -> list[int]:
        lost: list[int] = []
        limit = self.newest_ps - self.reorder_ps
        fate, sent_ps = self.fate, self.sent_ps
        for psn in range(self.una, self.nxt):
            slot = psn & _SLOT
            if fate[slot] == _FLYING and sent_ps[slot] < limit:
                lost.append(psn)
        for psn in lost:
            self._lose(psn)
        return lost

    def _lose(self, psn: int) -> None:
        slot = psn & _SLOT
        self.fate[slot] = _LOST
        self.inflight -= self.sizes[slot]
        self.again.append(psn)

    def go_back(self, now: int) -> int:
        self.rto_at = NEVER
        self.congestion.on_loss(now)
        if self.una == self.nxt or self.una in self.again:
            return 0
        if self.fate[self.una & _SLOT] == _FLYING:
            self._lose(self.una)
        else:
            self.again.append(self.una)
        self.again.sort()
        return 1

    def flush(self, cause: int) -> None:
        super().flush(cause)
        self.again = []


class SelectiveResponder(Responder):
    def __init__(
        self,
        qpn: int,
        mtu: int,
        rnr_code: int,
        memory: Memory,
        counters: Counters,
        completions: list[Completion],
    ) -> None:
        super().__init__(qpn, mtu, rnr_code, memory, counters, completions)
        # PSN -> (last of its message, immediate or -1, bytes of the message)
        self.early: dict[int, tuple[bool, int, int]] = {}
        self.sacks: list[int] = []  # PSNs that came early and have not been reported

    def answers_wait(self) -> bool:
        return self.pending >= 0 or len(self.sacks) > 0

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
        counters = self.counters
        gap = (psn - self.expected) & PSN_MASK
        if gap >= PSN_HALF or gap >= RING or psn in self.early:
            counters.rx_duplicate += 1
            if not gap:  # it waited for a receive request
                self._advance()
            elif psn in self.early:
                self._report(psn)
            return self._acknowledge()
        last, has_imm = kind & KIND_END != 0, kind & KIND_IMM != 0
        payload_at = at + RETH_BYTES + (4 if has_imm else 0)
        size = end - pad - payload_at
        if size < 0 or size > self.mtu:
            return self._reject(NAK_INVALID)
        va, rkey, length = RETH.unpack_from(view, at)
        if length > MAX_MESSAGE or size > length or (size < self.mtu and not last):
            return self._reject(NAK_INVALID)
        if not self.memory.allowed(rkey, va, size):
            return self._reject(NAK_ACCESS)
        if size and not self.memory.place(rkey, va, view, payload_at, size):
            return self._reject(NAK_ACCESS)
        counters.data_rx += 1
        counters.rx_payload_bytes += size
        self.placed += size
        self.early[psn] = (
            last,
            IMM.unpack_from(view, payload_at - 4)[0] if has_imm else -1,
            length,
        )
        if gap:
            self._report(psn)
            return ANSWER
        self._advance()
        if (
            self.pending >= 0
            or ack_requested
            or len(self.early) > 0
            or (self.expected - psn) & PSN_MASK > 1
        ):
            return self._acknowledge()
        return NOTHING

    def _report(self, psn: int) -> None:
        if len(self.sacks) < RING:
            self.sacks.append(psn)

    def _advance(self) -> None:
        while self.expected in self.early:
            last, imm, length = self.early[self.expected]
            if last and imm >= 0:
                if not self.receives:
                    self.nak_sent = True
                    self.pending, self.pending_psn = RNR | self.rnr_code, self.expected
                    return
                self.completions.append(
                    Completion(self.qpn, self.receives.popleft(), RECEIVE, OK, imm, length)
                )
            del self.early[self.expected]
            if last:
                self.msn = (self.msn + 1) & PSN_MASK
            self.expected = (self.expected + 1) & PSN_MASK
            if self.nak_sent:
                self.nak_sent = False
                self.pending = -1

    def take_answer(self) -> tuple[int, int]:
        if self.pending < 0 and self.sacks:
            return NAK_SEQUENCE, self.expected
        return super().take_answer()

    def take_sack(self, syndrome: int) -> int:
        return self.sacks.pop(0) if syndrome == NAK_SEQUENCE and self.sacks else -1
