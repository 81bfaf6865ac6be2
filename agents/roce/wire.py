"""RoCEv2 on this fabric, byte by byte: offsets, opcodes, syndromes, structs.

Every packet is Ethernet / outer IPv6 (the path) / inner IPv6 (host to host) / UDP 4791 / BTH / ...
/ payload, pad, iCRC. Layouts are those of the InfiniBand specification, volume 1, chapter 9 and
annex A17.
"""

from __future__ import annotations

import struct
from typing import Final

from agents.packets.dscp import ROCE
from topologies.units import US

DATA_DSCP: Final = ROCE
"""Data is marked on every hop, and never trimmed: this transport cannot use a trimmed packet."""

ECN_AT: Final = 15
"""The byte with the outer header's ECN, in bits 5:4."""
INNER_AT: Final = 54
BTH_AT: Final = 102
FLAGS_AT: Final = 103
BODY_AT: Final = 114
ICRC_BYTES: Final = 4
RETH_BYTES: Final = 16
MIN_FRAME: Final = BODY_AT + ICRC_BYTES
ACK_FRAME: Final = MIN_FRAME + 4
SACK_FRAME: Final = ACK_FRAME + 4
"""Bytes of an ACK frame with the PSN of a packet placed out of order (IRN, section 3.1; its place
is [ours])."""
CNP_RESERVED: Final = 16
CNP_FRAME: Final = MIN_FRAME + CNP_RESERVED
MAX_HEADERS: Final = BODY_AT + RETH_BYTES + 4

WRITE_FIRST: Final = 0x06
WRITE_MIDDLE: Final = 0x07
WRITE_LAST: Final = 0x08
WRITE_LAST_IMM: Final = 0x09
WRITE_ONLY: Final = 0x0A
WRITE_ONLY_IMM: Final = 0x0B
ACKNOWLEDGE: Final = 0x11
CNP: Final = 0x81

KIND_WRITE: Final = 1
KIND_START: Final = 2
KIND_END: Final = 4
KIND_IMM: Final = 8
KIND_ACK: Final = 16
KIND_UNSUPPORTED: Final = 32
KIND_CNP: Final = 64


def _kinds() -> list[int]:
    kinds = [0] * 256
    for opcode in (*range(0x06), *range(0x0C, 0x11), 0x12, 0x13, 0x14, 0x16, 0x17):
        # SEND, READ, ATOMIC: RC requests (and answers to them) that nothing here sends
        kinds[opcode] = KIND_UNSUPPORTED
    kinds[WRITE_FIRST] = KIND_WRITE | KIND_START
    kinds[WRITE_MIDDLE] = KIND_WRITE
    kinds[WRITE_LAST] = KIND_WRITE | KIND_END
    kinds[WRITE_LAST_IMM] = KIND_WRITE | KIND_END | KIND_IMM
    kinds[WRITE_ONLY] = KIND_WRITE | KIND_START | KIND_END
    kinds[WRITE_ONLY_IMM] = KIND_WRITE | KIND_START | KIND_END | KIND_IMM
    kinds[ACKNOWLEDGE] = KIND_ACK
    kinds[CNP] = KIND_CNP
    return kinds


KINDS: Final[list[int]] = _kinds()

ACK: Final = 0x1F
"""AETH syndrome of an ACK that carries no end-to-end credits."""
RNR: Final = 0x20
"""AETH syndrome of a receiver that is not ready; the low five bits are a timer code."""
NAK_SEQUENCE: Final = 0x60
NAK_INVALID: Final = 0x61
NAK_ACCESS: Final = 0x62
NAK_OPERATION: Final = 0x63

RNR_TIMER_US: Final[list[int]] = [
    655360,
    10,
    20,
    30,
    40,
    60,
    80,
    120,
    160,
    240,
    320,
    480,
    640,
    960,
    1280,
    1920,
    2560,
    3840,
    5120,
    7680,
    10240,
    15360,
    20480,
    30720,
    40960,
    61440,
    81920,
    122880,
    163840,
    245760,
    327680,
    491520,
]
"""Microseconds by RNR timer code (InfiniBand specification volume 1, table 45)."""

PSN_HALF: Final = 0x800000

BTH: Final = struct.Struct("!BBHII")
"""opcode, flags (pad count in bits 5:4), pkey, reserved and QPN, AckReq and PSN."""
RETH: Final = struct.Struct("!QII")
"""va, rkey, DMA length."""
IMM: Final = struct.Struct("!I")
AETH: Final = struct.Struct("!I")
SACKED: Final = struct.Struct("!I")
ICRC: Final = struct.Struct("<I")
HEADERS: Final = struct.Struct("!H4xHB33xB3xHBx16s16sHHH2xBBHII")
"""Ethernet's type, outer length and next header, inner version, length, next header, source,
destination, UDP ports, length, BTH's five fields."""
HEADERS_AT: Final = 12
PKEY: Final = 0xFFFF
QPN_MASKED: Final = 0xFF000000
"""BTH byte 4 as ones, as it counts in the iCRC; it is zeroed afterwards."""
ACK_REQUEST: Final = 1 << 31
BECN: Final = 0x40
"""In BTH byte 4 of a CNP: the packet that it answers met congestion."""


def rnr_code(delay_ps: int) -> int:
    for code in range(1, 32):
        if RNR_TIMER_US[code] * US >= delay_ps:
            return code
    return 0
