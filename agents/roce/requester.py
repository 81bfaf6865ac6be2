"""The sending half of a queue pair: segments WRITEs, remembers what is outstanding, goes back N.

PSNs here grow for ever; the wire carries their low 24 bits. ``una`` <= ``nxt`` <= ``end``: the
oldest not acknowledged, the next to send, the first without a message. Sending a packet below
``high`` is a retransmission. Going back is ``nxt = una``.
"""

from __future__ import annotations

from typing import Final

from agents.packets.headers import psn_delta
from agents.roce.congestion import Congestion
from agents.roce.counters import Counters
from agents.roce.wire import BODY_AT, ICRC_BYTES, RETH_BYTES
from agents.transport import FLUSHED, LONG_AGO, NEVER, OK, WRITE, Completion, Foreign

RING: Final = 1024
"""Most packets that can be outstanding, a power of two."""
_SLOT: Final = RING - 1


class Work:
    def __init__(
        self,
        wr_id: int,
        memory: memoryview | Foreign,
        va: int,
        rkey: int,
        imm: int,
        first: int,
        last: int,
    ) -> None:
        self.wr_id: int = wr_id
        self.memory: memoryview | Foreign = memory
        self.length: int = len(memory)
        self.va: int = va
        self.rkey: int = rkey
        self.imm: int = imm
        self.first: int = first
        self.last: int = last
        self.after: Work | None = None


class Requester:
    """``rto_ps`` doubles with each timeout in a row up to ``rto_most_ps``. ``ack_every`` asks for
    an ACK every so many packets, beside each message's last."""

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
        self.qpn: int = qpn
        self.mtu: int = mtu
        self.rto_ps: int = rto_ps
        self.rto_most_ps: int = rto_ps
        self.ack_every: int = ack_every
        self.congestion: Congestion = congestion
        self.counters: Counters = counters
        self.completions: list[Completion] = completions
        self.una: int = first_psn
        self.nxt: int = first_psn
        self.high: int = first_psn
        self.end: int = first_psn
        self.first: int = first_psn
        self.inflight: int = 0  # bytes of frames in [una, nxt)
        self.sent_ps: list[int] = [0] * RING  # last transmission, by PSN
        self.sizes: list[int] = [0] * RING  # frame bytes, by PSN
        self.rto_at: int = NEVER
        self.firing: int = 0  # RTOs in a row without progress
        self.fired_ps: int = NEVER  # the first of them
        self.patience_ps: int = 0  # without progress; 0: as the endpoint's options say
        self.hold_until: int = LONG_AGO  # receiver not ready
        self.last_nak: int = -1  # PSN of the last sequence NAK acted upon
        self.retransmitted: int = 0
        # from a packet's departure to its ACK, smoothed by 1/8; for people only
        self.srtt_ps: int = 0
        self._since_ack: int = 0  # packets since the last one with the AckReq bit
        self._asked_ps: int = LONG_AGO  # when that one left
        self._repeated: int = first_psn  # PSNs below it may have been sent twice: no RTT sample
        self._head: Work | None = None  # oldest not complete
        self._tail: Work | None = None
        self._current: Work | None = None  # the one that `nxt` lies in

    @property
    def full_reth(self) -> bool:
        """Whether every packet says where its payload belongs."""
        return False

    def timeout_ps(self) -> int:
        return min(self.rto_most_ps, self.rto_ps << min(self.firing, 50))

    # --- sending ----------------------------------------------------------------------------------

    def restart(self, psn: int) -> bool:
        """Returns False if something was posted before."""
        if self.end != self.first:
            return False
        self.first = self.una = self.nxt = self.high = self.end = self._repeated = psn
        return True

    def post(self, wr_id: int, memory: memoryview | Foreign, va: int, rkey: int, imm: int) -> None:
        packets = (len(memory) + self.mtu - 1) // self.mtu or 1
        work = Work(wr_id, memory, va, rkey, imm, self.end, self.end + packets - 1)
        self.end += packets
        if self._tail is None:
            self._head = work
        else:
            self._tail.after = work
        self._tail = work
        if self._current is None:
            self._current = work

    def may_send(self) -> bool:
        nxt = self.nxt
        if nxt == self.end or nxt - self.una >= RING:
            return False
        return self.inflight == 0 or self.inflight + self._next_size() <= self.congestion.window

    def release_ps(self) -> int:
        paced = self.congestion.next_send_ps
        return paced if paced > self.hold_until else self.hold_until

    def _next_size(self) -> int:
        work = self._current
        if work is None:
            return 0
        nxt = self.nxt
        size = BODY_AT + ICRC_BYTES
        if nxt == work.first:
            size += RETH_BYTES
        if nxt != work.last:
            return size + self.mtu
        if work.imm >= 0:
            size += 4
        return size + (work.length - (nxt - work.first) * self.mtu + 3 & ~3)

    def next_psn(self) -> int:
        """Call only while :meth:`may_send`."""
        return self.nxt

    def current(self) -> Work:
        """Call only while :meth:`may_send`."""
        work = self._current
        assert work is not None
        return work

    def advance(self, now: int, frame_bytes: int) -> bool:
        """Returns whether the packet must carry the AckReq bit."""
        psn = self.nxt
        work = self.current()
        slot = psn & _SLOT
        self.sent_ps[slot] = now
        self.sizes[slot] = frame_bytes
        self.inflight += frame_bytes
        if psn == self.una:
            self.rto_at = now + self.timeout_ps()
        self.nxt = psn + 1
        if psn < self.high:
            self.retransmitted += 1
            self.counters.retransmitted += 1
        else:
            self.high = psn + 1
        last = psn == work.last
        if last:
            self._current = work.after
        self.congestion.on_sent(now, frame_bytes)
        self._since_ack += 1
        # The last packet that the window admits must ask, too, or nothing would ever open the
        # window again; so must the last one within a quarter of the timeout, or a slow rate would
        # look like a loss.
        silent = self.congestion.next_send_ps - self._asked_ps > self.rto_ps >> 2
        if last or silent or self._since_ack >= self.ack_every or not self.may_send():
            self._since_ack = 0
            self._asked_ps = now
            return True
        return False

    # --- answers ----------------------------------------------------------------------------------

    def locate(self, wire_psn: int) -> int:
        """Return -1 unless the PSN is outstanding."""
        psn = self.una + psn_delta(wire_psn, self.una)
        return psn if self.una <= psn < self.high else -1

    def acknowledge(self, now: int, psn: int) -> None:
        if psn >= self._repeated:
            self._sample(now - self.sent_ps[psn & _SLOT])
        done = 0
        sizes = self.sizes
        nxt = self.nxt
        for p in range(self.una, psn + 1 if psn < nxt else nxt):
            done += sizes[p & _SLOT]
        self.inflight -= done
        self.una = psn + 1
        if nxt < self.una:  # answers to packets from before we went back
            self.nxt = self.una
            self._rewind()
        self.firing = 0
        self.rto_at = now + self.rto_ps if self.una < self.nxt else NEVER
        self._complete(psn)
        self.congestion.on_ack(now, done)

    def _sample(self, rtt_ps: int) -> None:
        self.srtt_ps += (rtt_ps - self.srtt_ps) >> 3 if self.srtt_ps else rtt_ps

    def _complete(self, psn: int) -> None:
        work = self._head
        while work is not None and work.last <= psn:
            self.completions.append(Completion(self.qpn, work.wr_id, WRITE, OK, -1, work.length))
            work = work.after
        self._head = work
        if work is None:
            self._tail = None

    def go_back(self, now: int) -> int:
        """Returns how many packets that repeats."""
        count = self.nxt - self.una
        self.nxt = self.una
        self._repeated = self.high
        self.inflight = 0
        self.rto_at = NEVER  # armed anew when `una` leaves
        self._since_ack = 0
        self._rewind()
        self.congestion.on_loss(now)
        return count

    def _rewind(self) -> None:
        work = self._head
        while work is not None and work.last < self.nxt:
            work = work.after
        self._current = work

    def flush(self, cause: int) -> None:
        work = self._head
        status = cause
        while work is not None:
            self.completions.append(
                Completion(self.qpn, work.wr_id, WRITE, status, -1, work.length)
            )
            status = FLUSHED
            work = work.after
        self._head = self._tail = self._current = None
        self.una = self.nxt = self.high = self.end
        self.inflight = 0
        self.rto_at = NEVER
        self.hold_until = LONG_AGO
