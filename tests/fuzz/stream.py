"""Target ``stream``: any bytes in any pieces on a TCP connection are messages or one FramingError,
and nothing else is written to.

An input is the sizes in which the stream arrives, then the stream. It is read by a plain model,
too, which knows the framing from the text of agents/kernel/framing.py alone: both must find the
same messages, the same bytes in the same places, and the same end.
"""

from __future__ import annotations

import struct

from agents.kernel.framing import HELLO, MAGIC, WRITE, FramingError, Header, Inbound, Memory
from tests.fuzz.reader import Reader

SIZE = 256
PIECES = 8


def expected(stream: bytes, va: int, rkey: int, memory: bytearray) -> tuple[int, bool]:
    """What a stream means: (messages complete, whether it is refused); places its bytes in
    ``memory``."""
    at = done = 0
    while len(stream) - at >= 32:
        magic, kind, zeros, to, key, length, imm = struct.unpack_from("!4sB3sQIIq", stream, at)
        if magic != b"mrck" or kind not in (1, 2, 3) or zeros != b"\0\0\0":
            return done, True
        if (kind == 2 and not -1 <= imm < 1 << 32) or (kind != 2 and length):
            return done, True
        if kind == 2 and (key != rkey or to < va or to + length > va + len(memory)):
            return done, True
        at += 32
        body = stream[at : at + length]
        memory[to - va : to - va + len(body)] = body if kind == 2 else b""
        at += len(body)
        if len(body) < length:
            break
        done += 1
    return done, False


class Stream:
    """One execution: one connection's stream."""

    max_len = 512
    words = (MAGIC,)

    def __init__(self) -> None:
        self.arena = bytearray(3 * SIZE)
        self.memory = Memory()
        self.region = self.memory.register(memoryview(self.arena)[SIZE : 2 * SIZE])

    def one(self, data: bytes) -> None:
        """Raises AssertionError, or whatever the code under test lets out."""
        r = Reader(data)
        sizes = [1 + r.u8() for _ in range(PIECES)]
        stream = r.take(len(data))
        self.arena[:] = bytes(len(self.arena))
        inbound = Inbound(self.memory)
        at = done = turn = 0
        refused = False
        while at < len(stream) and not refused:
            piece = stream[at : at + sizes[turn % PIECES]]
            turn += 1
            took = 0
            for buffer in inbound.buffers():
                n = min(len(buffer), len(piece) - took)
                buffer[:n] = piece[took : took + n]
                took += n
            assert took, "the stream has come to a stop"
            at += took
            try:
                done += len(inbound.took(took))
            except FramingError as error:
                assert error.cause in ("rx_bad_header", "rx_refused_access") and "\n" not in str(
                    error
                )
                refused = True
        model = bytearray(SIZE)
        complete, wrong = expected(stream, self.region.va, self.region.rkey, model)
        assert refused == wrong, "not refused, or for nothing"
        # A message whose last bytes came in one piece with a header that is refused is placed, and
        # not told of any more.
        assert done == complete or (refused and done == complete - 1), (
            "not the messages that the stream has"
        )
        assert self.arena[SIZE : 2 * SIZE] == model, (
            "not the bytes that the stream has for this place"
        )
        assert not any(self.arena[:SIZE]) and not any(self.arena[2 * SIZE :]), (
            "memory outside the region changed"
        )

    def seeds(self) -> list[bytes]:
        """Sound messages, and some that are not."""
        va, rkey = self.region.va, self.region.rkey
        sound = [
            Header(HELLO, 1, 2, 0, 3).pack(),
            Header(WRITE, va + 8, rkey, 5, -1).pack() + b"hello",
            Header(WRITE, va, rkey, SIZE, 7).pack() + bytes(range(256)),
            Header(WRITE, va + SIZE, rkey, 0, 9).pack(),
            Header(3, 0, 0, 0, 0).pack(),
        ]
        wrong = [
            Header(WRITE, va + SIZE - 4, rkey, 5, -1).pack(),
            Header(WRITE, va, rkey ^ 1, 1, -1).pack() + b"x",
            Header(WRITE, (1 << 64) - 1, rkey, 4, 1 << 32).pack(),
            b"GET / HTTP/1.1\r\n\r\n" + bytes(20),
        ]
        fast, slow = b"\xff" * PIECES, b"\0\x1f\x03\x07" * (PIECES // 4)
        return [pace + one for pace in (fast, slow) for one in (*sound, b"".join(sound), *wrong)]
