"""One path of a queue pair: an EV with its state, timing and counters, and the probing that brings
it back. Sans-IO.

Its :class:`PathSet` owns it. No code outside this package writes an attribute.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from agents.mrc.paths.ev_state import GOOD, next_state
from agents.transport import LONG_AGO, NEVER

if TYPE_CHECKING:
    from agents.mrc.sender.sent_packets import SentPacket

MAX_PROOF: Final = 32
"""Most clean answers that a flapping path has to give [ours]."""


_NOBODY: Final[list[SentPacket]] = []
"""Of all paths that were not used yet."""


def jittered(gap: int, rng: Random) -> int:
    """Change a gap by up to a quarter at random [ours], so that senders do not probe in step."""
    return int(gap * (0.75 + 0.5 * rng.random()))


def drop(queue: list[SentPacket], count: i64) -> None:
    """Lists stay short, and compiled code needs no call for them."""
    if count == 1:
        queue.pop(0)
    elif count:
        del queue[:count]


def take_before(queue: list[SentPacket], seq: i64, packets: list[SentPacket]) -> None:
    n: i64 = len(queue)
    k: i64 = 0
    while k < n:
        packet = queue[k]
        if packet.in_flight:
            if packet.seq >= seq:
                break
            packets.append(packet)
        k += 1
    drop(queue, k)


class Path:
    def __init__(self, index: int, ev: int, plane: int, need: int) -> None:
        self.index = index
        self.ev = ev
        self.plane = plane
        self.state = GOOD
        self.in_use = False  # active, as opposed to backup
        # Packets.
        self.flying = 0  # packets in flight
        self.outstanding = _NOBODY  # transmissions in order, stale ones included
        self.oldest_ps = NEVER  # when the oldest packet in flight was sent; NEVER without one
        self.last_data_ps = LONG_AGO
        self.gap_ps = 0  # between the last two packets
        self.seq_high = 0  # newest transmission known to have arrived
        # as outstanding and seq_high, of transmissions that overtake these: a FIFO of their own
        self.urgent = _NOBODY
        self.urgent_high = 0
        self.doubts = 0  # losses that a NACK may yet explain: no data while there are any
        self.data_tx = 0
        self.losses = 0
        self.marks = 0  # in a row, none of its SACKs clean in between
        self.lost_before = False  # without trimming: the latest packet heard of was lost
        # Verdicts.
        self.spared = False  # kept in use by the floor although lost
        self.standing = 0  # verdicts since it was GOOD that have not proved wrong
        self.undone = False  # the verdict proved wrong; one clean answer brings it back
        self.flaps = 0
        self.lost_ps = LONG_AGO  # latest verdict
        self.proven_ps = LONG_AGO  # when probes last brought it back
        self.given_up_ps = LONG_AGO  # when it last became ASSUMED_BAD
        # Probing of what is ASSUMED_BAD.
        self.first_need = self.need = need
        self.clean = 0  # answers in a row
        self.probe_at = NEVER
        self.probe_gap = 0
        self.probe_pending = False

    # --- packets ----------------------------------------------------------------------------------

    def sent(self, now: int, packet: SentPacket, longest_gap: int) -> None:
        if self.last_data_ps != LONG_AGO:
            self.gap_ps = min(now - self.last_data_ps, longest_gap)
        self.last_data_ps = now
        self.data_tx += 1
        self.flying += 1
        if self.oldest_ps == NEVER:
            self.oldest_ps = now
        if packet.urgent:
            if self.urgent is _NOBODY:
                self.urgent = []
            self.urgent.append(packet)
        else:
            if self.outstanding is _NOBODY:
                self.outstanding = []
            self.outstanding.append(packet)

    def landed(self) -> None:
        self.flying -= 1

    def grounded(self) -> None:
        self.flying = 0

    def refresh_oldest(self) -> None:
        q = self.outstanding
        n: i64 = len(q)
        k: i64 = 0
        while k < n and not q[k].in_flight:
            k += 1
        self.oldest_ps = q[k].sent_ps if k < n else NEVER
        drop(q, k)
        if self.urgent:
            q = self.urgent
            while q and not q[0].in_flight:
                q.pop(0)
            if q and q[0].sent_ps < self.oldest_ps:
                self.oldest_ps = q[0].sent_ps

    def overtaken(self) -> list[SentPacket]:
        """In a class a path is one FIFO, so these packets are late."""
        packets: list[SentPacket] = []
        take_before(self.outstanding, self.seq_high, packets)
        if self.urgent:
            take_before(self.urgent, self.urgent_high, packets)
        return packets

    def arrived(self, seq: int) -> bool:
        """Returns True if no transmission later than ``seq`` is known to have arrived."""
        if seq <= self.seq_high:
            return False
        self.seq_high = seq
        return True

    def arrived_urgent(self, seq: int) -> bool:
        if seq <= self.urgent_high:
            return False
        self.urgent_high = seq
        return True

    def urgent_first(self) -> bool:
        return (
            len(self.urgent) > 0
            and self.urgent[0].in_flight
            and self.urgent[0].sent_ps == self.oldest_ps
        )

    def delivered(self) -> None:
        self.lost_before = False

    def doubt(self) -> None:
        self.doubts += 1

    def settle(self) -> None:
        self.doubts -= 1

    def on_hold(self, now: int, limit: int) -> bool:
        """Say whether the path gets no new data for the moment [ours]. ``limit``: the age from
        which a packet is overdue."""
        return self.doubts > 0 or now - self.oldest_ps > limit + self.gap_ps

    # --- verdicts and proof: PathSet's to call ----------------------------------------------------

    def meet(self, event: int) -> None:
        self.state = next_state(self.state, event)

    def condemned(self, now: int) -> None:
        self.standing += 1
        self.lost_ps = now
        self.clean = 0

    def flapped(self, now: int, forgive: int) -> None:
        """The count begins anew after ``forgive`` ps without a flap."""
        self.undone = False
        if self.flaps and now - self.proven_ps > forgive:
            self.flaps = 0
        self.flaps += 1
        self.need = min(self.first_need << (self.flaps - 1), MAX_PROOF)

    def unflapped(self) -> None:
        self.flaps = max(0, self.flaps - 1)

    def probing(self, gap: int) -> None:
        self.probe_gap = gap
        self.clean = 0
        self.probe_pending = False

    def probed(self, cap: int) -> None:
        if self.probe_pending:
            self.clean = 0
            self.probe_gap = min(2 * self.probe_gap, cap)
        self.probe_pending = True

    def readmitted(self) -> None:
        self.probe_at = NEVER
        self.probe_pending = False
        self.standing = 0
