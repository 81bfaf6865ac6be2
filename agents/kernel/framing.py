"""RDMA WRITEs as a byte stream: a header, then the payload, straight from and into registered
memory. Sans-IO.

Header, 32 bytes, network order: magic "mrck", type (1), zeros (3), va (8), rkey (4), length (4),
imm (8, -1 for none). A connection begins with HELLO: va is the peer's token for the queue pair,
rkey its number, imm the sender's host number. BYE says that its end is meant.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from agents.transport import Region

MAGIC = b"mrck"
_HEADER = struct.Struct("!4sB3xQIIq")
HEADER_BYTES = _HEADER.size
HELLO, WRITE, BYE = 1, 2, 3
MAX_IMM = 1 << 32
RKEY_STEP = 0x9E3779B1
"""An odd step: the keys of 2^32 regions differ, and no key is its neighbour's plus one."""


class FramingError(ValueError):
    """The stream contains what no peer sends, or a forbidden WRITE. ``cause`` is the name of its
    counter."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class Header(NamedTuple):
    kind: int
    va: int
    rkey: int
    length: int
    imm: int

    def pack(self) -> bytes:
        return _HEADER.pack(MAGIC, self.kind, self.va, self.rkey, self.length, self.imm)

    @classmethod
    def unpack(cls, data: bytes | bytearray | memoryview) -> Header:
        """Raises :class:`FramingError` on anything that no peer sends."""
        magic, kind, va, rkey, length, imm = _HEADER.unpack(data)
        if magic != MAGIC or kind not in (HELLO, WRITE, BYE) or bytes(data[5:8]) != b"\0\0\0":
            raise FramingError("rx_bad_header", f"not a header: {bytes(data[:8]).hex()}")
        if kind == WRITE and not -1 <= imm < MAX_IMM:
            raise FramingError("rx_bad_header", f"immediate {imm} is not 32 bits")
        if kind != WRITE and length:
            raise FramingError("rx_bad_header", f"a message of type {kind} with {length} bytes")
        return cls(kind, va, rkey, length, imm)


class Memory:
    def __init__(self) -> None:
        self._regions: dict[int, tuple[Region, memoryview]] = {}
        self._next_va = 1 << 32

    def register(self, memory: bytearray | memoryview) -> Region:
        """Raises ValueError if it is not writable, contiguous bytes."""
        view = memoryview(memory)
        if view.readonly or not view.contiguous:
            raise ValueError("registered memory must be writable and contiguous")
        flat = view.cast("B")
        region = Region(self._next_va, (len(self._regions) + 1) * RKEY_STEP & 0xFFFFFFFF, len(flat))
        self._regions[region.rkey] = (region, flat)
        self._next_va += (len(flat) + 0x1FFFF) & ~0xFFFF  # never adjacent
        return region

    def at(self, va: int, rkey: int, length: int) -> memoryview:
        """Raises :class:`FramingError` unless all of the WRITE's memory is in that region."""
        entry = self._regions.get(rkey)
        if entry is None:
            raise FramingError("rx_refused_access", f"no region has the key {rkey:#x}")
        region, memory = entry
        start = va - region.va
        if start < 0 or start + length > region.length:
            raise FramingError(
                "rx_refused_access",
                f"{length} bytes at {va:#x} are not within {region.length} at {region.va:#x}",
            )
        return memory[start : start + length]


class Inbound:
    """Places the payload of a stream where its headers say. Receive into :meth:`buffers`, then call
    :meth:`took`."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._bytes = bytearray(HEADER_BYTES)
        self._header = memoryview(self._bytes)
        self._have = 0  # bytes of the header
        self._message: Header | None = None  # whose payload is under way
        self._rest = memoryview(b"")
        self.placed = 0

    def buffers(self) -> list[memoryview]:
        """The rest of a payload and the next header together save a call."""
        return (
            [self._rest, self._header]
            if self._message is not None and self._rest
            else [self._header[self._have :]]
        )

    def took(self, count: int) -> list[Header]:
        """Returns the messages that are complete now. Raises :class:`FramingError` when a header is
        refused."""
        complete: list[Header] = []
        if self._message is not None:
            part = min(count, len(self._rest))
            self._rest = self._rest[part:]
            self.placed += part
            count -= part
            if self._rest:
                return complete
            complete.append(self._message)
            self._message = None
        self._have += count
        if self._have == HEADER_BYTES:
            self._have = 0
            message = Header.unpack(self._bytes)
            if message.kind == WRITE and message.length:
                self._rest = self._memory.at(message.va, message.rkey, message.length)
                self._message = message
            else:
                if message.kind == WRITE:
                    self._memory.at(message.va, message.rkey, 0)
                complete.append(message)
        return complete
