"""The headers of every RoCE-like packet before its BTH, the invariant CRC and PSN arithmetic. No
state, no I/O.

A frame is Ethernet (14) | outer IPv6 (40) | inner IPv6 (40) | UDP (8) | BTH (12) | headers |
payload | iCRC (4). All fields are big-endian, the iCRC little-endian (InfiniBand).
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
    write_i32_le,
)
from mypy_extensions import i16, i32, i64, u8

from topologies.addressing import HOST_MAC
from topologies.clos import UDP_PORT

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:  # zlib gives the same sums, eight times slower on a full packet
    from zlib import crc32 as crc32

PSN_MASK: Final = 0xFFFFFF

# Offsets in a frame.
OUTER: Final = 14
INNER: Final = 54
UDP: Final = 94
BTH_AT: Final = 102
HEAD: Final = 102
ICRC: Final = 4

# version/class/flow, payload length, next header, hop limit, source, destination
S_OUTER = Struct("!IHBB16s16s")
S_UDP = Struct("!HHHH")
S_ICRC = Struct("<I")

RESIDUE: Final = 0x2144DF1C
GAP: Final = bytes(ICRC)
"""Where an iCRC is not computed."""


def u16(data: bytes, at: i64) -> i64:
    return i64(read_i16_be(data, at)) & 0xFFFF


def u32(data: bytes, at: i64) -> i64:
    return i64(read_i32_be(data, at)) & 0xFFFF_FFFF


def put16(out: BytesWriter, value: i64) -> None:
    """Write two bytes of a number below 1 << 16; the compiler's own function takes it for a signed
    one."""
    write_i16_be(out, i16((value ^ 0x8000) - 0x8000))


def put32(out: BytesWriter, value: i64) -> None:
    write_i32_be(out, i32((value ^ 0x8000_0000) - 0x8000_0000))


def trailer(pad: i64, crc: i64) -> bytes:
    out = BytesWriter()
    for _ in range(pad):
        out.append(0)
    write_i32_le(out, i32((crc ^ 0x8000_0000) - 0x8000_0000))
    return out.getvalue()


def psn_delta(psn: int, reference: int) -> int:
    """Return how far the 24-bit ``psn`` is ahead of ``reference`` (any width), as a signed 24-bit
    difference."""
    return ((psn - reference + 0x800000) & PSN_MASK) - 0x800000


def ip_header(
    next_header: int,
    payload: int,
    dscp: int,
    ecn: int,
    flow: int,
    hop_limit: int,
    src: bytes,
    dst: bytes,
) -> bytes:
    return S_OUTER.pack(
        6 << 28 | dscp << 22 | ecn << 20 | flow, payload, next_header, hop_limit, src, dst
    )


def head(
    outer: tuple[bytes, bytes],
    inner: tuple[bytes, bytes],
    ev: int,
    dscp: int,
    ecn: int,
    after_udp: int,
    port: int = UDP_PORT,
) -> bytes:
    """``outer`` and ``inner``: source and destination address. ``after_udp``: bytes from the BTH to
    the iCRC inclusive. The low half of the EV is the UDP source port, its high half the low 16 bits
    of the inner flow label [ours]."""
    udp = 8 + after_udp
    carried = ip_header(17, udp, dscp, ecn, ev >> 16 & 0xFFFF, 64, *inner)
    carrier = ip_header(41, 40 + udp, dscp, ecn, 0, 64, *outer)
    return (
        HOST_MAC
        + HOST_MAC
        + b"\x86\xdd"
        + carrier
        + carried
        + S_UDP.pack(ev & 0xFFFF, port, udp, 0)
    )


def icrc_of_head(frame_head: bytes) -> int:
    b = bytearray(b"\xff" * 8 + frame_head[INNER:HEAD])
    b[8] |= 0x0F
    b[9:12] = b"\xff\xff\xff"
    b[15] = 0xFF
    b[54:56] = b"\xff\xff"
    return int(crc32(b))


def icrc_of(buffer: Any, start: int, length: int) -> int:
    """CRC-32 from the inner IPv6 header on, after 8 bytes of FF, with traffic class, flow label,
    hop limit, UDP checksum and BTH byte 4 as ones (RoCEv2, InfiniBand annex A17)."""
    frame = bytes(buffer[start : start + length - ICRC])
    return int(
        crc32(
            frame[BTH_AT + 5 :],
            crc32(frame[BTH_AT : BTH_AT + 4] + b"\xff", icrc_of_head(frame[:HEAD])),
        )
    )


class IcrcCheck:
    def __init__(self) -> None:
        self._out = BytesWriter()
        self._out.write(b"\xff" * 8)

    def good(self, head: bytes, buffer: Any, start: int, length: int) -> bool:
        out = self._out
        out.truncate(8)
        out.write(head[INNER:])
        out[8] = u8(head[INNER] | 0x0F)
        out[9] = out[10] = out[11] = u8(0xFF)  # traffic class and flow label
        out[15] = u8(0xFF)  # hop limit
        out[54] = out[55] = u8(0xFF)  # UDP checksum
        out[8 + BTH_AT + 4 - INNER] = u8(0xFF)
        crc = crc32(out.getvalue())
        n = len(head)
        if n < length:
            crc = crc32(buffer[start + n : start + length], crc)
        return int(crc) == RESIDUE
