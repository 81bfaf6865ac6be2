"""Reads the memory-mapped receive ring of one host, and holds every frame there until it is due.

The kernel writes a frame into a slot (TPACKET_V2). First its header is read; when the delay line
says so, the engine reads the frame and the slot goes back to the kernel, out of order. The kernel
looks at its next slot only and drops (and counts) frames while that one is held: the ring is full
when its oldest frame lies a whole lap back.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from librt.strings import read_i16_be, read_i16_le, read_i32_be, read_i32_le
from librt.vecs import vec
from mypy_extensions import i64

from agents.clock import WallClock
from agents.delay_line import CUT, INNER_LENGTH, UNCOUNTED, DelayLine
from agents.packets.headers import u16
from agents.transport import LONG_AGO, FrameIO

_LITTLE: Final = sys.byteorder == "little"

# Where the parts of a slot's header are, tpacket2_hdr and sockaddr_ll, in the machine's byte order.
# Times are of the real-time clock.
_LENGTH: Final = 4
_KEPT: Final = 8
_FRAME: Final = 12  # where the frame begins
_SECONDS: Final = 16
_NANOSECONDS: Final = 20
_INTERFACE: Final = 36
_LOOK: Final = 160  # bytes of a slot that are looked at: its header, and the head of its frame
_NEW: Final = 1  # status bit TP_STATUS_USER: the kernel has filled the slot
# what we make of it once we know the frame; the kernel leaves every slot alone whose status is not
# 0
_HELD: Final = 2
# where the outer header begins; its traffic class lies across the first two bytes
_CLASS: Final = 14
_HOP_LIMIT: Final = 21


def _word(slot: bytes, at: i64) -> i64:
    return i64(read_i32_le(slot, at) if _LITTLE else read_i32_be(slot, at)) & 0xFFFF_FFFF


class ReceiveRing:
    def __init__(
        self,
        memory: Any,
        block: int,
        blocks: int,
        slot: int,
        port_of: dict[int, int],
        line: DelayLine,
        clock: WallClock,
    ) -> None:
        per_block = block // slot
        self.slots: i64 = per_block * blocks
        self.offsets = vec[i64](
            [k // per_block * block + k % per_block * slot for k in range(self.slots)]
        )
        self.view = memoryview(memory)
        self.words = self.view.cast("I")
        self.port_of = port_of
        self.line = line
        self.clock = clock
        self.at: i64 = 0  # the slot that is filled next
        self.starts = vec[i64]([0] * self.slots)  # where the frame begins
        self.lengths = vec[i64]([0] * self.slots)
        self.ports = vec[i64]([0] * self.slots)
        self.held: i64 = 0
        self.looked: i64 = LONG_AGO  # when the ring was last found without a new frame
        self.first_due: i64 = LONG_AGO  # of the last batch handed over
        self.not_ours = 0

    def look(self, mono: i64, real: i64) -> None:
        """``real``, then ``mono``: this machine's two clocks, read in this order just before, ns. A
        pause between the readings makes a frame late, never early. If the real-time clock is set
        meanwhile, a frame's time is wrong by at most the time since the last look."""
        view = self.view
        words = self.words
        at = self.at
        offset = self.offsets[at]
        behind = mono - real
        now: i64 = self.clock.at(mono)
        while words[offset >> 2] & _NEW:
            slot = bytes(view[offset : offset + _LOOK])
            port: i64 = self.port_of.get(_word(slot, _INTERFACE), -1)
            if port >= 0:
                length = _word(slot, _LENGTH)
                begin = (
                    i64(read_i16_le(slot, _FRAME) if _LITTLE else read_i16_be(slot, _FRAME))
                    & 0xFFFF
                )
                arrival: i64 = self.clock.at(
                    _word(slot, _SECONDS) * 1_000_000_000 + _word(slot, _NANOSECONDS) + behind
                )
                if arrival > now:  # it came while we look, or the clock was set
                    present: i64 = self.clock.now()
                    arrival = arrival if arrival < present else present
                elif arrival < self.looked:
                    arrival = self.looked
                klass = (i64(slot[begin + _CLASS]) & 15) << 2 | i64(slot[begin + _CLASS + 1]) >> 6
                missing: i64 = 0
                if klass in CUT:
                    missing = u16(slot, begin + INNER_LENGTH) + UNCOUNTED - length
                self.line.put(at, arrival, port, klass, slot[begin + _HOP_LIMIT], length, missing)
                self.starts[at] = offset + begin
                self.lengths[at] = _word(slot, _KEPT)
                self.ports[at] = port
                self.held += 1
                words[offset >> 2] = _HELD
            else:
                self.not_ours += 1
                words[offset >> 2] = 0
            at = at + 1 if at + 1 < self.slots else 0
            offset = self.offsets[at]
        self.at = at
        self.looked = now

    def hand_over(self, engine: FrameIO, now: i64, most: i64) -> i64:
        line = self.line
        n: i64 = 0
        while n < most and line.next <= now:
            if n == 0:
                self.first_due = line.next
            at = line.take()
            # A frame longer than a slot was cut by the kernel: its length says so and the engine
            # refuses it.
            engine.receive(now, self.ports[at], self.view, self.starts[at], self.lengths[at])
            self.held -= 1
            self.words[self.offsets[at] >> 2] = 0
            n += 1
        return n

    def next_look(self) -> i64:
        unseen = self.looked + self.line.shortest
        return unseen if unseen < self.line.next else self.line.next

    def close(self) -> None:
        self.words.release()
        self.view.release()
