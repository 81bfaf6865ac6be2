"""The sending half of a QP: cuts messages into packets, sprays them, learns what became of each.

Sans-IO; called by the endpoint. PSNs are absolute here. Per-packet state lives in preallocated rings indexed by PSN modulo the
window; no object is made per packet. Loss verdicts are in loss.py, paths in path_set.py.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Final

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.paths.path import Path
from agents.mrc.paths.path_set import PathSet
from agents.mrc.paths.suspicion import Suspicion
from agents.mrc.sender.congestion.base import Congestion
from agents.mrc.sender.doubts import Doubt, Doubts
from agents.mrc.sender.message import Message
from agents.mrc.sender.rtt import RttTracker
from agents.packets import headers
from agents.transport import FLUSHED, LONG_AGO, NEVER, OK, WRITE, Completion, Event

SENT: Final = 1
ACKED: Final = 2
LOST: Final = 3  # waits to be sent again
CUT: Final = 4  # likewise, but nothing was lost: a switch trimmed it and the peer said so

ORDER: Final = 0
TIME: Final = 1
RTO: Final = 2
PORT: Final = 3
COUNT: Final = 4
"""Why a packet was given up: places in ``lost_by``; loss.py says what they mean."""


TELL_RTTS: Final = 5
"""RTT and window are logged every so many base RTTs while samples come."""


class Requester:
    """Send state of one QP."""

    def __init__(self, config: Config, qpn: int, peer: int, paths: PathSet, congestion: Congestion, log: list[Event]) -> None:
        n = config.mpr
        self.config = config
        self.qpn = qpn
        self.peer = peer
        self.paths = paths
        self.congestion = congestion
        congestion.attach(peer, qpn, log)
        self.log = log
        self.rtt = RttTracker(config.base_rtt, paths.planes)
        self.size = n
        # Rings by PSN.
        self.state = [0] * n
        self.sent_ns = [0] * n
        self.path: list[Path] = [paths.all[0]] * n
        self.seq = [0] * n  # place in the order of all transmissions of this QP
        self.count = [0] * n  # transmissions
        self.bytes = [0] * n  # as congestion control counts them
        self.message: list[Message | None] = [None] * n
        # Sequence space.
        self.una = 0  # lowest PSN not acknowledged
        self.next = 0  # next PSN to send for the first time
        self.end = 0  # first PSN not posted
        self.limit = 0  # first PSN beyond the peer's window
        self.acked = 0  # bit i: PSN una + i is acknowledged
        self.messages: deque[Message] = deque()  # posted and not completed
        self.sending: deque[Message] = deque()  # with PSNs not sent yet
        self.msn = 0
        self.immediates = 0
        self.done_immediates = 0
        self.in_flight = 0  # bytes, likewise
        self.lost_queue: list[int] = []  # PSNs, ascending
        self.psn_by_seq = [0] * (4 * n)  # which PSN a transmission carried
        self.order_at = 1  # oldest transmission not yet judged by time
        self.touched: list[Path] = []  # whose seq_high grew since the last verdicts
        self.seq_next = 1
        self.seq_high = 0  # highest seq known received at all
        self.plane = 0  # next in rotation
        self.newest = 0  # rcvd_bytes of the newest SACK, units of 256
        self.news = 0  # bytes that the last SACK added to it
        self.firings = 0  # RTOs without progress
        self.fired_ns = LONG_AGO  # the last of them
        self.progress_ns = LONG_AGO
        self.starting = False  # posted after idling: the timers start with the next look at the clock
        self.probes_since_progress = 0
        self.wait = NEVER  # when the port that next_packet wanted is free
        self.suspects: list[int] = []  # overtaken on their own path, waiting for a SACK that covers them; transmissions, as seq
        self.overdue: list[int] = []  # too late, likewise
        self.blamed: dict[int, Path] = {}  # PSNs sent again: the path that lost the first
        self.doubts = Doubts()
        self.suspicion = Suspicion(config, peer, paths, log)
        self.told_ns = LONG_AGO
        self.last_ns = LONG_AGO  # when data last left
        self.reo_extra = 0  # grows with wrong verdicts
        self.completions: list[Completion] = []
        # Chosen by next_packet.
        self.tx_psn = 0
        self.tx_path = paths.all[0]
        self.tx_message: Message | None = None
        self.tx_asks = False
        # Counters.
        self.data_tx = 0
        self.retransmitted = 0
        self.lost_by = [0, 0, 0, 0, 0]  # per rule of loss.py
        self.trims = 0  # NACKs for trimmed packets that were acted on
        self.trims_last_hop = 0
        self.acquitted = 0  # of them, such as came after the loss had been inferred
        self.spurious = 0
        self.bad_sacks = 0

    def start(self, now: int, psn: int, mpr: int) -> None:
        """First PSN, and the peer's window in PSNs."""
        self.una = self.next = self.end = psn
        self.limit = psn + min(mpr, self.size)
        self.progress_ns = now
        self.planes_changed()

    def planes_changed(self) -> None:
        """Which planes carry data may have changed: the window follows. With none it is that of one; nothing can go then anyway."""
        self.congestion.planes_changed(max(1, self.paths.live_planes()))

    def post(self, wr_id: int, memory: memoryview, va: int, rkey: int, imm: int) -> None:
        """Queue a WRITE. A zero-length one takes one PSN."""
        packets = max(1, (len(memory) + self.config.mtu - 1) // self.config.mtu)
        if self.una == self.end and not self.messages:
            self.starting = True
        m = Message(wr_id, memory, va, rkey, imm, self.end, self.end + packets - 1, self.msn, self.immediates)
        self.msn += 1
        if imm >= 0:
            self.immediates += 1
        self.end += packets
        self.messages.append(m)
        self.sending.append(m)

    # --- out -------------------------------------------------------------------------------------------------

    def next_packet(self, now: int, free: list[int], slack: int) -> bool:
        """Choose the next packet that may go: sets ``tx_*``; False sets ``wait`` if only a busy port stands in the way.

        ``free``: when each port has sent what it was given, ns; a packet may go ``slack`` ns before.
        """
        self.wait = NEVER
        full = self.config.mtu + wire.COUNTED
        if self.in_flight + full > self.congestion.cwnd:
            return False
        again = False
        psn = self.next
        avoid: Path | None = None
        while self.lost_queue:
            psn = self.lost_queue[0]
            if self.state[psn % self.size] >= LOST and psn >= self.una:
                again = True
                avoid = self.path[psn % self.size]
                break
            self.lost_queue.pop(0)
            psn = self.next
        if not again:
            if psn >= self.end or psn >= self.limit:
                return False
            m = self.sending[0]
            if m.imm >= 0 and psn == m.last and m.rqmsn - self.done_immediates >= self.config.max_wimm:
                return False
        paths = self.paths
        n = paths.planes
        paths.share_window(self.congestion.cwnd, full)
        avoid_plane = avoid.plane if avoid is not None and paths.live_planes() > 1 else -1
        plane = self.plane
        chosen: Path | None = None
        for _ in range(n):
            if plane != avoid_plane and paths.open[plane] and paths.usable[plane] > 0:
                if free[plane] > now + slack:
                    self.wait = free[plane] - slack
                    return False
                chosen = paths.pick(now, plane, avoid)
                if chosen is not None:
                    break
                if paths.full:
                    return False
            plane = plane + 1 if plane + 1 < n else 0
        if chosen is None and avoid_plane >= 0 and free[avoid_plane] <= now + slack:
            plane = avoid_plane  # no other plane can take it now; another path of the same one, else the same
            if paths.open[plane]:
                chosen = paths.pick(now, plane, avoid)
        if chosen is None:
            return False
        self.plane = plane + 1 if plane + 1 < n else 0
        self.tx_psn = psn
        self.tx_path = chosen
        if again:
            self.lost_queue.pop(0)
            self.tx_message = self.message[psn % self.size]
        else:
            self.tx_message = self.sending[0]
        self._record(now, psn, chosen, again)
        return True

    def _record(self, now: int, psn: int, path: Path, again: bool) -> None:
        slot = psn % self.size
        m = self.tx_message
        assert m is not None
        at = (psn - m.first) * self.config.mtu
        size = min(self.config.mtu, m.length - at) + wire.COUNTED
        if again:
            self.count[slot] += 1
            self.retransmitted += 1
            if self.state[slot] == LOST:  # those of trimmed packets are counted only: there may be thousands a second
                what = {"peer": self.peer, "qpn": self.qpn, "ev": path.ev, "psn": psn & headers.PSN_MASK, "count": self.count[slot]}
                self.log.append((now, "rtx", what))
        else:
            self.message[slot] = m
            self.count[slot] = 1
            self.next = psn + 1
            if psn == m.last:
                self.sending.popleft()
        self.tx_asks = self.next == self.end and not self.lost_queue
        self.state[slot] = SENT
        self.sent_ns[slot] = now
        self.path[slot] = path
        self.seq[slot] = self.seq_next
        self.seq_next += 1
        self.bytes[slot] = size
        self.in_flight += size
        self.data_tx += 1
        self.last_ns = now
        path.sent(now, self.seq[slot], self.config.base_rtt)
        self.psn_by_seq[self.seq[slot] % len(self.psn_by_seq)] = psn

    # --- in --------------------------------------------------------------------------------------------------

    def acknowledge(self, now: int, psn: int) -> None:
        """The peer has ``psn``: give back its window, credit its path."""
        slot = psn % self.size
        st = self.state[slot]
        if st == ACKED:
            return
        path = self.path[slot]
        if st == SENT:
            self.in_flight -= self.bytes[slot]
            path.landed()
        self.suspicion.arrived(path.plane, self.sent_ns[slot])
        if self.count[slot] == 1:
            if path.heard(self.seq[slot]):
                self.touched.append(path)
                path.delivered()
            if self.seq[slot] > self.seq_high:
                self.seq_high = self.seq[slot]
        if psn in self.blamed:  # some path was blamed; not so for what a dead port or a full peer sent back
            if st == LOST:
                if self.count[slot] == 1:
                    self._wrong(now, psn, path)
            elif now - self.sent_ns[slot] < self.rtt.soonest(self.bytes[slot], self.config.mtu + wire.COUNTED):
                self._wrong(now, psn, self.blamed[psn])
            del self.blamed[psn]
        self.state[slot] = ACKED
        self.refresh_oldest(path)

    def _wrong(self, now: int, psn: int, path: Path) -> None:
        """It had arrived after all: the verdict is undone and the next ones wait longer."""
        self.spurious += 1
        self.reo_extra = min(self.reo_extra + (self.config.base_rtt >> 2), 4 * self.config.base_rtt)
        self.log.append((now, "spurious", {"peer": self.peer, "ev": path.ev, "psn": psn & headers.PSN_MASK}))
        if psn in self.doubts.open:
            self.doubts.drop(psn)  # the verdict had not fallen yet
            return
        self.paths.undo(now, path)
        self.congestion.on_wrong_loss(now, self.bytes[psn % self.size])
        self.planes_changed()

    def in_flight_psn(self, seq: int) -> int:
        """The PSN that transmission ``seq`` carried if that very transmission is still in flight, else -1."""
        psn = self.psn_by_seq[seq % len(self.psn_by_seq)]
        slot = psn % self.size
        return psn if self.seq[slot] == seq and self.state[slot] == SENT and psn >= self.una else -1

    def refresh_oldest(self, path: Path) -> None:
        """Drop what is no longer in flight from the front of a path's queue."""
        q = path.outstanding
        while q:
            psn = self.in_flight_psn(q[0])
            if psn >= 0:
                path.set_oldest(self.sent_ns[psn % self.size])
                return
            q.popleft()
        path.set_oldest(NEVER)

    def on_sack(self, now: int, cack: int, offset: int, bitmap: int, rcvd: int, mpr: int) -> int:
        """What a SACK says arrived: 1 if it is not older than the newest seen (clear bits count only then), 0 if older, -1 if it lies.

        ``cack`` on the wire's 24 bits; ``offset`` from cack to bit 0; ``mpr`` in units of 128 PSNs.
        """
        edge = self.una + headers.psn_delta(cack, self.una) + 1
        base = edge - 1 + offset
        top = base + bitmap.bit_length()
        if edge > self.next or (bitmap and top > self.next) or edge < self.una - self.size:
            self.bad_sacks += 1
            return -1
        units = headers.s24(rcvd - self.newest)
        fresh = units >= 0
        self.news = 0
        if fresh:
            self.news = units << 8
            self.newest = rcvd
        before = self.una
        progress = False
        if bitmap:
            known = self.acked >> (base - self.una) if base >= self.una else self.acked << (self.una - base)
            if base < self.una:
                known |= (1 << (self.una - base)) - 1
            new = bitmap & ~known
            while new:
                low = new & -new
                psn = base + low.bit_length() - 1
                self.acknowledge(now, psn)
                self.acked |= 1 << (psn - self.una)
                new ^= low
                progress = True
        if edge > self.una or self.acked & 1:  # bit 0: una itself was told, by a SACK that a D1 had overtaken
            self.advance(now, max(edge, self.una))
        if progress or self.una > before:
            self.progress_ns = now
            self.firings = 0
            self.probes_since_progress = 0
        limit = self.una + min(mpr * 128, self.size)
        if limit > self.limit:
            self.limit = limit
        return 1 if fresh else 0

    def advance(self, now: int, edge: int) -> None:
        """Everything below ``edge`` is received."""
        for psn in range(self.una, edge):
            self.acknowledge(now, psn)
        shift = edge - self.una
        self.una = edge
        self.acked >>= shift
        run = ((~self.acked) & (self.acked + 1)).bit_length() - 1
        self.una += run
        self.acked >>= run
        if self.una >= self.next:
            self.in_flight = 0
            self.order_at = self.seq_next
            self.suspects.clear()
            self.overdue.clear()

    def sample(self, now: int, psn: int, rtx: bool, rtt: int) -> int:
        """A SACK's trigger had this RTT: a full packet's RTT, or -1 unless (count, echoed rtx) = (1, 0) or (2, 1) (UET)."""
        if psn >= self.next or psn < self.next - self.size:
            return -1
        slot = psn % self.size
        if self.count[slot] != (2 if rtx else 1):
            return -1
        full = self.rtt.as_full(rtt, self.bytes[slot], self.config.mtu + wire.COUNTED)
        self.measured(now, self.path[slot].plane, full)
        return full

    def measured(self, now: int, plane: int, rtt: int) -> None:
        """A valid RTT of a plane, ns."""
        self.rtt.sample(now, plane, rtt)
        if now - self.told_ns >= TELL_RTTS * self.config.base_rtt:
            self.told_ns = now
            self.log.append((now, "srtt", {"peer": self.peer, "qpn": self.qpn, "srtt_ns": self.rtt.srtt, "window": self.congestion.cwnd}))
        slack = self.config.base_rtt >> 2  # the receiver may hold a SACK that long
        self.paths.measured(self.rtt.srtt, [self.rtt.recent_max(p) + slack for p in range(self.paths.planes)])

    def on_ack(self, now: int, psn: int) -> bool:
        """D1: all messages up to PSN ``psn`` are complete at the peer. False if it says nothing new."""
        last = self.una + headers.psn_delta(psn, self.una)
        if last >= self.next:
            self.bad_sacks += 1
            return False
        if last + 1 > self.una:
            self.advance(now, last + 1)
        news = False
        while self.messages and self.messages[0].last <= last:
            m = self.messages.popleft()
            if m.imm >= 0:
                self.done_immediates += 1
            self.completions.append(Completion(self.qpn, m.wr_id, WRITE, OK, m.imm, m.length))
            news = True
        if news:
            self.progress_ns = now
            self.firings = 0
            self.probes_since_progress = 0
        return news

    def may_end_at(self, psn: int) -> bool:
        """Whether a peer that refuses a request can have completed all up to ``psn``, which is what it says with it: no less than it told
        us before, and nothing that was never sent. Whoever does not see our packets would have to guess that [ours].
        """
        last = self.una + headers.psn_delta(psn, self.una)
        return (self.messages[0].first if self.messages else self.una) - 1 <= last < self.next

    # --- verdicts and the end --------------------------------------------------------------------------------

    def lose(self, now: int, psn: int, rule: int, name: str, blame: bool) -> None:
        """Packet ``psn`` is lost: queue it again; its path is out of use at once if it is to blame."""
        slot = psn % self.size
        if self.state[slot] != SENT or psn < self.una:
            return
        self.state[slot] = LOST
        self.in_flight -= self.bytes[slot]
        path = self.path[slot]
        path.landed()
        insort(self.lost_queue, psn)
        self.lost_by[rule] += 1
        self.paths.note_window(self.congestion.cwnd)
        said = {
            "peer": self.peer, "qpn": self.qpn, "ev": path.ev, "psn": psn & headers.PSN_MASK, "rule": name,
            "sent_ns": self.sent_ns[slot],
        }  # fmt: skip
        self.log.append((now, "loss", said))
        if blame:
            self.blamed[psn] = path
            if self.config.trimming and rule != RTO:
                if psn in self.doubts.open:  # the copy before this one; both at once need an srtt far above the path's RTT
                    d = self.doubts.drop(psn)
                    self._convict(now, d.path, d.sent_ns, d.size, d.rule)
                self.doubts.add(psn, Doubt(path, self.sent_ns[slot], now + (self.rtt.srtt >> 2), self.bytes[slot], name))
            else:
                self._convict(now, path, self.sent_ns[slot], self.bytes[slot], name)
        elif psn in self.blamed:
            del self.blamed[psn]
        self.refresh_oldest(path)

    def _convict(self, now: int, path: Path, sent: int, size: int, name: str) -> None:
        """The path lost it."""
        if self.suspicion.excused(path.plane, sent):
            return
        self.congestion.on_loss(now, size)
        self.paths.lost(now, path, sent, self.rtt.srtt, name)
        if self.config.oblivious:
            return
        back = self.suspicion.lost(now, path, sent, size, self.rtt.srtt)
        if back:
            self.congestion.on_wrong_loss(now, back)
        self.planes_changed()

    def settle_doubts(self, now: int) -> None:
        """No NACK came for what is due: those paths lost it."""
        for d in self.doubts.due(now):
            self._convict(now, d.path, d.sent_ns, d.size, d.rule)

    def flush(self, status: int) -> None:
        """The QP is in ERROR: the first outstanding request gets the cause, all others flush, in order."""
        while self.messages:
            m = self.messages.popleft()
            self.completions.append(Completion(self.qpn, m.wr_id, WRITE, status, m.imm, m.length))
            status = FLUSHED
        self.sending.clear()
        self.lost_queue.clear()
        self.doubts.clear()
        self.end = self.next = self.una
        self.in_flight = 0
        for path in self.paths.all:
            path.grounded()
