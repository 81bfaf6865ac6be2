"""The sending half of a QP: splits messages into packets, sprays them, and follows the fate of
each. Sans-IO. PSNs are absolute here."""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.paths.path import Path
from agents.mrc.paths.path_set import PathSet
from agents.mrc.paths.rotation import Deal
from agents.mrc.paths.suspicion import Suspicion
from agents.mrc.sender.congestion.base import Congestion
from agents.mrc.sender.doubts import Doubt, Doubts
from agents.mrc.sender.loss import RTO, LossDetection
from agents.mrc.sender.message import SendQueue
from agents.mrc.sender.rtt import RttTracker
from agents.mrc.sender.sent_packets import ACKED, LOST, SentPacket, SentPackets
from agents.mrc.sender.timers import Timers
from agents.packets import headers
from agents.transport import LONG_AGO, NEVER, Event, Foreign

REPORT_RTTS: Final = 5
UNREADABLE: Final = -1
"""Stands in ``wait`` if the memory cannot be read: the queue pair has to fail."""
SUMS: Final = (
    "data_tx",
    "retransmitted",
    "lost_by_order",
    "lost_by_time",
    "lost_by_rto",
    "lost_by_port",
    "lost_by_count",
    "trims",
    "trims_last_hop",
    "acquitted",
    "ev_swaps",
    "spurious",
    "bad_sacks",
)


class Requester:
    def __init__(
        self,
        config: Config,
        qpn: int,
        peer: int,
        paths: PathSet,
        congestion: Congestion,
        log: list[Event],
        deal: Deal,
    ) -> None:
        self.config = config
        self.qpn = qpn
        self.peer = peer
        self.paths = paths
        self.congestion = congestion
        congestion.attach(peer, qpn, log)
        self.log = log
        # bytes of a full packet, as congestion control counts them
        self.full = config.mtu + wire.COUNTED
        self.rtt = RttTracker(config.base_rtt, paths.planes)
        self.queue = SendQueue(qpn)
        self.sent = SentPackets(config.mpr, config.urgent)
        self.loss = LossDetection(config, self.rtt)
        self.timers = Timers(config)
        self.doubts = Doubts()
        self.suspicion = Suspicion(config, peer, paths, log)
        # of first planes, when it first has something to send: queue pairs that never send take
        # nobody's turn
        self.deal = deal
        self.wish = -1
        # next in rotation for packets that go for the first time; -1: not dealt yet
        self.plane = -1
        # likewise for those that go again: a retransmission takes no new packet's turn [ours]
        self.plane_again = 0
        self.wait = NEVER  # when the port that next_packet wanted is free
        self.newest = 0  # rcvd_bytes of the newest SACK, units of 256
        self.news = 0  # bytes that the last SACK added to it
        self.reported_ps = LONG_AGO
        self.last_ps = LONG_AGO  # when data last left
        # Counters.
        self.first_plane = -1  # by which its first packet left
        self.begun_as_dealt = False  # no plane had to be passed over for that
        # of planes that could not take a new packet: closed, without an EV, or all of theirs held
        self.turns_passed = 0
        self.data_tx = 0
        self.retransmitted = 0
        self.lost_by = [0, 0, 0, 0, 0]  # per rule of loss.py
        self.trims = 0  # NACKs for trimmed packets that had an effect
        self.trims_last_hop = 0
        self.acquitted = 0  # trims whose NACK came after the loss had been inferred
        self.spurious = 0
        self.bad_sacks = 0

    def start(self, now: int, psn: int, mpr: int, wish: int = -1) -> None:
        self.wish = wish
        self.sent.start(psn, mpr)
        self.queue.start(psn)
        self.timers.start(now)
        self.planes_changed()

    def planes_changed(self) -> None:
        self.congestion.planes_changed(max(1, self.paths.live_planes))

    def restart(self, psn: int, patience: int) -> bool:
        """Returns False if something was posted before. ``patience``: ps without progress."""
        if self.queue.msn:
            return False
        self.sent.restart(psn)
        self.queue.start(psn)
        self.timers.limit(patience)
        return True

    def post(self, wr_id: int, memory: memoryview | Foreign, va: int, rkey: int, imm: int) -> None:
        """A zero-length WRITE takes one PSN."""
        if self.sent.una == self.queue.end and not self.queue.messages:
            self.timers.posted()
            if self.plane < 0:
                self.plane = self.plane_again = self.deal.next(self.wish)
        self.queue.post(
            wr_id,
            memory,
            va,
            rkey,
            imm,
            max(1, (len(memory) + self.config.mtu - 1) // self.config.mtu),
        )

    # --- out --------------------------------------------------------------------------------------

    def has_data(self) -> bool:
        return self.sent.next < self.queue.end or len(self.sent.lost_queue) > 0

    def next_packet(self, now: int, free: vec[i64], slack: int) -> SentPacket | None:
        """None sets ``wait``, if only a busy port stands in the way, or :data:`UNREADABLE`.
        ``free``: when each port is free, ps; a packet may go ``slack`` ps before."""
        self.wait = NEVER
        sent = self.sent
        if sent.in_flight + self.full > self.congestion.cwnd:
            return None
        avoid: Path | None = None
        lost = sent.first_lost()
        if lost is not None:
            avoid = lost.path
            psn = lost.psn
            m = lost.message
        else:
            psn = sent.next
            if psn >= self.queue.end or psn >= sent.limit:
                return None
            m = self.queue.sending[0]
            if (
                m.imm >= 0
                and psn == m.last
                and m.rqmsn - self.queue.done_immediates >= self.config.max_wimm
            ):
                return None
        path = self._choose(now, free, slack, avoid)
        if path is None:
            return None
        if not m.read(psn, self.config.mtu):
            self.wait = UNREADABLE
            return None
        return self._send(now, path) if lost is None else self._send_again(now, path, lost)

    def _choose(self, now: int, free: vec[i64], slack: int, avoid: Path | None) -> Path | None:
        paths = self.paths
        n = paths.planes
        paths.share_window(self.congestion.cwnd, self.full)
        avoid_plane = avoid.plane if avoid is not None and paths.live_planes > 1 else -1
        weighted = paths.weighted and avoid is None
        plane = self.plane if avoid is None else self.plane_again
        passed = 0
        path: Path | None = None
        for looks in range(2 * n if weighted else n):
            # who has none sends if nobody else can
            if weighted and looks < n and not paths.has_turn(plane):
                # else it would gain again when this packet, kept waiting, asks again
                if plane == self.plane:
                    self.plane = (plane + 1) % n
            else:
                if plane != avoid_plane and paths.open[plane] and paths.usable[plane] > 0:
                    if free[plane] > now + slack:
                        self.wait = free[plane] - slack
                        return None
                    path = paths.pick(now, plane, avoid)
                    if path is not None:
                        break
                    if paths.full:
                        return None
                passed += 1
            plane = plane + 1 if plane + 1 < n else 0
        if path is None and avoid_plane >= 0 and free[avoid_plane] <= now + slack:
            # no other plane can take it now; another path of the same one, else the same
            plane = avoid_plane
            if paths.open[plane]:
                path = paths.pick(now, plane, avoid)
        if path is not None:
            after = plane + 1 if plane + 1 < n else 0
            if avoid is not None:
                self.plane_again = after
            else:
                self.plane = after
                self.turns_passed += passed
                if weighted:
                    paths.took_turn(plane)
        return path

    def _send(self, now: int, path: Path) -> SentPacket:
        m = self.queue.sending[0]
        at = (self.sent.next - m.first) * self.config.mtu
        packet = self.sent.sent(now, path, m, min(self.config.mtu, m.length - at) + wire.COUNTED)
        if self.first_plane < 0:
            self.first_plane = path.plane
            self.begun_as_dealt = self.turns_passed == 0
        self.queue.packet_sent(packet.psn)
        self._first_sent(now, packet)
        return packet

    def _send_again(self, now: int, path: Path, lost: SentPacket) -> SentPacket:
        packet = self.sent.sent_again(now, path)
        self.retransmitted += 1
        # those of trimmed packets are counted only: there may be thousands a second
        if lost.state == LOST:
            fields = {
                "peer": self.peer,
                "qpn": self.qpn,
                "ev": path.ev,
                "psn": packet.psn & headers.PSN_MASK,
                "count": packet.count,
            }
            self.log.append((now, "rtx", fields))
        self._first_sent(now, packet)
        return packet

    def _first_sent(self, now: int, packet: SentPacket) -> None:
        packet.path.sent(now, packet, self.config.base_rtt)
        self.data_tx += 1
        self.last_ps = now

    # --- in ---------------------------------------------------------------------------------------

    def acknowledge(self, now: int, psn: int) -> None:
        packet = self.sent.latest(psn)
        before = packet.state
        if before == ACKED:
            return
        self.sent.acked(packet)
        path = packet.path
        self.suspicion.arrived(path.plane, packet.sent_ps)
        if packet.count == 1:
            if path.arrived(packet.seq):
                self.loss.newer_arrived(path)
                path.delivered()
            self.sent.arrived(packet.seq)
        # some path was; not so for what a dead port or a full peer sent back
        if packet.blamed is not None:
            if before == LOST:
                if packet.count == 1:
                    self._spurious(now, packet, path)
            elif now - packet.sent_ps < self.rtt.soonest(packet.size, self.full):
                self._spurious(now, packet, packet.blamed)
        if packet.lost_once:
            self.log.append(
                (
                    now,
                    "redelivered",
                    {"peer": self.peer, "qpn": self.qpn, "psn": packet.psn & headers.PSN_MASK},
                )
            )

    def _spurious(self, now: int, packet: SentPacket, path: Path) -> None:
        self.spurious += 1
        self.loss.was_spurious()
        self.log.append(
            (
                now,
                "spurious",
                {"peer": self.peer, "ev": path.ev, "psn": packet.psn & headers.PSN_MASK},
            )
        )
        if packet.psn in self.doubts.open:
            self.doubts.drop(packet.psn)  # the verdict had not fallen yet
            return
        self.paths.undo(now, path)
        self.congestion.on_wrong_loss(now, packet.size)
        self.planes_changed()

    def on_sack(self, now: int, cack: int, offset: int, bitmap: int, rcvd: int, mpr: int) -> int:
        """Returns 1 for a SACK that is not older than the newest seen (clear bits count only then),
        0 if older, -1 if impossible. ``cack``: the wire's 24 bits; ``offset``: from cack to bit 0;
        ``mpr``: in units of 128 PSNs."""
        sent = self.sent
        edge = sent.una + headers.psn_delta(cack, sent.una) + 1
        base = edge - 1 + offset
        top = base + bitmap.bit_length()
        if edge > sent.next or (bitmap and top > sent.next) or edge < sent.una - sent.size:
            self.bad_sacks += 1
            return -1
        units = headers.psn_delta(rcvd, self.newest)
        fresh = units >= 0
        self.news = 0
        if fresh:
            self.news = units << 8
            self.newest = rcvd
        before = sent.una
        progress = False
        if bitmap:
            new = bitmap & ~sent.arrived_bitmap(base)
            while new:
                low = new & -new
                psn = base + low.bit_length() - 1
                self.acknowledge(now, psn)
                sent.note(psn)
                new ^= low
                progress = True
        # bit 0: una itself was reported, by a SACK that an ACK had overtaken
        if edge > sent.una or sent.received & 1:
            self.advance(now, max(edge, sent.una))
        if progress or sent.una > before:
            self.timers.progressed(now)
        sent.widen(edge, mpr * 128)
        return 1 if fresh else 0

    def advance(self, now: int, edge: int) -> None:
        for psn in range(self.sent.una, edge):
            self.acknowledge(now, psn)
        if self.sent.advance(edge):
            self.loss.forget()

    def sample(self, now: int, psn: int, rtx: bool, rtt: int) -> int:
        """Return the RTT as a full packet's; -1 unless (count, echoed rtx) = (1, 0) or (2, 1)
        (UET), and for what overtook other data."""
        packet = self.sent.find(psn)
        if packet is None or packet.count != (2 if rtx else 1):
            return -1
        full = self.rtt.as_full(rtt, packet.size, self.full)
        self.measured(now, packet.path.plane, full)
        # this very transmission has arrived, past the queues that congestion control is about
        if packet.urgent:
            if packet.path.arrived_urgent(packet.seq):
                self.loss.newer_arrived(packet.path)
            self.sent.arrived_urgent(packet.seq)
            return -1
        return full

    def measured(self, now: int, plane: int, rtt: int) -> None:
        self.rtt.sample(now, plane, rtt)
        if now - self.reported_ps >= REPORT_RTTS * self.config.base_rtt:
            self.reported_ps = now
            self.log.append(
                (
                    now,
                    "srtt",
                    {
                        "peer": self.peer,
                        "qpn": self.qpn,
                        "srtt_ps": self.rtt.srtt,
                        "window": self.congestion.cwnd,
                    },
                )
            )
        slack = self.config.base_rtt >> 2  # the receiver may hold a SACK that long
        self.paths.measured(
            self.rtt.srtt, [self.rtt.recent_max(p) + slack for p in range(self.paths.planes)]
        )

    def probe_answered(
        self, now: int, path: Path, seq: int, sent_ps: int, rtt: int, urgent: bool
    ) -> None:
        """``rtt``: as if the probe were a packet, or -1 if it was trimmed: then it overtook data
        and says nothing of order or delay. ``urgent``: it went with retransmissions that overtake
        data."""
        self.suspicion.arrived(path.plane, sent_ps)
        self.paths.probe_answered(now, path, sent_ps, self.rtt.srtt)
        self.planes_changed()
        if rtt >= 0:
            self.measured(now, path.plane, rtt)
            if path.arrived_urgent(seq) if urgent else path.arrived(seq):
                self.loss.newer_arrived(path)
            if urgent:
                self.sent.arrived_urgent(seq)
            else:
                self.sent.arrived(seq)

    def on_ack(self, now: int, psn: int) -> bool:
        last = self.sent.una + headers.psn_delta(psn, self.sent.una)
        if last >= self.sent.next:
            self.bad_sacks += 1
            return False
        if last + 1 > self.sent.una:
            self.advance(now, last + 1)
        if not self.queue.complete(last):
            return False
        self.timers.progressed(now)
        return True

    def may_end_at(self, psn: int) -> bool:
        """A refusing peer can have completed no less than it said before, and nothing that was
        never sent. An attacker would have to guess that [ours]."""
        last = self.sent.una + headers.psn_delta(psn, self.sent.una)
        messages = self.queue.messages
        if (messages[0].first if messages else self.sent.una) - 1 <= last < self.sent.next:
            return True
        self.bad_sacks += 1
        return False

    def trimmed(self, now: int, size: int, path: Path, last_hop: bool) -> None:
        self.trims += 1
        if last_hop:
            self.trims_last_hop += 1
        else:
            self.paths.marked(path)
        self.congestion.on_nack(now, size, self.sent.in_flight, True)
        self.timers.answered(now)

    def add_to(self, sums: list[int]) -> None:
        own = (
            self.data_tx,
            self.retransmitted,
            *self.lost_by,
            self.trims,
            self.trims_last_hop,
            self.acquitted,
            self.paths.swaps,
            self.spurious,
            self.bad_sacks,
        )
        for k, count in enumerate(own):
            sums[k] += count

    # --- verdicts and the end ---------------------------------------------------------------------

    def lose(self, now: int, packet: SentPacket, rule: int, name: str, blame: bool) -> None:
        if not packet.in_flight:
            return
        path = packet.path
        self.sent.lost(packet, blame)
        self.lost_by[rule] += 1
        self.paths.note_window(self.congestion.cwnd)
        fields = {
            "peer": self.peer,
            "qpn": self.qpn,
            "ev": path.ev,
            "psn": packet.psn & headers.PSN_MASK,
            "rule": name,
            "sent_ps": packet.sent_ps,
        }
        self.log.append((now, "loss", fields))
        if not blame:
            return
        if self.config.trimming and rule != RTO:
            # the copy before this one; both at once need an srtt far above the path's RTT
            if packet.psn in self.doubts.open:
                d = self.doubts.drop(packet.psn)
                self._convict(now, d.path, d.sent_ps, d.size, d.rule)
            self.doubts.add(
                packet.psn,
                Doubt(path, packet.sent_ps, now + (self.rtt.srtt >> 2), packet.size, name),
            )
        else:
            self._convict(now, path, packet.sent_ps, packet.size, name)

    def _convict(self, now: int, path: Path, sent: int, size: int, name: str) -> None:
        if self.suspicion.excused(path.plane, sent):
            return
        self.congestion.on_loss(now, size)
        self.paths.lost(now, path, sent, self.rtt.srtt, name)
        if self.config.blind:
            return
        back = self.suspicion.lost(now, path, sent, size, self.rtt.srtt)
        if back:
            self.congestion.on_wrong_loss(now, back)
        self.planes_changed()

    def acquit(self, packet: SentPacket) -> None:
        self.doubts.drop(packet.psn)
        self.sent.acquit(packet)
        self.acquitted += 1

    def settle_doubts(self, now: int) -> None:
        for d in self.doubts.due(now):
            self._convict(now, d.path, d.sent_ps, d.size, d.rule)

    def is_open(self) -> bool:
        return self.sent.una < self.sent.next or len(self.queue.messages) > 0

    def probe_at(self) -> int:
        return (
            self.timers.probe_at(self.rtt.srtt)
            if self.is_open() and not self.timers.starting
            else NEVER
        )

    def rto_at(self) -> int:
        return self.timers.rto_at() if self.is_open() and not self.timers.starting else NEVER

    def rto(self, now: int) -> bool:
        """Returns False when the retries are used up."""
        more = self.timers.fire(now)
        self.log.append(
            (
                now,
                "rto",
                {
                    "peer": self.peer,
                    "psn": self.sent.una & headers.PSN_MASK,
                    "firing": self.timers.firings,
                },
            )
        )
        if not more:
            return False
        flying = self.sent.flying()
        if flying:
            self.lose(now, flying[0], RTO, "rto", True)
        return True

    def flush(self, status: int) -> None:
        self.sent.flush()
        self.queue.flush(self.sent.una, status)
        self.doubts.clear()
        for path in self.paths.all:
            path.grounded()
