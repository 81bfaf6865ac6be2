"""Decides when a packet is lost: the verdicts of one QP, after every SACK and by its retransmission
timer. Sans-IO.

A verdict needs two things: a SACK, not older than the newest seen, that shows the packet missing,
and one of the rules below [ours; the sources say only that holes are loss and the timer is the
backstop]. A SACK shows what its bitmap covers. If the bitmap has all that waits at the peer
(ooo_count), it shows everything; otherwise the end of a long burst of losses would be left to the
timer.

1. *order*: something sent after it on the same EV in the same class has arrived. In a class an SRv6
   path is one FIFO; retransmissions have one of their own with ``retransmit_class = "high"``.
2. *time*: something sent after it in the same class has arrived, and now >= sent + largest recent
   RTT + reo_wnd, with reo_wnd = clamp(spread of recent RTTs, base RTT, 4 base RTT), which grows
   with verdicts that proved wrong. The largest RTT is that of any plane: when an incast begins, all
   planes' queues grow at once, and one plane's samples come later than another's. Between sites the
   lower bound is a site's base RTT, since paths differ by their queues.
3. *count*, only where nothing is trimmed: so many packets wait at the peer above its edge that the
   one at the edge must be lost (UET).
4. the retransmission timer.

Where switches trim, doubts.py puts off the verdict on the path. A dead path delivers nothing later,
so there rule 2 decides; meanwhile the path is held (path.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.paths.path import Path
from agents.mrc.sender.rtt import RttTracker
from agents.mrc.sender.sent_packets import SentPacket

if TYPE_CHECKING:
    from agents.mrc.sender.requester import Requester

ORDER: Final = 0
TIME: Final = 1
RTO: Final = 2
PORT: Final = 3  # no path lost it: a port went down, a hint named its path, or the peer had no room
COUNT: Final = 4
"""Reasons for which a packet was given up: places in ``Requester.lost_by``."""


class LossDetection:
    def __init__(self, config: Config, rtt: RttTracker) -> None:
        self.config = config
        self.rtt = rtt
        self.news: list[Path] = []  # where something newer arrived since the last verdicts
        # overtaken on their own path, waiting for a SACK that covers them
        self.suspects: list[SentPacket] = []
        self.overdue: list[SentPacket] = []  # too late, likewise
        self.patience = 0  # ps; grows with wrong verdicts

    def newer_arrived(self, path: Path) -> None:
        self.news.append(path)

    def forget(self) -> None:
        self.suspects.clear()
        self.overdue.clear()

    def was_spurious(self) -> None:
        self.patience = min(self.patience + (self.config.base_rtt >> 2), 4 * self.config.base_rtt)

    def reorder_window(self) -> int:
        base = self.config.base_rtt
        window = min(max(self.rtt.spread(), self.config.queue_rtt), 4 * base)
        # they may take half of a link, and what waits behind them takes twice as long [ours]
        if self.config.urgent:
            window *= 2
        return window + self.patience

    def verdicts(
        self, r: Requester, now: int, first: int, base: int, bits: int, bitmap: int, waiting: int
    ) -> None:
        """Judge PSNs ``[base, base + bits)`` and ``first``, the one after the SACK's own cumulative
        edge; an overtaking ACK may have moved our ``una`` past it. ``waiting``: its ooo_count; if
        ``bitmap`` has as many, nothing above it has arrived either."""
        sent = r.sent
        if self.news:
            if self.config.path_order:
                for path in self.news:
                    self.suspects.extend(path.overtaken())
            self.news.clear()
        if sent.any_overtaken():
            self.overdue.extend(sent.overdue(now, self.rtt.largest() + self.reorder_window()))
        if self.suspects or self.overdue:
            # no ACK that overtook it knows more
            if first == sent.una and bitmap.bit_count() == waiting:
                base, bits = first, sent.next - first
            self.suspects = _judge(r, now, first, base, bits, self.suspects, ORDER, "order")
            self.overdue = _judge(r, now, first, base, bits, self.overdue, TIME, "time")
        if not self.config.trimming and sent.una <= first < sent.next and waiting >= too_many(r):
            packet = sent.latest(first)
            if packet.count == 1:
                r.lose(now, packet, COUNT, "count", True)


def too_many(r: Requester) -> int:
    c = r.config
    largest = 1.5 * c.plane_bdp * max(1, r.paths.live_planes)
    return max(
        5,
        int(
            min(
                1.5 * r.congestion.cwnd / (c.mtu + wire.COUNTED),
                largest / (c.mtu + wire.COUNTED),
                c.mpr / 2,
            )
        ),
    )


def _judge(
    r: Requester,
    now: int,
    first: int,
    base: int,
    bits: int,
    candidates: list[SentPacket],
    rule: int,
    name: str,
) -> list[SentPacket]:
    left: list[SentPacket] = []
    for packet in candidates:
        if not packet.in_flight:
            continue
        if packet.psn == first or base <= packet.psn < base + bits:
            r.lose(now, packet, rule, name, True)
        else:
            left.append(packet)
    return left
