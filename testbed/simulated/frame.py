"""Events of a simulated network, and its frames, which are events themselves.

The few bytes of the outer header that switches read and change are kept beside the bytes as
numbers; :meth:`Frame.contents` puts them back. A payload stays where its sender has it, and the
checksum is not computed, until somebody wants the bytes. All times ps, all sizes bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be
from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr, u8

from agents.packets import dscp
from agents.packets.headers import ICRC, S_ICRC, icrc_of
from agents.transport import LONG_AGO, NEVER
from testbed.dataplane import layout
from topologies.addressing import BACKGROUND_PREFIX, BLOCK, INNER_PREFIX

OUTER: Final = 54
_LENGTH: Final = 18  # of the outer header's payload
_HOP_LIMIT: Final = 21
_BLOCK: Final = 38  # the locator block, then six uSIDs
_USIDS: Final = 42
_INNER_UDP: Final = 14 + 40 + 40
_BTH: Final = _INNER_UDP + 8
_NEXT_HEADER: Final = 20
_INNER_SOURCE: Final = 62
_OWN_BLOCK: Final = int.from_bytes(BLOCK, "big", signed=True)
_ETHERTYPE: Final = 0x86DD - (1 << 16)
_INNER_NET: Final = int.from_bytes(INNER_PREFIX[:8], "big", signed=True)
_BACKGROUND_NET: Final = int.from_bytes(BACKGROUND_PREFIX, "big", signed=True)
_EXTENSIONS: Final = (0, 43, 44, 51, 60)
"""Next headers that may hide another one (RFC 8200), as in spoofed() of fabric.bpf.c."""
_TRIM: Final[i64] = layout.TRIM_BYTES


_KIND: Final[i64] = 1 << 58
ARRIVAL: Final[i64] = 0 * _KIND  # at a host, after all its delay
LANDING: Final[i64] = 1 * _KIND  # at a cable's far end
RETRY: Final[i64] = 2 * _KIND  # of a high class whose bucket was overdrawn
PAUSE: Final[i64] = 3 * _KIND  # and its end
WAKE: Final[i64] = 4 * _KIND  # of a host
PORT_BITS: Final[i64] = 24
"""Bits of an order with a port's number. Above them are 32 drawn bits and the two of a port's
stage."""
STAGE_AT: Final[i64] = PORT_BITS + 32


def within_kind(order: i64) -> i64:
    return order & _KIND - 1


class Event:
    """Something that happens ``at`` a time; the least ``order`` comes first. An order is computed
    from what its own port or host knows, never from when it was entered. So events of one time
    happen in the same order in one process and in several."""

    def __init__(self) -> None:
        self.at: i64 = LONG_AGO
        self.order: i64 = 0


def before(event: Event, other: Event) -> bool:
    return event.at < other.at or (event.at == other.at and event.order < other.order)


class Call(Event):
    def __init__(self, action: Callable[[Any, Any], None], a: Any, b: Any) -> None:
        super().__init__()
        self.action = action
        self.a = a
        self.b = b


@mypyc_attr(allow_interpreted_subclasses=True)
class Sleeper:
    def woken(self, at: int) -> None:
        """Act on an alarm that was set for ``at``."""
        raise NotImplementedError


@mypyc_attr(free_list_len=1)
class Alarm(Event):
    def __init__(self, sleeper: Sleeper) -> None:
        super().__init__()
        self.sleeper = sleeper


# not acyclic: a long queue of those that is dropped corrupts memory (mypyc 2.4, CPython's trashcan)
@mypyc_attr(free_list_len=1)
class Frame(Event):
    """``data``: all of it, or headers, if ``payload`` and ``tail`` (padding and checksum) stand
    apart. ``summed``: the checksum is there, and no gap of four bytes."""

    def __init__(
        self, data: bytes, payload: memoryview | None = None, tail: bytes = b"", summed: bool = True
    ) -> None:
        self.at = LONG_AGO
        self.order = 0
        self.data = data
        self.payload = payload
        self.tail = tail
        self.summed = summed
        self.intact = True  # but for the outer header, it is as it was sent
        self.size: i64 = len(data) + len(tail)
        if payload is not None:
            self.size += len(payload)
        # version, traffic class, first bits of the flow label
        self.word: i64 = i64(read_i16_be(data, 14)) & 0xFFFF
        self.hop_limit: i64 = data[_HOP_LIMIT]
        self.tunnelled: bool = (
            read_i16_be(data, 12) == _ETHERTYPE and read_i32_be(data, _BLOCK) == _OWN_BLOCK
        )
        self.front: i64 = read_i64_be(data, _USIDS - 2) & 0xFFFF_FFFF_FFFF  # uSIDs 1 to 3
        self.back: i64 = read_i64_be(data, _USIDS + 4) & 0xFFFF_FFFF_FFFF  # and 4 to 6
        self.port: i64 = -1  # the number of the port on whose wire it is, or at which it arrives
        # it is at the far end of a host's cable: that of its NIC port, or that of its last link,
        # when its delay passes
        self.landed = False
        self.complete = False  # its bytes are as they are now
        # the number of the port that holds room for it in the switch where it waits (PFC)
        self.ingress: i64 = -1
        self.next: Frame | None = None  # behind it in a queue

    def klass(self) -> i64:
        return self.word >> 6 & 0x3F

    def usid(self) -> i64:
        return self.front >> 32

    def second(self) -> i64:
        return self.front >> 16 & 0xFFFF

    def rename(self, usid: i64) -> None:
        self.front = usid << 32 | self.front & 0xFFFF_FFFF

    def shift(self) -> None:
        """NEXT-C-SID of RFC 9800."""
        self.hop_limit -= 1
        self.front = (self.front & 0xFFFF_FFFF) << 16 | self.back >> 32
        self.back = (self.back & 0xFFFF_FFFF) << 16

    def spoofed(self, source: i64) -> bool:
        """Say whether the inner source is another host than ``source``, exactly as in
        fabric.bpf.c."""
        data = self.data
        if read_i16_be(data, 12) != _ETHERTYPE:
            return False
        if data[_NEXT_HEADER] != 41:
            return data[_NEXT_HEADER] in _EXTENSIONS
        if len(data) < _INNER_UDP:
            return False
        high, low = read_i64_be(data, _INNER_SOURCE), read_i64_be(data, _INNER_SOURCE + 8)
        if high >> 16 == _BACKGROUND_NET:
            return False
        return high != _INNER_NET or low >> 32 != 0 or low & 0xFFFF != source

    def mark(self) -> None:
        self.word |= dscp.CE << 4

    def trim(self, to: int) -> None:
        """Cut the frame to its headers under DSCP ``to``; the outer length says what is left
        (docs/why/dataplane.md)."""
        self._join()
        data = self.data
        self.intact = False
        if self.size > _TRIM:
            data = data[: layout.TRIM_BYTES]
            self.size = _TRIM
            self.summed = True  # it went with the rest
        left = len(data) - OUTER
        if data[_LENGTH] << 8 | data[_LENGTH + 1] > left:
            data = data[:_LENGTH] + left.to_bytes(2, "big") + data[_LENGTH + 2 :]
        self.data = data
        self.word = self.word & ~(0x3F << 6) | to << 6

    def corrupt(self, random: int) -> bool:
        """Change one byte as the eBPF program does: switches still forward it, the receiver's
        checksum catches it."""
        if self.klass() in (dscp.TRIMMED, dscp.TRIMMED_LASTHOP):
            return False
        data = self.whole()
        length, first, summed = len(data), layout.TRIM_BYTES, True
        if length <= layout.TRIM_BYTES:
            summed = not self._has_bth()
            first = _INNER_UDP if summed else _BTH
        if length < first + 2:
            return False
        at = first + (random >> 8) % (length - first - (not summed))
        if not summed and at >= _BTH + 4:  # the one byte that the iCRC does not cover
            at += 1
        self.data = data[:at] + bytes([data[at] ^ 1 + (random & 0xFF) % 0xFF]) + data[at + 1 :]
        self.intact = False
        return True

    def _has_bth(self) -> bool:
        data = self.data
        return len(data) >= _BTH and data[20] == 41 and data[60] == 17

    def _join(self) -> None:
        if self.tail:
            self.data = b"".join((self.data, self.payload or b"", self.tail))
            self.payload = None
            self.tail = b""

    def whole(self) -> bytes:
        """Return all bytes, with the checksum, and the outer header as it was sent."""
        self._join()
        if not self.summed:
            data = self.data
            self.data = data[:-ICRC] + S_ICRC.pack(icrc_of(data, 0, len(data)))
            self.summed = True
        return self.data

    def contents(self) -> bytes:
        """Return all bytes as they are now."""
        self.whole()
        return self._changed()

    def _changed(self) -> bytes:
        """Return what there is in one piece, with the outer header as it is now."""
        data = self.data
        if self.complete:
            return data
        out = BytesWriter()
        out.write(data[:OUTER])
        word, front, back = self.word, self.front, self.back
        out[14] = u8(word >> 8)
        out[15] = u8(word & 0xFF)
        out[_HOP_LIMIT] = u8(self.hop_limit)
        for k in range(6):
            out[_USIDS + k] = u8(front >> 40 - 8 * k & 0xFF)
            out[_USIDS + 6 + k] = u8(back >> 40 - 8 * k & 0xFF)
        return b"".join((out.getvalue(), memoryview(data)[OUTER:]))

    def packed(self, complete: bool) -> tuple[bytes, i64]:
        """Return all bytes for another process, with a gap for the checksum where it is not there,
        and what :func:`unpacked` needs. ``complete``: with what switches have changed."""
        how: i64 = len(self.data) | len(self.tail) << _TAIL_AT if self.tail else 0
        how |= (_SUMMED if self.summed else 0) | (_INTACT if self.intact else 0)
        self._join()
        return self._changed() if complete else self.data, how


_TAIL_AT: Final[i64] = 32
_SUMMED: Final[i64] = 1 << 48
_INTACT: Final[i64] = 1 << 49


def unpacked(data: bytes, how: i64, complete: bool) -> Frame:
    frame = Frame(data, summed=how & _SUMMED != 0)
    frame.intact = how & _INTACT != 0
    frame.complete = complete
    head = how & (1 << _TAIL_AT) - 1
    if head:
        end = len(data) - (how >> _TAIL_AT & 0xFFFF)
        frame.data, frame.payload, frame.tail = data[:head], memoryview(data)[head:end], data[end:]
    return frame


class Fifo:
    def __init__(self) -> None:
        self.first: Frame | None = None
        self.last: Frame | None = None

    def append(self, frame: Frame) -> None:
        frame.next = None
        if self.last is None:
            self.first = frame
        else:
            self.last.next = frame
        self.last = frame

    def pop(self) -> Frame:
        frame = self.first
        assert frame is not None
        self.first = frame.next
        if self.first is None:
            self.last = None
        frame.next = None
        return frame

    def join(self, frames: Fifo) -> None:
        if frames.first is None:
            return
        if self.last is None:
            self.first = frames.first
        else:
            self.last.next = frames.first
        self.last = frames.last
        frames.first = frames.last = None

    def frames(self) -> list[Frame]:
        frames: list[Frame] = []
        frame = self.first
        while frame is not None:
            frames.append(frame)
            frame = frame.next
        return frames

    def clear(self) -> None:
        self.first = self.last = None


def in_order(frames: Fifo) -> Fifo:
    frame = frames.first
    while frame is not None:
        after = frame.next
        if after is not None and before(after, frame):
            found = sorted(frames.frames(), key=lambda one: (one.at, one.order))
            frames.clear()
            for one in found:
                frames.append(one)
            break
        frame = after
    return frames


def merged(a: Fifo, b: Fifo) -> Fifo:
    both = Fifo()
    first, other = a.first, b.first
    while first is not None and other is not None:
        both.append(a.pop() if before(first, other) else b.pop())
        first, other = a.first, b.first
    both.join(a)
    both.join(b)
    return both


_NOBODY: Final = Event()


class Calendar:
    """A heap of places: the numbers that it compares lie side by side, and no event is touched."""

    def __init__(self) -> None:
        self._count: i64 = 0
        self._ats = vec[i64]()
        self._orders = vec[i64]()
        self._places = vec[i64]()  # of events; behind ``_count`` the free ones
        self._events: list[Event] = []
        self._later = Fifo()  # what was entered by `follow`

    def enter(self, event: Event, at: i64, order: i64) -> None:
        event.at = at
        event.order = order
        k = self._count
        self._count = k + 1
        if k == len(self._places):
            self._events.append(_NOBODY)
            self._ats = append(self._ats, at)
            self._orders = append(self._orders, order)
            self._places = append(self._places, k)
        ats, orders, places = self._ats, self._orders, self._places
        place = places[k]
        self._events[place] = event
        while k > 0:
            up = (k - 1) >> 1
            if ats[up] < at or (ats[up] == at and orders[up] < order):
                break
            ats[k], orders[k], places[k] = ats[up], orders[up], places[up]
            k = up
        ats[k], orders[k], places[k] = at, order, place

    def follow(self, frames: Fifo) -> None:
        """Append frames in order, no sooner than those that followed before: only those of the last
        one's time need sorting. Empties ``frames``."""
        first, last = frames.first, self._later.last
        if first is not None and last is not None and before(first, last):
            self._later = merged(self._later, frames)
        else:
            self._later.join(frames)

    def first_at(self) -> i64:
        at: i64 = NEVER
        if self._count > 0:
            at = self._ats[0]
        frame = self._later.first
        if frame is not None and frame.at < at:
            at = frame.at
        return at

    def take(self) -> Event:
        frame = self._later.first
        if self._count == 0:
            return self._later.pop()
        if frame is not None and (
            frame.at < self._ats[0] or (frame.at == self._ats[0] and frame.order < self._orders[0])
        ):
            return self._later.pop()
        return self._pop()

    def _pop(self) -> Event:
        ats, orders, places = self._ats, self._orders, self._places
        free = places[0]
        first = self._events[free]
        self._events[free] = _NOBODY
        n = self._count - 1
        self._count = n
        at, order, place = ats[n], orders[n], places[n]
        places[n] = free
        if n == 0:
            return first
        k: i64 = 0
        while True:
            down = 2 * k + 1
            if down >= n:
                break
            right = down + 1
            if right < n and (
                ats[right] < ats[down] or (ats[right] == ats[down] and orders[right] < orders[down])
            ):
                down = right
            if at < ats[down] or (at == ats[down] and order < orders[down]):
                break
            ats[k], orders[k], places[k] = ats[down], orders[down], places[down]
            k = down
        ats[k], orders[k], places[k] = at, order, place
        return first
