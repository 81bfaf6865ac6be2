"""Reads classic pcap files without Wireshark: a row of words and numbers for each packet of MRC.
Nothing in a file is trusted."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.mrc import wire
from agents.packets import dscp
from testbed.errors import UserError
from topologies.addressing import ev_fields, host_of_inner

NS, US = 0xA1B23C4D, 0xA1B2C3D4
"""Magic numbers of pcap files: times in ns, in µs (pcap-savefile(5))."""
ETHERNET = 1
LARGEST = 1 << 20
"""A record of more bytes is a damaged file [ours]."""


@dataclass(frozen=True)
class Packet:
    """``at``: ns since the file's time 0. ``length``: bytes on the wire, without the Ethernet
    checksum; ``frame`` may be cut short."""

    at: int
    frame: bytes
    length: int

    @property
    def fields(self) -> dict[str, Any] | None:
        try:
            return wire.describe(self.frame)
        except (ValueError, struct.error, IndexError):
            return None


def read(path: Path) -> Iterator[Packet]:
    # a FIFO that nobody writes to is empty
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        os.set_blocking(file.fileno(), True)
        head = file.read(24)
        order = next(
            (
                order
                for order in "<>"
                if len(head) == 24 and struct.unpack(f"{order}I", head[:4])[0] in (NS, US)
            ),
            None,
        )
        if order is None:
            raise UserError(
                f"{path} is no pcap file: give one that mrcbed run --pcap wrote (tshark -F "
                "nsecpcap -w converts others)"
            )
        unit = 1 if struct.unpack(f"{order}I", head[:4])[0] == NS else 1000
        if struct.unpack(f"{order}I", head[20:])[0] != ETHERNET:
            raise UserError(f"{path} holds no Ethernet frames: capture on a port, not on 'any'")
        while record := file.read(16):
            seconds, fraction, kept, length = (
                struct.unpack(f"{order}4I", record) if len(record) == 16 else (0, 0, LARGEST, 0)
            )
            frame = file.read(kept) if kept < LARGEST else b""
            if len(frame) != kept:
                raise UserError(
                    f"{path} ends in the middle of a packet: the run may still go on, or the "
                    "file was cut"
                )
            yield Packet(seconds * 10**9 + fraction * unit, frame, length)


def row(packet: Packet) -> dict[str, Any]:
    fields = packet.fields
    if fields is None:
        return {
            "at_ns": packet.at,
            **dict.fromkeys(("src", "dst", "ev", "psn")),
            "type": "not MRC",
            "bytes": packet.length,
            "notes": "",
        }
    plane, uplink = ev_fields(fields["ev"])
    return {
        "at_ns": packet.at,
        "src": f"h{host_of_inner(fields['inner_src'])}",
        "dst": f"h{host_of_inner(fields['inner_dst'])}",
        "type": fields["name"],
        "ev": f"{plane}:{uplink}",
        "psn": fields["psn"],
        "bytes": packet.length,
        "notes": ", ".join(notes(fields)),
    }


def notes(fields: Mapping[str, object]) -> Iterator[str]:
    if fields["dscp"] in (dscp.TRIMMED, dscp.TRIMMED_LASTHOP):
        yield "trimmed"
    if fields["ecn"] == dscp.CE:
        yield "marked"
    if fields["rtx"] and "dmalen" in fields:
        yield "sent again"
    if fields["name"] == "NACK":
        yield f"asks for PSN {fields['nack_psn']}"
    if fields["name"] == "SACK":
        yield f"all up to PSN {fields['cack_psn']}"
        if fields["pr"]:
            yield "answers a probe"
