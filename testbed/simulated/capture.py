"""Captures of a simulated link, as pcap files. A frame is in the file when all of it has crossed
the cable."""

from __future__ import annotations

import struct
from pathlib import Path

from testbed.simulated.network import Network
from topologies.units import NS

MAGIC = 0xA1B23C4D
HEADER = struct.Struct("<IHHiIII")
RECORD = struct.Struct("<IIII")
ETHERNET = 1
SNAP = 1 << 18


class Capture:
    dropped = 0

    def __init__(self, network: Network, link: str, directory: Path) -> None:
        cable = network.fabric.link(link)
        self.link = cable.name
        self.path = directory / f"{cable.name.replace(':', '_')}.pcap"
        self.captured = 0
        self._file = self.path.open("wb")
        self._file.write(HEADER.pack(MAGIC, 2, 4, 0, 0, SNAP, ETHERNET))
        network.taps |= {cable.a.number: self.take, cable.b.number: self.take}

    def take(self, now: int, frame: bytes) -> None:
        ns = round(now / NS)
        self._file.write(RECORD.pack(ns // 10**9, ns % 10**9, len(frame), len(frame)) + frame)
        self.captured += 1

    def stop(self) -> None:
        self._file.close()
