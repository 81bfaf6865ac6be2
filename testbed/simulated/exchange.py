"""What processes that share one simulation give each other at the ends of windows: frames, and what they know of time.

Each process computes some of the hosts and some of the planes (:mod:`testbed.simulated.split`). A frame that left a NIC port goes to the
process of its plane, one that left its last link to that of its host. Used by :mod:`testbed.simulated.network`, and compiled with it.

A frame is three numbers and its bytes. All frames for one process are one block, in a file in memory that the two share. A message on a
socket says how long the block is. There are two files for each direction, in turns: a process writes into one again when the answer to the
other has come, so the block has been read.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from agents.transport import NEVER
from testbed.simulated.frame import Fifo, Frame, merged

_MESSAGE: Final = struct.Struct("=3q")  # length of the block, the time of the next event, whether someone is to be told
_HEAD: Final[i64] = 32  # at, order, port, length of the bytes
_GONE: Final = -1
"""As a length: the sender gives up, and so must all."""


class Aborted(Exception):
    """Another process has given up this advance."""


class PeerGone(Exception):
    """Another process has ended."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Steering:
    """Of the process that steers the others: tells them how far to go."""

    def begin(self, end: int) -> None:
        """Have all others advance to ``end``."""
        raise NotImplementedError

    def finish(self) -> None:
        """All have; hear what they have to tell. Raises what stopped them."""
        raise NotImplementedError

    def failed(self) -> None:
        """This process stopped in the middle: the others have to stop, too."""
        raise NotImplementedError


class Wire:
    """To one other process. ``written`` and ``read``: descriptors of the two files of each direction."""

    def __init__(self, sock: socket.socket, written: tuple[int, int], read: tuple[int, int]) -> None:
        self.sock = sock
        self.written, self.read = written, read

    def send(self, turn: int, block: bytes, first: int, halted: bool) -> None:
        """Say it; does not block."""
        if block:
            os.pwrite(self.written[turn], block, 0)
        try:
            self.sock.send(_MESSAGE.pack(len(block), first, halted))
        except OSError:
            raise PeerGone from None

    def receive(self, turn: int) -> tuple[bytes, int, bool]:
        """Wait for the other's. Raises :class:`Aborted` and :class:`PeerGone`."""
        try:
            message = self.sock.recv(_MESSAGE.size, socket.MSG_WAITALL)
        except OSError:
            message = b""
        if len(message) < _MESSAGE.size:
            raise PeerGone
        length, first, halted = _MESSAGE.unpack(message)
        if length == _GONE:
            raise Aborted
        return os.pread(self.read[turn], length, 0) if length else b"", first, bool(halted)

    def abort(self) -> None:
        """Have the other give up at its next exchange."""
        try:
            self.sock.send(_MESSAGE.pack(_GONE, 0, 0))
        except OSError:
            pass  # it has ended

    def close(self) -> None:
        """Close everything. Idempotent."""
        self.sock.close()
        for fd in (*self.written, *self.read):
            if fd >= 0:
                os.close(fd)
        self.written = self.read = (-1, -1)


class Peers:
    """The other processes, and which one computes what. ``wires``: by process, None for this one."""

    def __init__(self, own: int, host_owner: list[int], plane_owner: list[int], wires: list[Wire | None]) -> None:
        self.own: i64 = own
        self.host_owner = host_owner
        self.plane_owner = plane_owner
        self.wires = wires
        self.out = [Fifo() for _ in wires]
        """By process: frames for it."""
        self.first: i64 = NEVER
        """When the next event of any process happens."""
        self.halted = False
        """Whether any process has to tell something."""
        self._turn = 0

    def queue(self, owner: int, own: Fifo) -> Fifo:
        """Where frames go for the process ``owner``; ``own``: that is this one."""
        return own if owner == self.own else self.out[owner]

    def swap(self, own: Fifo, first: i64, halted: bool, arrivals: bool) -> Fifo:
        """Give all others their frames, and get theirs: they come in the order of their events, together with ``own``, which is empty
        afterwards. ``arrivals``: whether they are at their hosts, and not on their way to switches."""
        turn = self._turn
        self._turn = 1 - turn
        for queue in (own, *self.out):
            frame = queue.first
            if frame is not None and frame.at < first:
                first = frame.at
        for number, wire in enumerate(self.wires):
            if wire is not None:
                wire.send(turn, packed(self.out[number], arrivals), first, halted)
        both = Fifo()
        both.join(own)
        for wire in self.wires:
            if wire is not None:
                block, others_first, others_halted = wire.receive(turn)
                if others_first < first:
                    first = others_first
                if others_halted:
                    halted = True
                if block:
                    both = merged(both, unpacked(block, arrivals))
        self.first = first
        self.halted = halted
        return both


def packed(frames: Fifo, complete: bool) -> bytes:
    """A block of all frames, which are gone from the queue. ``complete``: with what switches have changed."""
    out = BytesWriter()
    for frame in frames.frames():
        data = frame.contents() if complete else frame.data
        write_i64_le(out, frame.at)
        write_i64_le(out, frame.order)
        write_i64_le(out, frame.port)
        write_i64_le(out, len(data))
        out.write(data)
    frames.clear()
    return out.getvalue()


def unpacked(block: bytes, complete: bool) -> Fifo:
    """The frames of a block."""
    frames = Fifo()
    at: i64 = 0
    end: i64 = len(block)
    while at < end:
        begin = at + _HEAD
        after = begin + read_i64_le(block, at + 24)
        frame = Frame(block[begin:after])
        frame.at = read_i64_le(block, at)
        frame.order = read_i64_le(block, at + 8)
        frame.port = read_i64_le(block, at + 16)
        frame.landed = True
        frame.complete = complete
        frames.append(frame)
        at = after
    return frames
