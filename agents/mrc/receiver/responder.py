"""The receiving half of a QP: places data in any order, reports what arrived, completes messages in
order. Sans-IO. PSNs are absolute here.

A clear bit of the bitmap means "not received when this was sent". While more than 64 PSNs are open,
SACKs alternate two kinds of window [ours]: *news*, from the lowest received PSN not yet in any
SACK, and *holes*, from the first missing PSN at or after a cursor.
"""

from __future__ import annotations

from random import Random
from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.packet import Echo, WritePacket
from agents.mrc.receiver.advice import Advice
from agents.mrc.receiver.reverse import ReverseEvs
from agents.packets import headers
from agents.packets.memory import Memory
from agents.transport import FLUSHED, LONG_AGO, NEVER, OK, RECEIVE, Completion

WINDOW: Final = 64
_FULL: Final = (1 << 64) - 1
_HALF: Final = 1 << 31
_WORD: Final = (1 << 32) - 1

NEW: Final = 0
DUPLICATE: Final = 1
BEYOND: Final = 2
REFUSED: Final = 3
"""Results of :meth:`Responder.data` for a packet."""

SMALLEST_ROOM: Final = 64
SMALLEST: Final = 256
"""The least that a packet counts in units of rcvd_bytes, which orders SACKs [ours]."""
SACK_FLOOR: Final = 1024
"""The least that a packet counts towards the next SACK (UET)."""


class Trigger:
    def __init__(self) -> None:
        self.psn = 0
        self.ev = 0
        self.ts = 0
        self.rtx = False
        self.m = 0
        self.at = LONG_AGO


class Receives:
    """Work request ids of receive requests. Equal ones in a row, as all of a group are, share an
    entry."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.counts: list[int] = []

    def append(self, wr_id: int) -> None:
        if self.ids and self.ids[-1] == wr_id:
            self.counts[-1] += 1
        else:
            self.ids.append(wr_id)
            self.counts.append(1)

    def pop(self) -> int:
        if self.counts[0] > 1:
            self.counts[0] -= 1
            return self.ids[0]
        self.counts.pop(0)
        return self.ids.pop(0)

    def __len__(self) -> int:
        return sum(self.counts)


class Responder:
    def __init__(
        self, config: Config, qpn: int, memory: Memory, rng: Random, advice: Advice
    ) -> None:
        self.config = config
        self.qpn = qpn
        self.memory = memory
        self.rng = rng
        self.advice = advice
        self.inflow = advice.new_inflow()
        self.size = config.mpr
        self.expected = 0  # E: the lowest PSN not received
        self.allowed = 0  # first PSN beyond all windows that the peer has seen
        self.received = 0  # bit i: PSN expected + i is here
        self.reported = 0  # bit i: it was in some SACK
        self.high = -1  # H: highest PSN received
        self.cursor = 0
        self.news_next = True
        # Per PSN, until it is in order: what completion needs. There is room for as many as were
        # open so far.
        self.room = min(SMALLEST_ROOM, self.size)
        self.op = vec[i64]([0] * self.room)
        # and the message's bytes, less _HALF, in the upper 32 bits
        self.imm = vec[i64]([0] * self.room)
        self.msn_of = vec[i64]([0] * self.room)
        self.rqmsn_of = vec[i64]([0] * self.room)
        # Messages.
        self.in_message = False
        self.msn = 0  # messages completed
        self.last_done = -1  # PSN of the last completed message's end
        self.immediates = 0
        self.recv_queue = Receives()
        self.completions: list[Completion] = []
        # What to send.
        self.sack_due = False
        self.ack_due = False
        self.nak = 0  # syndrome of an error to report, then the QP goes to ERROR
        self.since_sack = 0
        self.threshold = self._threshold()
        self.sticky = False  # the peer asked: SACK again when nothing is missing
        self.trigger = Trigger()
        self.flush_at = NEVER
        self.bases: list[int] = []  # bitmap bases still to tell after a flush
        self.reverse = ReverseEvs(config.base_rtt)

    def start(self, psn: int, reverse: list[int], plane: int = 0) -> None:
        self.expected = psn
        self.allowed = psn + self.size
        self.high = psn - 1
        self.last_done = psn - 1
        self.cursor = psn
        self.reverse.start(reverse, plane)

    def _threshold(self) -> int:
        j = self.config.sack_jitter
        return int(self.config.sack_bytes * (1.0 - j + 2.0 * j * self.rng.random()))

    # --- in ---------------------------------------------------------------------------------------

    def absolute(self, psn: int) -> int:
        return self.expected + headers.psn_delta(psn, self.expected)

    def arrived(self, now: int, plane: int, ev: int) -> None:
        self.reverse.arrived(now, plane, ev)
        self.inflow.newest_ps = now

    def data(self, now: int, p: WritePacket, buffer: object, start: int, length: int) -> int:
        if self.nak:
            return REFUSED  # the QP is about to be in ERROR: memory is not touched again
        psn: int = p.psn  # an unbounded integer, as the bitmaps that it indexes
        i = psn - self.expected
        if (i >= self.room and not self._widen(i)) or (
            self.config.mpr_pool and psn >= self.allowed
        ):
            return BEYOND
        if i < 0 or self.received >> i & 1:
            self._answer(now, p)
            self.sack_due = True
            if psn <= self.last_done:
                self.ack_due = True
            return DUPLICATE
        if (
            length > p.dmalen
            or length > self.config.mtu
            or not self._well_formed(p.op, length, p.dmalen)
        ):
            self.nak = wire.SYNDROME_INVALID
            return REFUSED
        if not self.memory.allowed(p.rkey, p.va, length):
            self.nak = wire.SYNDROME_ACCESS
            return REFUSED
        if length and not self.memory.place(p.rkey, p.va, buffer, start, length):
            self.nak = wire.SYNDROME_ACCESS
            return REFUSED
        slot = psn % self.room
        self.op[slot] = p.op
        if p.imm >= 0:
            self.imm[slot] = (p.dmalen - _HALF) << 32 | p.imm
        self.msn_of[slot] = p.msn
        self.rqmsn_of[slot] = p.rqmsn
        self.received |= 1 << i
        if psn > self.high:
            self.high = psn
        size = length + wire.COUNTED
        self.inflow.bytes += size if size > SMALLEST else SMALLEST
        if i == 0:
            self._advance()
        self.since_sack += size if size > SACK_FLOOR else SACK_FLOOR
        self._answer(now, p)
        if p.asks:
            self.sticky = True
        if (
            p.asks
            or p.rtx
            or p.marked
            or self.since_sack >= self.threshold
            or (self.sticky and self.high < self.expected)
        ):
            self.sack_due = True
        else:
            self.flush_at = now + (self.config.base_rtt >> 2)
        return NEW

    def _widen(self, i: int) -> bool:
        """Make room for PSN expected + i; False beyond the window."""
        if i >= self.size:
            return False
        before = self.room
        while self.room <= i:
            self.room = min(2 * self.room, self.size)
        held = range(self.expected, self.high + 1)
        self.op = _moved(self.op, before, self.room, held)
        self.imm = _moved(self.imm, before, self.room, held)
        self.msn_of = _moved(self.msn_of, before, self.room, held)
        self.rqmsn_of = _moved(self.rqmsn_of, before, self.room, held)
        return True

    def _well_formed(self, op: int, length: int, dmalen: int) -> bool:
        if op in (wire.WRITE_FIRST, wire.WRITE_MIDDLE):
            return length == self.config.mtu and dmalen > self.config.mtu
        if op in (wire.WRITE_ONLY, wire.WRITE_ONLY_IMM):
            return length == dmalen
        return length > 0

    def _answer(self, now: int, p: WritePacket) -> None:
        t = self.trigger
        if self.sack_due and t.m:
            return
        t.at = now
        t.psn = p.psn
        t.ev = p.ev
        t.ts = p.ts
        t.rtx = p.rtx
        t.m = wire.M_SKIP_ONCE if p.marked else wire.M_NONE

    def _advance(self) -> None:
        run = ((~self.received) & (self.received + 1)).bit_length() - 1
        for psn in range(self.expected, self.expected + run):
            slot = psn % self.room
            op = self.op[slot]
            begins = op in (wire.WRITE_FIRST, wire.WRITE_ONLY, wire.WRITE_ONLY_IMM)
            if begins == self.in_message:
                self.nak = wire.SYNDROME_INVALID
                return
            self.in_message = True
            if op in (wire.WRITE_FIRST, wire.WRITE_MIDDLE):
                continue
            self.in_message = False
            if (
                self.msn_of[slot] != self.msn & 0xFFFF
                or self.rqmsn_of[slot] != self.immediates & 0xFFFF
            ):
                self.nak = wire.SYNDROME_INVALID
                return
            if op in (wire.WRITE_LAST_IMM, wire.WRITE_ONLY_IMM):
                if not self.recv_queue.ids:
                    self.nak = wire.SYNDROME_OPERATION
                    return
                wr = self.recv_queue.pop()
                self.immediates += 1
                self.completions.append(
                    Completion(
                        self.qpn,
                        wr,
                        RECEIVE,
                        OK,
                        self.imm[slot] & _WORD,
                        (self.imm[slot] >> 32) + _HALF,
                    )
                )
            self.msn += 1
            self.last_done = psn
            self.ack_due = True
        self.expected += run
        self.received >>= run
        self.reported >>= run

    def trimmed(self, now: int, p: WritePacket, last_hop: bool) -> bool:
        """Returns True if the packet is missing and a NACK must say so at once."""
        if last_hop:
            self.advice.trimmed_on_last_hop(now, self.inflow)
        i: int = p.psn - self.expected
        if i >= 0 and not self.received >> i & 1:
            return True
        self._answer(now, p)
        self.sack_due = True
        return False

    def window(self, now: int) -> int:
        """What was allowed is never taken back."""
        window = self.advice.window(now, self.size)
        if self.expected + window > self.allowed:
            self.allowed = self.expected + window
        return window

    def window_advice(self, now: int) -> int:
        """Return CC_STATE's restore_cwnd (bit 7) and rcv_cwnd_pen (0-127)."""
        return self.advice.for_sack(now, self.inflow)

    def probed(self, now: int) -> None:
        if self.last_done >= 0 and self.msn:
            self.ack_due = True

    # --- out --------------------------------------------------------------------------------------

    def flush(self) -> None:
        self.flush_at = NEVER
        if not self.sack_due:
            self.sack_due = True
            self.bases = self.complete_bases()

    def echo(self, now: int, shift: int) -> Echo:
        t = self.trigger
        return Echo(
            t.psn - (self.expected - 1), False, t.ev, t.ts + (now - t.at >> shift), t.m, t.rtx
        )

    def sack_built(self) -> None:
        self.sack_due = len(self.bases) > 0
        self.since_sack = 0
        self.threshold = self._threshold()
        self.flush_at = NEVER
        if self.high < self.expected:
            self.sticky = False

    def bitmap_base(self) -> int:
        e = self.expected
        if self.bases:
            return max(self.bases.pop(0), e)
        if self.high - e < WINDOW:
            return e
        top = self.high - WINDOW + 1
        news = self.received & ~self.reported
        self.news_next = not self.news_next
        if not self.news_next and news:
            base = e + (news & -news).bit_length() - 1
        else:
            if self.cursor < e or self.cursor > self.high:
                self.cursor = e
            missing = ~(self.received >> (self.cursor - e))
            base = self.cursor + (missing & -missing).bit_length() - 1
            self.cursor = base + WINDOW
        return min(max(base, e), top)

    def bitmap(self, base: int) -> int:
        """The bits are marked as reported."""
        shift = base - self.expected
        bits = self.received >> shift & _FULL
        self.reported |= bits << shift
        return bits

    def complete_bases(self) -> list[int]:
        return list(range(self.expected, max(self.high, self.expected) + 1, WINDOW))

    def out_of_order(self) -> int:
        return self.received.bit_count()

    # --- results ----------------------------------------------------------------------------------

    def take(self) -> list[Completion]:
        done = self.completions
        self.completions = []
        return done

    def fail(self) -> None:
        while self.recv_queue.ids:
            self.completions.append(
                Completion(self.qpn, self.recv_queue.pop(), RECEIVE, FLUSHED, -1, 0)
            )
        self.flush_at = NEVER


def _moved(old: vec[i64], before: int, room: int, psns: range) -> vec[i64]:
    new = vec[i64]([0] * room)
    for psn in psns:
        new[psn % room] = old[psn % before]
    return new
