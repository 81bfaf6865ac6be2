"""One end of a simulated cable: the egress queue with the rules of testbed/dataplane/fabric.bpf.c, in the same words and counters.

Owned and driven by :mod:`testbed.simulated.network`. A frame is one bytearray from its sender to its receiver, changed in place as switches
change it. All times ns, all sizes bytes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from agents.packets import dscp
from agents.transport import LONG_AGO
from testbed.dataplane import layout
from topologies.clos import Fabric

_AT: Final = {name: i for i, name in enumerate(layout.STATS_WORDS)}
ADMITTED_BYTES: Final = _AT["admitted_bytes_data"]
ADMITTED_PACKETS: Final = _AT["admitted_packets_data"]
ARRIVED_BYTES: Final = _AT["arrived_bytes_data"]
ARRIVED_PACKETS: Final = _AT["arrived_packets_data"]
TAIL_PACKETS: Final = _AT["drop_tail_packets_data"]
TAIL_BYTES: Final = _AT["drop_tail_bytes_data"]
PEAK: Final = _AT["peak_bytes_data"]
LINK_DOWN: Final = _AT["drop_link_down"]
NO_ROUTE: Final = _AT["drop_no_route"]
NOT_MINE: Final = _AT["drop_not_mine"]
HOP_LIMIT: Final = _AT["drop_hop_limit"]
SWITCH_DOWN: Final = _AT["drop_switch_down"]
SILENT: Final = _AT["drop_silent"]
FAULT_LOSS: Final = _AT["drop_fault_loss"]
FAULT_PATH: Final = _AT["drop_fault_path"]
CORRUPTED: Final = _AT["corrupted"]
MARKED: Final = _AT["marked"]
TRIMMED: Final = _AT["trimmed"]
MET_BYTES: Final = _AT["met_bytes"]
MET_PACKETS: Final = _AT["met_packets"]
"""Places in :attr:`SimPort.stats`; for values by class it is the data class's; the high class's follows."""

IS_HIGH: Final = tuple(klass in (dscp.CONTROL, dscp.TRIMMED, dscp.TRIMMED_LASTHOP) for klass in range(64))
_MASK: Final = (1 << 64) - 1
_WHOLE: Final = 8_000_000_000
_HALF: Final = 16_000_000_000
"""Bits of a byte x ns of a second: over a rate, the time of a byte on the wire at all and at half of it."""
HIGH_CLASS_SHARE: Final = 4
"""As testbed/dataplane/loader.py: the high class's limit is this part of the buffer, at least 4096 bytes."""


def draw(seed: int, number: int, count: int) -> int:
    """Draw number ``count`` of a port, 32 bits, exactly as the eBPF programs draw it."""
    z = ((seed << 32 | number) * 0x9E3779B97F4A7C15 + count * 0xD1342543DE82EF95) & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return (z ^ z >> 31) >> 32


class SimPort:
    """``switch`` is False for a host's NIC, which only drops at the tail; ``last_hop`` is True from T0 to a host."""

    __slots__ = (
        "closed", "data", "ecn_high", "ecn_low", "far", "flushed", "high", "high_burst", "high_until", "host", "last_hop",
        "limit", "limit_high", "marks", "marks_mrc", "number", "plane", "prefix", "rate", "retry_at", "seed", "stats",
        "switch", "switch_number", "table", "trim_at", "trims", "waiting", "waiting_high", "wire", "wire_high",
    )  # fmt: skip

    def __init__(self, fabric: Fabric, number: int, plane: int, rate: int, switch: bool, last_hop: bool) -> None:
        self.number = number
        self.plane = plane
        self.switch = switch
        self.last_hop = last_hop
        self.far: SimPort = self  # until the network has joined them
        self.host = -1  # whose port it is, if a host's
        self.switch_number = -1  # or a switch's,
        self.prefix = b""  # with what frames for it begin their outer address,
        self.table: dict[int, SimPort] = {}  # and where it sends them: next uSID -> egress port
        self.stats = [0] * len(layout.STATS_WORDS)
        self.flushed = [0] * len(layout.FLUSHED_WORDS)
        self.closed = False  # the gate: the cable is down
        self.data: deque[bytearray] = deque()
        self.high: deque[bytearray] = deque()
        self.waiting = 0  # bytes of data; what is on the wire no longer waits, as with a token bucket
        self.waiting_high = 0
        self.wire: bytearray | None = None  # the frame on the wire
        self.wire_high = 0
        self.high_until = LONG_AGO  # when the high class's bucket is full again
        self.retry_at = LONG_AGO  # when the high class is to be tried again
        self.set_rate(rate)
        self.describe(fabric, 0)

    def set_rate(self, rate: int) -> None:
        """Bits/s from the next frame on. The high class may have half of it at most, and alone has a bucket: a wire never goes faster."""
        self.rate = rate
        self.high_burst = layout.high_burst_bytes(rate) * _HALF // rate

    def describe(self, fabric: Fabric, seed: int) -> None:
        """Limits and thresholds as ``fabric`` has them; ``seed`` (32 bits) is that of marking's draws."""
        self.limit = fabric.buffer_bytes
        self.limit_high = max(4096, fabric.buffer_bytes // HIGH_CLASS_SHARE)
        self.ecn_low, self.ecn_high = fabric.ecn_bytes
        self.trim_at = fabric.trim_bytes(self.last_hop)
        self.trims = self.switch and fabric.trimming
        self.marks = self.switch and fabric.ecn
        self.marks_mrc = self.marks and (not self.last_hop or fabric.last_hop_ecn)
        self.seed = seed & 0xFFFFFFFF

    def offer(self, frame: bytearray) -> bool:
        """Accept a frame, marked or trimmed according to its class and the backlog; False if it was dropped."""
        stats = self.stats
        if self.closed:
            stats[LINK_DOWN] += 1
            return False
        word = frame[14] << 8 | frame[15]
        klass = word >> 6 & 0x3F
        if IS_HIGH[klass]:
            return self._admit_high(frame)
        waiting = self.waiting
        length = len(frame)
        stats[MET_BYTES] += waiting
        count = stats[MET_PACKETS]
        stats[MET_PACKETS] = count + 1
        if waiting + length > self.trim_at and self.trims and (klass == dscp.TRIMMABLE or klass == dscp.TRIMMABLE_RETX):
            trim(frame, dscp.TRIMMED_LASTHOP if self.last_hop else dscp.TRIMMED)
            if not self._admit_high(frame):
                return False
            stats[TRIMMED] += 1
            return True
        backlog = waiting + length
        if backlog > self.limit:
            stats[TAIL_PACKETS] += 1
            stats[TAIL_BYTES] += length
            return False
        if waiting > self.ecn_low and (self.marks_mrc or (self.marks and klass == dscp.ROCE)):
            ecn = word >> 4 & 3
            if (ecn == 1 or ecn == 2) and (
                waiting >= self.ecn_high
                or draw(self.seed, self.number, count) * (self.ecn_high - self.ecn_low) < (waiting - self.ecn_low) << 32
            ):
                frame[15] |= dscp.CE << 4
                stats[MARKED] += 1
        stats[ADMITTED_BYTES] += length
        stats[ADMITTED_PACKETS] += 1
        if backlog > stats[PEAK]:
            stats[PEAK] = backlog
        self.waiting = backlog
        self.data.append(frame)
        return True

    def _admit_high(self, frame: bytearray) -> bool:
        stats = self.stats
        length = len(frame)
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

    def take(self, now: int) -> int:
        """Put the frame whose turn it is on the wire; its time there, or 0 when none may go now.

        The high class goes first while its bucket is not overdrawn. :meth:`high_at` says when it may go again.
        """
        if self.high and self.high_until - now <= self.high_burst:
            frame = self.high.popleft()
            length = len(frame)
            self.waiting_high -= length
            self.high_until = max(self.high_until, now) + length * _HALF // self.rate
            self.wire_high = 1
        elif self.data:
            frame = self.data.popleft()
            length = len(frame)
            self.waiting -= length
            self.wire_high = 0
        else:
            return 0
        self.wire = frame
        return length * _WHOLE // self.rate

    def high_at(self) -> int:
        """When the high class may send again."""
        return self.high_until - self.high_burst

    def flush(self) -> None:
        """The cable went down: all frames that wait or are on the wire are lost and counted as such."""
        self.data.clear()
        self.high.clear()
        self.waiting = self.waiting_high = 0
        self.wire = None
        own, far = self.stats, self.far.stats
        for klass in (0, 1):
            self.flushed[klass] = own[ADMITTED_BYTES + klass] - far[ARRIVED_BYTES + klass]
            self.flushed[2 + klass] = own[ADMITTED_PACKETS + klass] - far[ARRIVED_PACKETS + klass]


def trim(frame: bytearray, to: int) -> None:
    """Cut a frame to its headers under DSCP ``to``; the outer length says what is left, all else stays (docs/dataplane.md)."""
    if len(frame) > layout.TRIM_BYTES:
        del frame[layout.TRIM_BYTES :]
    left = len(frame) - 54
    if frame[18] << 8 | frame[19] > left:
        frame[18] = left >> 8
        frame[19] = left & 0xFF
    word = (frame[14] << 8 | frame[15]) & ~(0x3F << 6) | to << 6
    frame[14] = word >> 8
    frame[15] = word & 0xFF


def corrupt(frame: bytearray, random: int) -> bool:
    """Change one byte as the eBPF program does: a switch still forwards the frame, the receiver's checksum catches it. False if spared."""
    klass = (frame[14] << 8 | frame[15]) >> 6 & 0x3F
    if klass in (dscp.TRIMMED, dscp.TRIMMED_LASTHOP):
        return False
    length, first, summed = len(frame), layout.TRIM_BYTES, True
    if length <= layout.TRIM_BYTES:
        summed = not _is_mrc(frame)
        first = _INNER_UDP if summed else _BTH
    if length < first + 2:
        return False
    at = first + (random >> 8) % (length - first - (not summed))
    if not summed and at >= _BTH + 4:  # the one byte that the iCRC does not cover
        at += 1
    frame[at] ^= 1 + (random & 0xFF) % 0xFF
    return True


_INNER_UDP: Final = 14 + 40 + 40
_BTH: Final = _INNER_UDP + 8


def _is_mrc(frame: bytearray) -> bool:
    if len(frame) < _BTH or frame[20] != 41 or frame[60] != 17:
        return False
    return frame[_INNER_UDP + 2] << 8 | frame[_INNER_UDP + 3] in (layout.MRC_UDP_PORT, layout.PROBE_UDP_PORT)
