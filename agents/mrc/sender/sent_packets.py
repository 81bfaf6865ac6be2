"""Keeps the packets that one queue pair has sent, with the fate of each. Sans-IO.

There is one object per transmission; a ring by PSN modulo the window, made as far as it is used,
holds the latest of each packet. A transmission is SENT until it is ACKED, LOST or CUT. PSNs are
absolute; ``seq`` numbers all transmissions and probes in order.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

from mypy_extensions import i64, mypyc_attr

from agents.mrc.paths.path import Path, drop
from agents.mrc.sender.message import Message

SENT: Final = 1
ACKED: Final = 2
LOST: Final = 3  # waits to be sent again
CUT: Final = 4  # likewise, but not lost: a switch trimmed it and the peer reported that


@mypyc_attr(free_list_len=1)
class SentPacket:
    """``count``: 1 for the first transmission of its packet. ``size``: as congestion control counts
    bytes. ``urgent``: it overtakes others that are not."""

    def __init__(
        self,
        psn: int,
        seq: int,
        sent_ps: int,
        path: Path,
        message: Message,
        size: int,
        count: int,
        blamed: Path | None,
    ) -> None:
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
    def __init__(self, size: int, urgent: bool = False) -> None:
        self.size = size
        self.urgent = urgent  # what is sent again overtakes other data
        self.ring: list[SentPacket] = []
        self.first = 0  # PSN of the first packet, which is at the ring's beginning
        self.una = 0  # lowest PSN not acknowledged
        self.next = 0  # next PSN to send for the first time
        self.limit = 0  # first PSN beyond the peer's window
        self.received = 0  # bit i: PSN una + i is acknowledged
        self.in_flight = 0  # bytes
        # PSNs to send again, ascending; one that has arrived meanwhile is dropped when its turn
        # comes
        self.lost_queue: list[int] = []
        # transmissions not yet judged by time, in the order in which they left
        self.by_time: list[SentPacket] = []
        self.urgent_by_time: list[SentPacket] = []  # likewise, those that overtake
        self.seq_next = 1
        self.seq_high = 0  # highest seq known to have arrived
        self.urgent_high = 0

    def start(self, psn: int, mpr: int) -> None:
        self.una = self.next = self.first = psn
        self.limit = psn + min(mpr, self.size)

    def restart(self, psn: int) -> None:
        self.limit += psn - self.una
        self.una = self.next = self.first = psn

    def widen(self, edge: int, mpr: int) -> None:
        """Take the peer's window from ``edge`` on. It never takes back what it has allowed."""
        limit = edge + min(mpr, self.size)
        if limit > self.limit:
            self.limit = limit

    def latest(self, psn: int) -> SentPacket:
        return self.ring[(psn - self.first) % self.size]

    def find(self, psn: int) -> SentPacket | None:
        return (
            self.latest(psn) if max(self.first, self.next - self.size) <= psn < self.next else None
        )

    def flying(self) -> list[SentPacket]:
        return [
            packet for psn in range(self.una, self.next) if (packet := self.latest(psn)).in_flight
        ]

    # --- out --------------------------------------------------------------------------------------

    def first_lost(self) -> SentPacket | None:
        while self.lost_queue:
            psn = self.lost_queue[0]
            if psn >= self.una:
                packet = self.latest(psn)
                if packet.state >= LOST:
                    return packet
            self.lost_queue.pop(0)
        return None

    def sent(self, now: int, path: Path, message: Message, size: int) -> SentPacket:
        packet = SentPacket(self.next, self.seq_next, now, path, message, size, 1, None)
        self.next += 1
        self._leave(packet)
        return packet

    def sent_again(self, now: int, path: Path) -> SentPacket:
        old = self.latest(self.lost_queue.pop(0))
        packet = SentPacket(
            old.psn, self.seq_next, now, path, old.message, old.size, old.count + 1, old.blamed
        )
        packet.urgent = self.urgent
        packet.lost_once = old.lost_once
        self._leave(packet)
        return packet

    def _leave(self, packet: SentPacket) -> None:
        place = (packet.psn - self.first) % self.size
        if place == len(self.ring):
            self.ring.append(packet)
        else:
            self.ring[place] = packet
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
        seq = self.seq_next
        self.seq_next += 1
        return seq

    # --- in ---------------------------------------------------------------------------------------

    def arrived(self, seq: int) -> None:
        if seq > self.seq_high:
            self.seq_high = seq

    def arrived_urgent(self, seq: int) -> None:
        if seq > self.urgent_high:
            self.urgent_high = seq

    def arrived_bitmap(self, base: int) -> int:
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
        """Returns True if the window is empty now."""
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

    # --- to go again ------------------------------------------------------------------------------

    def lost(self, packet: SentPacket, blame: bool) -> None:
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
        packets: list[SentPacket] = []
        if self.urgent_by_time:
            self._take_overdue(self.urgent_by_time, self.urgent_high, now - limit, packets)
        self._take_overdue(self.by_time, self.seq_high, now - limit, packets)
        return packets

    def any_overtaken(self) -> bool:
        return (len(self.by_time) > 0 and self.by_time[0].seq < self.seq_high) or (
            len(self.urgent_by_time) > 0 and self.urgent_by_time[0].seq < self.urgent_high
        )

    @staticmethod
    def _take_overdue(
        q: list[SentPacket], seq: i64, before: i64, packets: list[SentPacket]
    ) -> None:
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
        self.lost_queue.clear()
        self.next = self.una
        self.in_flight = 0
