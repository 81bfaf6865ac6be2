"""Exchanges frames, and the times of next events, between processes that share one simulation, at
the ends of windows.

A frame that left a NIC port goes to the process of its plane, one that left its last link to that
of its host.

A frame is five numbers and its bytes, in memory that two processes share; a message on a socket
says how many there are. Each direction has two pieces of memory, in turns. The answer to one piece
shows that the other has been read and may be written.
"""

from __future__ import annotations

import socket
import struct
from mmap import mmap
from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from agents.transport import NEVER
from testbed.simulated.frame import Fifo, in_order, merged, unpacked

# frames, the time of the next event, whether someone is to be told
_MESSAGE: Final = struct.Struct("=3q")
HEAD: Final[i64] = 40
_GONE: Final = -1


class Aborted(Exception):
    """Another process has given up this advance."""


class PeerGone(Exception):
    """Another process has ended."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Steering:
    def begin(self, end: int) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def failed(self) -> None:
        raise NotImplementedError


class Wire:
    """``written`` and ``read`` are the two pieces of memory of each direction."""

    def __init__(
        self, sock: socket.socket, written: tuple[mmap, mmap], read: tuple[mmap, mmap]
    ) -> None:
        self.sock = sock
        self.written, self.read = written, read

    def send(self, turn: int, frames: Fifo, complete: bool, first: int, halted: bool) -> None:
        """Empty the queue; does not block. ``complete``: with what switches have changed."""
        memory = self.written[turn]
        leaving = frames.frames()
        frames.clear()
        heads = BytesWriter()
        at: i64 = HEAD * len(leaving)
        for frame in leaving:
            data, how = frame.packed(complete)
            size: i64 = len(data)
            write_i64_le(heads, frame.at)
            write_i64_le(heads, frame.order)
            write_i64_le(heads, frame.port)
            write_i64_le(heads, size)
            write_i64_le(heads, how)
            memory[at : at + size] = data
            at += size
        memory[: HEAD * len(leaving)] = heads.getvalue()
        try:
            self.sock.send(_MESSAGE.pack(len(leaving), first, halted))
        except OSError:
            raise PeerGone from None

    def receive(self, turn: int, complete: bool) -> tuple[Fifo, int, bool]:
        try:
            message = self.sock.recv(_MESSAGE.size, socket.MSG_WAITALL)
        except OSError:
            message = b""
        if len(message) < _MESSAGE.size:
            raise PeerGone
        count, first, halted = _MESSAGE.unpack(message)
        if count == _GONE:
            raise Aborted
        frames = Fifo()
        memory = self.read[turn]
        at: i64 = HEAD * count
        heads: bytes = memory[:at]
        for k in range(count):
            after = at + read_i64_le(heads, HEAD * k + 24)
            frame = unpacked(memory[at:after], read_i64_le(heads, HEAD * k + 32), complete)
            frame.at = read_i64_le(heads, HEAD * k)
            frame.order = read_i64_le(heads, HEAD * k + 8)
            frame.port = read_i64_le(heads, HEAD * k + 16)
            frame.landed = True
            frames.append(frame)
            at = after
        return frames, first, bool(halted)

    def abort(self) -> None:
        try:
            self.sock.send(_MESSAGE.pack(_GONE, 0, 0))
        except OSError:
            pass  # it has ended

    def close(self) -> None:
        self.sock.close()


class Peers:
    def __init__(
        self, own: int, host_owner: list[int], plane_owner: list[int], wires: list[Wire | None]
    ) -> None:
        self.own: i64 = own
        self.host_owner = host_owner
        self.plane_owner = plane_owner
        self.wires = wires
        self.out = [Fifo() for _ in wires]
        self.first: i64 = NEVER
        self.halted = False
        self._turn = 0

    def queue(self, owner: int, own: Fifo) -> Fifo:
        return own if owner == self.own else self.out[owner]

    def swap(self, own: Fifo, first: i64, halted: bool, arrivals: bool) -> Fifo:
        """Give all others their frames, and get theirs in the order of their events, with ``own``,
        which is emptied. ``arrivals``: at their hosts, not on their way to switches; each length of
        path is then in order."""
        turn = self._turn
        self._turn = 1 - turn
        for queue in (own, *self.out):
            frame = queue.first
            while frame is not None:
                if frame.at < first:
                    first = frame.at
                # what comes from under the same T0 overtakes
                frame = frame.next if arrivals else None
        for number, wire in enumerate(self.wires):
            if wire is not None:
                wire.send(
                    turn,
                    self.out[number] if arrivals else in_order(self.out[number]),
                    arrivals,
                    first,
                    halted,
                )
        both = Fifo()
        both.join(own)
        for wire in self.wires:
            if wire is not None:
                frames, others_first, others_halted = wire.receive(turn, arrivals)
                if others_first < first:
                    first = others_first
                if others_halted:
                    halted = True
                both = merged(both, frames)
        self.first = first
        self.halted = halted
        return both
