"""Builds and reads MRC frames by the tables of layouts.py, without the engine's code."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from testbed.conform.layouts import AFTER_BTH, CLASSES, HEADERS, PACKETS, Bits, size

INNER, UDP, BTH = 54, 94, 102
ICRC = 4
KINDS = {
    **dict.fromkeys((0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xCB), "write"),
    0xD1: "ack",
    0xD8: "request",
    0xD9: "response",
    0xDC: "sack",
    0xDD: "nack",
    0xDE: "probe",
}
OPCODES = {kind: opcode for opcode, kind in reversed(KINDS.items())}
TRIMMED = (18, 20)


def fields_of(opcode: int) -> Iterable[Bits]:
    """Return the fields of an opcode's headers; an unknown opcode is laid out as a WRITE."""
    for header in ("BTH", *AFTER_BTH.get(opcode, AFTER_BTH[0xCA])):
        yield from HEADERS[header]


def icrc(frame: bytes) -> bytes:
    masked = bytearray(frame[INNER:])
    masked[0] |= 0x0F
    masked[1:4] = b"\xff\xff\xff"
    masked[7] = 0xFF
    masked[UDP - INNER + 6 : UDP - INNER + 8] = b"\xff\xff"
    masked[BTH - INNER + 4] = 0xFF
    return zlib.crc32(b"\xff" * 8 + bytes(masked)).to_bytes(4, "little")


@dataclass
class Frame:
    """``outer`` and ``inner``: source and destination. ``values``: every field by its key,
    ``payload`` (without padding), ``reserved`` (fields that are not 0), ``icrc`` and ``lengths``
    (whether they are right). ``sets``: numbers that follow from several fields."""

    kind: str
    name: str
    outer: tuple[bytes, bytes]
    inner: tuple[bytes, bytes]
    values: dict[str, int]
    sets: dict[str, set[int]] = dataclasses.field(default_factory=dict)


def build(
    given: Mapping[str, int], mac: bytes, outer: bytes, inner: bytes, payload: bytes = b""
) -> bytes:
    """``outer`` and ``inner``: source and destination in a row. ``given`` holds ``opcode``, ``ev``,
    ``dscp``, ``ecn``, ``udp_port``, or any field."""
    values = {"pad": -len(payload) % 4, **given}
    bits = length = 0
    for field in fields_of(values["opcode"]):
        bits = bits << field.width | values.get(field.key, field.usual) & (1 << field.width) - 1
        length += field.width
    after_udp = bits.to_bytes(length // 8, "big") + payload + bytes(values["pad"])
    udp_length = 8 + len(after_udp) + ICRC
    word = 6 << 28 | values["dscp"] << 22 | values["ecn"] << 20
    hops = values.get("hop_limit", 64)

    def ip(flow: int, length: int, following: int, addresses: bytes) -> bytes:
        return (
            (word | flow).to_bytes(4, "big")
            + length.to_bytes(2, "big")
            + bytes((following, hops))
            + addresses
        )

    frame = mac * 2 + b"\x86\xdd" + ip(0, 40 + udp_length, 41, outer)
    frame += ip(values["ev"] >> 16, udp_length, 17, inner)
    ports = (values["ev"] & 0xFFFF, values["udp_port"], udp_length, values.get("udp_checksum", 0))
    frame += b"".join(port.to_bytes(2, "big") for port in ports) + after_udp
    return frame + icrc(frame)


def parse(frame: bytes) -> Frame:
    """Raises ValueError for frames that are not MRC's."""
    if (
        len(frame) < BTH + 12 + ICRC
        or frame[12:14] != b"\x86\xdd"
        or frame[20] != 41
        or frame[60] != 17
    ):
        raise ValueError(f"{len(frame)} bytes that are not IPv6 in IPv6 with UDP and a BTH")
    opcode = frame[BTH]
    if opcode not in AFTER_BTH:
        raise ValueError(f"opcode {opcode:02X} is not an opcode of MRC")
    word, inner_word = (int.from_bytes(frame[at : at + 4], "big") for at in (14, INNER))
    lengths = [int.from_bytes(frame[at : at + 2], "big") for at in (18, 58, 98)]
    d = {
        "dscp": word >> 22 & 0x3F,
        "ecn": word >> 20 & 3,
        "hop_limit": frame[21],
        "inner_hop_limit": frame[61],
        "inner_dscp": inner_word >> 22 & 0x3F,
        "inner_ecn": inner_word >> 20 & 3,
        "ev": (inner_word & 0xFFFF) << 16 | int.from_bytes(frame[UDP : UDP + 2], "big"),
        "udp_port": int.from_bytes(frame[96:98], "big"),
        "udp_checksum": int.from_bytes(frame[100:102], "big"),
        "reserved": 0,
    }
    at = BTH + sum(map(size, ("BTH", *AFTER_BTH[opcode])))
    if len(frame) < at + ICRC:
        raise ValueError(f"a {PACKETS[opcode]} that is cut short")
    bits, left = int.from_bytes(frame[BTH:at], "big"), 8 * (at - BTH)
    for field in fields_of(opcode):
        left -= field.width
        value = bits >> left & (1 << field.width) - 1
        if field.signed and value >> field.width - 1:
            value -= 1 << field.width
        if field.key:
            d[field.key] = value
        else:
            d["reserved"] += value != 0
    trimmed = d["dscp"] in TRIMMED
    d["payload"] = max(0, len(frame) - ICRC - d["pad"] - at)
    d["icrc"] = int(trimmed or icrc(frame[:-ICRC]) == frame[-ICRC:])
    d["lengths"] = int(
        trimmed or lengths == [len(frame) - INNER, len(frame) - UDP, len(frame) - UDP]
    )
    return Frame(
        KINDS[opcode],
        PACKETS[opcode],
        (frame[22:38], frame[38:54]),
        (frame[62:78], frame[78:94]),
        d,
    )


def shown(frame: Frame) -> dict[str, str]:
    d = frame.values
    rows = {
        "packet": frame.name,
        "EV": f"{d['ev'] >> 16}:{d['ev'] & 0xFFFF}",
        "DSCP": CLASSES.get(d["dscp"], (str(d["dscp"]), ""))[0],
    }
    usual = {
        field.key: field.usual
        for field in fields_of(d["opcode"])
        if field.key not in ("psn", "dqpn")
    }
    for field in fields_of(d["opcode"]):
        if field.key not in ("", "opcode") and d[field.key] != usual.get(field.key, -1):
            rows[field.key] = (
                f"{d[field.key]:X}h"
                if field.key in ("va", "rkey", "bitmap", "imm")
                else str(d[field.key])
            )
    if d["payload"]:
        rows["payload"] = f"{d['payload']} bytes"
    for name, right in (
        ("reserved", 0),
        ("icrc", 1),
        ("lengths", 1),
        ("hop_limit", 64),
        ("udp_checksum", 0),
    ):
        if d[name] != right:
            rows[name] = f"{d[name]} instead of {right}"
    return rows
