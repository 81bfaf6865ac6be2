"""The packets that one queue pair has sent, with the fate of each: the window, and all that is in flight. Sans-IO.

One object per transmission, in a ring by PSN modulo the window: the ring holds the latest transmission of each packet. A transmission is
SENT until it is ACKED, LOST or CUT, and never SENT again: a retransmission is a new object in the same place. PSNs are absolute here;
``seq`` numbers all transmissions and probes in the order in which they left.

The sender reports (sent, acked, lost, trimmed); no other code writes to a packet or to the window.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

from mypy_extensions import i64

from agents.mrc.paths.path import Path, drop
from agents.mrc.sender.message import Message

SENT: Final = 1
ACKED: Final = 2
LOST: Final = 3  # waits to be sent again
CUT: Final = 4  # likewise, but not lost: a switch trimmed it and the peer reported that


class SentPacket:
    """One transmission. ``count``: 1 for the first of its packet. ``size``: bytes, as congestion control counts them. ``urgent``: it
    overtakes others, so only others of its kind say anything of its loss."""

    def __init__(self, psn: int, seq: int, sent_ps: int, path: Path, message: Message, size: int, count: int, blamed: Path | None) -> None:
        self.psn = psn
        self.seq = seq
        self.sent_ps = sent_ps
        self.path = path
        self.message = message
        self.size = size
        self.count = count
        self.blamed = blamed  # the path that lost the transmission before this one, or this one
        self.urgent = False
        self.lost_once = False  # whether a transmission of it was found lost
        self.state = SENT

    @property
    def in_flight(self) -> bool:
        return self.state == SENT


class SentPackets:
    """The window of one queue pair: ``una`` <= PSN < ``next`` is sent and not done with."""

    def __init__(self, size: int, urgent: bool = False) -> None:
        self.size = size
        self.urgent = urgent  # what is sent again overtakes other data
        self.ring: list[SentPacket | None] = [None] * size
        self.una = 0  # lowest PSN not acknowledged
        self.next = 0  # next PSN to send for the first time
        self.limit = 0  # first PSN beyond the peer's window
        self.received = 0  # bit i: PSN una + i is acknowledged
        self.in_flight = 0  # bytes
        self.lost_queue: list[int] = []  # PSNs to send again, ascending; one that has arrived meanwhile is dropped when its turn comes
        self.by_time: list[SentPacket] = []  # transmissions not yet judged by time, in the order in which they left
        self.urgent_by_time: list[SentPacket] = []  # likewise, those that overtake
        self.seq_next = 1
        self.seq_high = 0  # highest seq known to have arrived
        self.urgent_high = 0

    def start(self, psn: int, mpr: int) -> None:
        """Set the first PSN, and the peer's window in PSNs."""
        self.una = self.next = psn
        self.limit = psn + min(mpr, self.size)

    def restart(self, psn: int) -> None:
        """Set another first PSN, before anything was sent; the peer's window stays."""
        self.limit += psn - self.una
        self.una = self.next = psn

    def widen(self, edge: int, mpr: int) -> None:
        """Take the peer's window, in PSNs from ``edge`` on, the first that it lacked when it said so; it never takes back what it has
        allowed."""
        limit = edge + min(mpr, self.size)
        if limit > self.limit:
            self.limit = limit

    def latest(self, psn: int) -> SentPacket:
        """Return the latest transmission of a packet of the window."""
        packet = self.ring[psn % self.size]
        assert packet is not None
        return packet

    def find(self, psn: int) -> SentPacket | None:
        """Return the latest transmission of one of the last ``size`` packets; None if the PSN is not one of theirs."""
        return self.ring[psn % self.size] if self.next - self.size <= psn < self.next else None

    def flying(self) -> list[SentPacket]:
        return [packet for psn in range(self.una, self.next) if (packet := self.latest(psn)).in_flight]

    # --- out -------------------------------------------------------------------------------------------------

    def first_lost(self) -> SentPacket | None:
        """Return the packet to send again next."""
        while self.lost_queue:
            psn = self.lost_queue[0]
            if psn >= self.una:
                packet = self.latest(psn)
                if packet.state >= LOST:
                    return packet
            self.lost_queue.pop(0)
        return None

    def sent(self, now: int, path: Path, message: Message, size: int) -> SentPacket:
        """Enter that the next new packet leaves."""
        packet = SentPacket(self.next, self.seq_next, now, path, message, size, 1, None)
        self.next += 1
        self._leave(packet)
        return packet

    def sent_again(self, now: int, path: Path) -> SentPacket:
        """Enter that :meth:`first_lost` leaves again."""
        old = self.latest(self.lost_queue.pop(0))
        packet = SentPacket(old.psn, self.seq_next, now, path, old.message, old.size, old.count + 1, old.blamed)
        packet.urgent = self.urgent
        packet.lost_once = old.lost_once
        self._leave(packet)
        return packet

    def _leave(self, packet: SentPacket) -> None:
        self.ring[packet.psn % self.size] = packet
        self.seq_next += 1
        self.in_flight += packet.size
        q = self.urgent_by_time if packet.urgent else self.by_time
        n: i64 = len(q)
        k: i64 = 0
        while k < n and (not q[k].in_flight or n - k >= 4 * self.size):
            k += 1
        drop(q, k)
        q.append(packet)

    def probe_sent(self) -> int:
        """Enter that a probe is sent; returns its place in the order."""
        seq = self.seq_next
        self.seq_next += 1
        return seq

    # --- in --------------------------------------------------------------------------------------------------

    def arrived(self, seq: int) -> None:
        """Enter that a packet's first transmission, or a probe, is known to have arrived."""
        if seq > self.seq_high:
            self.seq_high = seq

    def arrived_urgent(self, seq: int) -> None:
        """Enter the arrival of a transmission that overtakes others, as :meth:`arrived`."""
        if seq > self.urgent_high:
            self.urgent_high = seq

    def arrived_bitmap(self, base: int) -> int:
        """Return a bitmap of what is known to have arrived from PSN ``base`` on."""
        if base >= self.una:
            return self.received >> (base - self.una)
        return self.received << (self.una - base) | (1 << (self.una - base)) - 1

    def note(self, psn: int) -> None:
        self.received |= 1 << (psn - self.una)

    def acked(self, packet: SentPacket) -> None:
        if packet.state == SENT:
            self.in_flight -= packet.size
            packet.path.landed()
        packet.state = ACKED
        packet.path.refresh_oldest()

    def advance(self, edge: int) -> bool:
        """Take that everything below ``edge`` is acknowledged; returns True if nothing is left in the window."""
        self.received >>= edge - self.una
        run = ((~self.received) & (self.received + 1)).bit_length() - 1
        self.una = edge + run
        self.received >>= run
        if self.una < self.next:
            return False
        self.in_flight = 0
        self.by_time.clear()
        self.urgent_by_time.clear()
        return True

    # --- to go again -----------------------------------------------------------------------------------------

    def lost(self, packet: SentPacket, blame: bool) -> None:
        """Enter that a packet in flight is lost; ``blame``: its path lost it."""
        packet.blamed = packet.path if blame else None
        packet.lost_once = True
        self._requeue(packet, LOST)

    def trimmed(self, packet: SentPacket) -> None:
        self._requeue(packet, CUT)

    def _requeue(self, packet: SentPacket, state: int) -> None:
        packet.state = state
        self.in_flight -= packet.size
        packet.path.landed()
        packet.path.refresh_oldest()
        insort(self.lost_queue, packet.psn)

    def acquit(self, packet: SentPacket) -> None:
        packet.blamed = None

    def overdue(self, now: int, limit: int) -> list[SentPacket]:
        """Take what left before something of its class that has arrived, and at least ``limit`` ps ago; each transmission is taken
        once."""
        packets: list[SentPacket] = []
        if self.urgent_by_time:
            self._take_overdue(self.urgent_by_time, self.urgent_high, now - limit, packets)
        self._take_overdue(self.by_time, self.seq_high, now - limit, packets)
        return packets

    def any_overtaken(self) -> bool:
        """Say whether something in either class left before what has arrived."""
        return (len(self.by_time) > 0 and self.by_time[0].seq < self.seq_high) or (
            len(self.urgent_by_time) > 0 and self.urgent_by_time[0].seq < self.urgent_high
        )

    @staticmethod
    def _take_overdue(q: list[SentPacket], seq: i64, before: i64, packets: list[SentPacket]) -> None:
        n: i64 = len(q)
        k: i64 = 0
        while k < n:
            packet = q[k]
            if packet.in_flight:
                if packet.seq >= seq or packet.sent_ps > before:
                    break
                packets.append(packet)
            k += 1
        drop(q, k)

    def flush(self) -> None:
        """Let nothing be in flight, and nothing go again: the queue pair has failed."""
        self.lost_queue.clear()
        self.next = self.una
        self.in_flight = 0
