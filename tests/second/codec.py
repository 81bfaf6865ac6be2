"""Headers and frames (section 4 of the page): a table of bit fields, one packer, one parser.

A parsed packet keeps its fields in one flat dictionary, "BTH.psn" and so on, and a list of what was
odd about the frame.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

TEXT = {  # field:bits, in order; = gives the only value that it may have, - is reserved
    "BTH": (
        "opcode:8 m:1=0 se:1=0 pad:2 tver:4=0 pkey:16=65535 -:8 qpn:24 a:1 -:1 rtx:1 ts:1 -:4 "
        "psn:24"
    ),
    "METH": "rqmsn:16 msn:16",
    "TSETH": "timestamp:16 tsr:1=0 -:11 ftype:4=1",
    "RETH": "va:64 rkey:32 dmalen:32",
    "Imm": "imm:32",
    "AETH": "syndrome:8 msn:24",
    "SETH": "type:4=0 nxt:5=0 m:2 -:3 pr:1 -:1 offset:16 ev:32 sender:16 receiver:16 -:8 cum:24 "
    "cctype:4=0 flags:4=0 window:8 base:16 bitmap:64",
    "CC_STATE": "timestamp:16 -:1 ooo:15 restore:1 penalty:7 bytes:24",
    "NETH": (
        "typenxt:16=0 reason:8 vendor:8=0 ev:32 sender:16 receiver:16 -:8 psn:24 cctype:4=2 -:12 "
        "timestamp:16"
    ),
    "PETH": "-:24 vendor:8=0 id:16 -:16 sender:16 receiver:16 timestamp:16 tsr:1=0 -:11 ftype:4=1",
    "ERTH": "-:14 operation:2 -:16 mask:32 -:32 timestamp:16 tsr:1=0 -:11 ftype:4=1",
    "EETH": "-:12 operation:2 -:210 timestamp:16 -:48",
}


def table(text: str, header: str) -> tuple[int, list[tuple[str, int, int | None]]]:
    """A header's bytes, and its fields: name, bits, fixed value."""
    fields: list[tuple[str, int, int | None]] = []
    for word in text.split():
        name, _, rest = word.partition(":")
        bits, _, fixed = rest.partition("=")
        fields.append((f"{header}.{name}", int(bits), int(fixed) if fixed else None))
    return sum(bits for _, bits, _ in fields) // 8, fields


LAYOUTS = {header: table(text, header) for header, text in TEXT.items()}

FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM = range(0xC6, 0xCC)
ACK, REQUEST, RESPONSE, SACK, NACK, PROBE = 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE
WRITES, STARTS, ENDS, IMMS = (
    range(FIRST, ONLY_IMM + 1),
    (FIRST, ONLY, ONLY_IMM),
    range(LAST, ONLY_IMM + 1),
    (LAST_IMM, ONLY_IMM),
)
FOLLOWS: dict[int, tuple[str, ...]] = {
    opcode: ("METH", "TSETH", "RETH", *(("Imm",) if opcode in IMMS else ())) for opcode in WRITES
}
FOLLOWS |= {
    ACK: ("AETH",),
    REQUEST: ("ERTH",),
    RESPONSE: ("EETH",),
    SACK: ("SETH", "CC_STATE"),
    NACK: ("NETH",),
    PROBE: ("PETH",),
}
CONTROL, TRIMMABLE, NO_TRIM, TRIMMABLE_RETX, TRIMMED, TRIMMED_LASTHOP, RETX_HIGH = (
    48,
    10,
    12,
    14,
    18,
    20,
    22,
)

MAC = bytes.fromhex("026d72630001")
INNER_PREFIX = bytes.fromhex("fd6d7263")
BTH_AT = 14 + 40 + 40 + 8


def pack(name: str, values: dict[str, int]) -> bytes:
    """The bytes of header `name`; fields that `values` lacks have their fixed value or 0."""
    size, fields = LAYOUTS[name]
    word = 0
    for key, bits, fixed in fields:
        word = word << bits | values.get(key, fixed or 0) & ((1 << bits) - 1)
    return word.to_bytes(size, "big")


def unpack(name: str, data: bytes, odd: list[str]) -> dict[str, int]:
    """The fields of header `name` in `data`; what is not as section 4 has it goes to `odd`."""
    size, fields = LAYOUTS[name]
    word, left = number(data), size * 8
    values: dict[str, int] = {}
    for key, bits, fixed in fields:
        left -= bits
        value = word >> left & ((1 << bits) - 1)
        if key.endswith("-"):
            key, fixed = f"reserved bits of {name}", 0
        else:
            values[key] = value
        if fixed is not None and value != fixed:
            odd.append(f"4: {key} is {value:#x}, expected {fixed:#x}")
    return values


def number(data: bytes) -> int:
    """Big-endian bytes as a number."""
    return int.from_bytes(data, "big")


def icrc(inner: bytes) -> bytes:
    """Four bytes of iCRC over `inner`: the inner IPv6 header to the end of the padding."""
    masked = bytearray(inner)
    masked[0:4] = bytes([masked[0] | 0x0F, 255, 255, 255])  # traffic class, flow label
    masked[7] = 255  # hop limit
    masked[46:48] = b"\xff\xff"  # UDP checksum
    masked[48 + 4] = 255  # BTH byte 4
    return zlib.crc32(b"\xff" * 8 + masked).to_bytes(4, "little")


def ip(traffic: int, label: int, length: int, following: int, src: int, dst: bytes) -> bytes:
    """An IPv6 header; hosts have the address fd6d:7263::<host + 1> (addressing page)."""
    return (
        (6 << 28 | traffic << 20 | label).to_bytes(4, "big")
        + length.to_bytes(2, "big")
        + bytes([following, 64])
        + inner(src)
        + dst
    )


def inner(host: int) -> bytes:
    return INNER_PREFIX + (host + 1).to_bytes(12, "big")


def build(
    src: int,
    dst: int,
    ev: int,
    outer: bytes,
    dscp: int,
    ecn: int,
    port: int,
    values: dict[str, int],
    payload: bytes = b"",
) -> bytes:
    """A whole Ethernet frame from host `src` to host `dst`; values["BTH.opcode"] says which headers
    follow."""
    opcode, pad = values["BTH.opcode"], -len(payload) % 4
    body = pack("BTH", {**values, "BTH.pad": pad, "BTH.ts": int(opcode in WRITES)})
    body += b"".join(pack(name, values) for name in FOLLOWS[opcode]) + payload + bytes(pad)
    length, traffic = 8 + len(body) + 4, dscp << 2 | ecn
    udp = (
        (ev & 0xFFFF).to_bytes(2, "big")
        + port.to_bytes(2, "big")
        + length.to_bytes(2, "big")
        + b"\0\0"
    )
    rest = ip(traffic, ev >> 16, length, 17, src, inner(dst)) + udp + body
    return MAC + MAC + b"\x86\xdd" + ip(traffic, 0, 40 + length, 41, src, outer) + rest + icrc(rest)


@dataclass
class Packet:
    """A frame taken apart. `dscp` and `ecn` are the outer header's, which switches change; `odd`
    says what is not as section 4 has it."""

    opcode: int
    values: dict[str, int]
    payload: bytes
    src: int
    dst: int
    ev: int
    dscp: int
    ecn: int
    inner_class: int
    outer_dst: bytes
    hops: int
    udp_length: int
    trimmed: bool
    icrc_ok: bool
    odd: list[str]

    def __getitem__(self, key: str) -> int:
        return self.values[key]


def parse(frame: bytes, port: int) -> Packet:
    """Take a frame apart; ValueError if it is none of the protocol's. A trimmed one need only reach
    to what a NACK or an answer echoes."""
    outer, rest, odd = frame[14:54], frame[54:], list[str]()
    if len(frame) < BTH_AT + 12:
        raise ValueError(f"frame of {len(frame)} bytes")
    if (
        frame[12:14] != b"\x86\xdd"
        or outer[0] >> 4 != 6
        or outer[6] != 41
        or rest[0] >> 4 != 6
        or rest[6] != 17
    ):
        raise ValueError("not Ethernet, IPv6, IPv6, UDP")
    if number(rest[42:44]) != port or rest[8:12] != INNER_PREFIX or rest[24:28] != INNER_PREFIX:
        raise ValueError(
            f"UDP port {number(rest[42:44])}, inner addresses {rest[8:24].hex()} and "
            f"{rest[24:40].hex()}"
        )
    opcode, traffic = rest[48], number(outer[0:2]) >> 4 & 0xFF
    trimmed = traffic >> 2 in (TRIMMED, TRIMMED_LASTHOP)
    if opcode not in FOLLOWS or (trimmed and opcode not in WRITES and opcode != PROBE):
        raise ValueError(f"opcode {opcode:#x}, {trimmed=}")
    values, at = unpack("BTH", rest[48:60], odd), 60
    # METH and TSETH, or PETH: as much as section 5 needs
    for name in FOLLOWS[opcode][: 2 if trimmed else None]:
        size = LAYOUTS[name][0]
        if at + size > len(rest):
            raise ValueError(f"ends within {name}")
        values |= unpack(name, rest[at : at + size], odd)
        at += size
    end = len(rest) - 4 - values["BTH.pad"]
    lengths = number(outer[4:6]), number(rest[4:6]), number(rest[44:46])
    if not trimmed:
        if end < at:
            raise ValueError("no room for padding and iCRC")
        if lengths != (len(rest), len(rest) - 40, len(rest) - 40):
            odd.append(
                f"4: lengths outer, inner, UDP are {lengths} in a frame of {len(frame)} bytes"
            )
        if (len(rest) - 4 - at) % 4 or (opcode not in WRITES and len(rest) - 4 != at):
            odd.append(
                f"4: {len(rest) - 4 - at} bytes of payload and padding in opcode {opcode:#x}"
            )
    elif lengths[0] != len(rest):
        odd.append(
            f"5: outer length of a trimmed frame is {lengths[0]}, {len(rest)} bytes are left"
        )
    if frame[:12] != MAC + MAC:
        odd.append(f"10: Ethernet addresses {frame[:12].hex()}, expected {MAC.hex()} twice")
    if rest[46:48] != b"\0\0" or values["BTH.ts"] != int(opcode in WRITES):
        odd.append(
            f"4: UDP checksum {rest[46:48].hex()}, BTH.ts {values['BTH.ts']} in opcode {opcode:#x}"
        )
    return Packet(
        opcode,
        values,
        b"" if trimmed else rest[at:end],
        src=number(rest[12:24]) - 1,
        dst=number(rest[28:40]) - 1,
        ev=number(rest[2:4]) << 16 | number(rest[40:42]),
        dscp=traffic >> 2,
        ecn=traffic & 3,
        inner_class=number(rest[0:2]) >> 4 & 0xFF,
        outer_dst=outer[24:40],
        hops=outer[7],
        udp_length=lengths[2],
        trimmed=trimmed,
        icrc_ok=trimmed or icrc(rest[:-4]) == rest[-4:],
        odd=odd,
    )
