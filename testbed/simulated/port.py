"""One end of a simulated cable: the egress queue with the rules of testbed/dataplane/fabric.bpf.c,
in the same words and counters. All times ps, all sizes bytes."""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from agents.packets import dscp
from agents.transport import LONG_AGO
from testbed.dataplane import layout
from testbed.simulated.frame import LANDING, PORT_BITS, STAGE_AT, Event, Fifo, Frame
from testbed.simulated.pool import Held, Pool
from topologies.clos import Fabric
from topologies.units import BYTE

_AT: Final = {name: i for i, name in enumerate(layout.STATS_WORDS)}
ADMITTED_BYTES: Final[i64] = _AT["admitted_bytes_data"]
ADMITTED_PACKETS: Final[i64] = _AT["admitted_packets_data"]
ARRIVED_BYTES: Final[i64] = _AT["arrived_bytes_data"]
ARRIVED_PACKETS: Final[i64] = _AT["arrived_packets_data"]
TAIL_PACKETS: Final[i64] = _AT["drop_tail_packets_data"]
TAIL_BYTES: Final[i64] = _AT["drop_tail_bytes_data"]
PEAK: Final[i64] = _AT["peak_bytes_data"]
LINK_DOWN: Final[i64] = _AT["drop_link_down"]
NO_ROUTE: Final[i64] = _AT["drop_no_route"]
NOT_MINE: Final[i64] = _AT["drop_not_mine"]
SPOOFED: Final[i64] = _AT["drop_spoofed"]
HOP_LIMIT: Final[i64] = _AT["drop_hop_limit"]
SWITCH_DOWN: Final[i64] = _AT["drop_switch_down"]
SILENT: Final[i64] = _AT["drop_silent"]
FAULT_LOSS: Final[i64] = _AT["drop_fault_loss"]
FAULT_PATH: Final[i64] = _AT["drop_fault_path"]
CORRUPTED: Final[i64] = _AT["corrupted"]
MARKED: Final[i64] = _AT["marked"]
TRIMMED: Final[i64] = _AT["trimmed"]
MET_BYTES: Final[i64] = _AT["met_bytes"]
MET_PACKETS: Final[i64] = _AT["met_packets"]
"""Places in :attr:`SimPort.stats`; of a value kept by class the data class's, before the high
class's."""

NIC: Final = 0
UP: Final = 1
DOWN: Final = 2  # from T1
LAST: Final = 3
_MASK: Final = (1 << 64) - 1
PLANE_AT: Final[i64] = 12
"""Of a uSID: see topologies.addressing."""
WHOLE: Final[i64] = BYTE
_HALF: Final[i64] = 2 * BYTE
"""Divided by a rate, these give the time of a byte on the wire at that rate, and at half of it."""
HIGH_CLASS_SHARE: Final = 4
"""The high class's limit is this part of the buffer, at least 4096 bytes, as in
testbed/dataplane/loader.py."""


def draw(seed: int, number: int, count: int) -> int:
    """Draw 32 bits exactly as the eBPF programs do."""
    z = ((seed << 32 | number) * 0x9E3779B97F4A7C15 + count * 0xD1342543DE82EF95) & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return (z ^ z >> 31) >> 32


def is_high(klass: i64) -> bool:
    return (
        klass == dscp.CONTROL
        or klass == dscp.TRIMMED
        or klass == dscp.TRIMMED_LASTHOP
        or klass == dscp.RETX_HIGH
    )


class Pause:
    def __init__(self) -> None:
        self.on = False
        self.since: i64 = LONG_AGO
        self.count: i64 = 0
        self.total_ps: i64 = 0
        self.longest_ps: i64 = 0

    def begin(self, now: i64) -> None:
        self.on = True
        self.since = now
        self.count += 1

    def end(self, now: i64) -> None:
        lasted = now - self.since
        self.on = False
        self.total_ps += lasted
        if lasted > self.longest_ps:
            self.longest_ps = lasted

    def row(self, now: i64) -> tuple[i64, i64, i64]:
        lasts: i64 = now - self.since if self.on else 0
        return self.count, self.total_ps + lasts, max(self.longest_ps, lasts)


class SimPort(Event):
    """``stage`` says how many switches a frame has met: none at a host's NIC, which only drops at
    the tail, then :data:`UP`, :data:`DOWN` and :data:`LAST`. As an event: its wire is free
    again."""

    def __init__(self, fabric: Fabric, number: int, plane: int, rate: int, stage: int) -> None:
        super().__init__()
        self.number: i64 = number
        self.plane: i64 = plane
        self.stage: i64 = stage
        self.last_hop = stage == LAST
        self.far: SimPort = self  # until the network has joined them
        self.host: i64 = -1  # whose port it is, if a host's
        self.switch_number: i64 = -1  # or a switch's,
        # at a T0's port to a host: the last 16 bits of the host's inner addresses
        self.source: i64 = 0
        self.usid: i64 = 0  # which is the first in frames for it,
        self.avoided: set[int] = set()  # T0s that its T1 has no way to (adaptive routing)
        # and where it sends them: egress port by what is below the plane in the next uSID
        self.table: list[SimPort | None] = []
        self.stats = vec[i64]([0] * len(layout.STATS_WORDS))
        self.flushed = [0] * len(layout.FLUSHED_WORDS)
        self.closed = False  # the gate: the cable is down
        self.data = Fifo()
        self.high = Fifo()
        # bytes of data; what is on the wire no longer waits, as with a token bucket
        self.waiting: i64 = 0
        self.waiting_high: i64 = 0
        self.wire: Frame | None = None  # the frame on the wire
        self.turns: i64 = 0  # frames that have been there so far
        self.high_until: i64 = LONG_AGO  # when the high class's bucket is full again
        self.retry_at: i64 = LONG_AGO  # when the high class is to be tried again
        self.rate: i64 = rate
        self.high_burst: i64 = 0
        self.limit: i64 = 0
        self.limit_high: i64 = 0
        self.ecn_low: i64 = 0
        self.ecn_high: i64 = 0
        self.trim_at: i64 = 0
        self.trims = self.marks = self.marks_mrc = False
        self.pmax: i64 = 0
        # of a switch that shares its memory, until the network has given it the switch's
        self.pool = Pool()
        self.lossless = False
        self.held = Held()  # as a switch's ingress (PFC)
        self.pause = Pause()
        self.seed: i64 = 0
        self.set_rate(rate)
        self.describe(fabric, 0)

    def route(self, frame: Frame) -> SimPort | None:
        """Take the switch's own uSID away; None: dropped, counted."""
        stats = self.stats
        if self.source and frame.spoofed(self.source):
            stats[SPOOFED] += 1
            return None
        if not frame.tunnelled or frame.usid() != self.usid:
            stats[NOT_MINE] += 1
            return None
        # again, if the shift brings the own uSID to the front once more
        while frame.usid() == self.usid:
            if frame.hop_limit <= 1:
                stats[HOP_LIMIT] += 1
                return None
            frame.shift()
        after = frame.usid()
        at = after & (1 << PLANE_AT) - 1
        egress = (
            self.table[at] if after >> PLANE_AT == self.plane and at < len(self.table) else None
        )
        if egress is None:
            stats[NO_ROUTE] += 1
        return egress

    def set_rate(self, rate: int) -> None:
        """The rate counts from the next frame on. The high class may have half, and alone has a
        bucket: a wire never goes faster."""
        self.rate = rate
        self.high_burst = layout.high_burst_bytes(rate) * _HALF // self.rate

    def describe(self, fabric: Fabric, seed: int) -> None:
        self.limit = fabric.port_bytes
        self.limit_high = max(4096, fabric.port_bytes // HIGH_CLASS_SHARE)
        low, high = fabric.ecn_bytes
        self.ecn_low, self.ecn_high, self.pmax = (
            low,
            high,
            round(fabric.ecn_pmax * layout.ECN_CERTAIN) << 1,
        )
        self.trim_at = fabric.trim_bytes(self.last_hop)
        self.trims = self.stage != NIC and fabric.trimming
        self.marks = self.stage != NIC and fabric.ecn
        self.marks_mrc = self.marks and (not self.last_hop or fabric.last_hop_ecn)
        self.seed = seed & 0xFFFFFFFF
        self.lossless = fabric.pfc
        self.pause.longest_ps = 0
        self.held.describe(fabric, self.rate)

    def offer(self, frame: Frame) -> bool:
        """Mark or trim according to class and backlog; False if dropped."""
        stats = self.stats
        if self.closed:
            stats[LINK_DOWN] += 1
            return False
        klass = frame.klass()
        if is_high(klass):
            if (
                klass == dscp.RETX_HIGH
                and self.trims
                and self.waiting_high + frame.size > self.trim_at
            ):
                return self._trim(frame)
            return self._admit_high(frame)
        waiting = self.waiting
        length = frame.size
        stats[MET_BYTES] += waiting
        count = stats[MET_PACKETS]
        stats[MET_PACKETS] = count + 1
        backlog = waiting + length
        trim_at, limit, pool = self.trim_at, self.limit, self.pool
        shares = pool.size > 0 and frame.ingress < 0  # what an ingress holds is in the pool already
        if shares:
            limit = pool.room(length)
            if limit < trim_at:
                trim_at = limit
        if (
            backlog > trim_at
            and self.trims
            and (klass == dscp.TRIMMABLE or klass == dscp.TRIMMABLE_RETX)
        ):
            return self._trim(frame)
        if backlog > limit and not (self.lossless and klass == dscp.ROCE):
            stats[TAIL_PACKETS] += 1
            stats[TAIL_BYTES] += length
            return False
        if waiting > self.ecn_low and (self.marks_mrc or (self.marks and klass == dscp.ROCE)):
            ecn = frame.word >> 4 & 3
            if (ecn == 1 or ecn == 2) and (waiting >= self.ecn_high or self._drawn(count, waiting)):
                frame.mark()
                stats[MARKED] += 1
        stats[ADMITTED_BYTES] += length
        stats[ADMITTED_PACKETS] += 1
        if backlog > stats[PEAK]:
            stats[PEAK] = backlog
        if shares:
            pool.take(length)
        self.waiting = backlog
        self.data.append(frame)
        return True

    def _drawn(self, count: int, waiting: i64) -> bool:
        return (
            draw(self.seed, self.number, count) * (self.ecn_high - self.ecn_low)
            < (waiting - self.ecn_low) * self.pmax
        )

    def _trim(self, frame: Frame) -> bool:
        frame.trim(dscp.TRIMMED_LASTHOP if self.last_hop else dscp.TRIMMED)
        if not self._admit_high(frame):
            return False
        self.stats[TRIMMED] += 1
        return True

    def _admit_high(self, frame: Frame) -> bool:
        stats = self.stats
        length = frame.size
        backlog = self.waiting_high + length
        if backlog > self.limit_high:
            stats[TAIL_PACKETS + 1] += 1
            stats[TAIL_BYTES + 1] += length
            return False
        stats[ADMITTED_BYTES + 1] += length
        stats[ADMITTED_PACKETS + 1] += 1
        if backlog > stats[PEAK + 1]:
            stats[PEAK + 1] = backlog
        self.waiting_high = backlog
        self.high.append(frame)
        return True

    # --- PFC --------------------------------------------------------------------------------------

    def hold(self, frame: Frame) -> bool:
        if not self.held.hold(frame.size, self.pool):
            self.stats[TAIL_PACKETS] += 1
            self.stats[TAIL_BYTES] += frame.size
            return False
        frame.ingress = self.number
        return True

    # --- the wire ---------------------------------------------------------------------------------

    def waits(self) -> bool:
        return self.data.first is not None or self.high.first is not None

    def take(self, now: i64) -> i64:
        """Put a frame on the wire; returns its time there, or 0 when none may go. The high class
        goes first while its bucket is not overdrawn; :meth:`high_at` says when it may go again."""
        if self.high.first is not None and self.high_until - now <= self.high_burst:
            frame = self.high.pop()
            length = frame.size
            self.waiting_high -= length
            self.high_until = (
                self.high_until if self.high_until > now else now
            ) + length * _HALF // self.rate
        elif self.data.first is not None and not self.pause.on:
            frame = self.data.pop()
            length = frame.size
            self.waiting -= length
            if self.pool.size > 0 and frame.ingress < 0:
                self.pool.used -= length
        else:
            return 0
        self.wire = frame
        return length * WHOLE // self.rate

    def next_order(self) -> i64:
        """Draw the order of the next frame among those that land at the same time. With a fixed
        order of ports the first would win every race for the last place in a queue (the phase
        effects of Floyd and Jacobson, 1992). The stage comes before the draw: where switches cut
        through, a frame may leave several at one time, and what follows from an event comes after
        it."""
        turn = self.turns
        self.turns = turn + 1
        z: i64 = (
            self.number * 0x9E3779B1 + (turn & 0x3FFFFFFF) * 0x85EBCA77 + self.seed
        ) & 0xFFFFFFFF
        z = (z ^ z >> 16) * 0x21F0AAAD & 0xFFFFFFFF
        z = (z ^ z >> 15) * 0x735A2D97 & 0xFFFFFFFF
        return LANDING | self.stage << STAGE_AT | (z ^ z >> 15) << PORT_BITS | self.number

    def high_at(self) -> i64:
        return self.high_until - self.high_burst

    def flush(self, whole: bool) -> list[Frame]:
        """Lose and count all frames that wait; returns those of data. ``whole``: with the one on
        the wire, no part of which is yet at the far end."""
        lost = self.data.frames()
        if self.pool.size > 0:
            for frame in lost:
                if frame.ingress < 0:
                    self.pool.used -= frame.size
        self.data.clear()
        self.high.clear()
        self.waiting = self.waiting_high = 0
        if whole:
            self.wire = None
        own, far = self.stats, self.far.stats
        for klass in (0, 1):
            self.flushed[klass] = own[ADMITTED_BYTES + klass] - far[ARRIVED_BYTES + klass]
            self.flushed[2 + klass] = own[ADMITTED_PACKETS + klass] - far[ARRIVED_PACKETS + klass]
        return lost
