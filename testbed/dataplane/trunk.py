"""The trunk between machines that carry one fabric together."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Mapping, Sequence

from testbed.dataplane import layout
from testbed.dataplane.loader import PINS
from testbed.dataplane.maps import BpfMap, live_words
from topologies.parts import Part

PROGRAM = PINS / "progs" / "fabric_trunk"
_WORDS = len(layout.TRUNK_WORDS)
Carried = dict[int, list[int]]
"""Egress port -> layout.TRUNK_WORDS of one machine."""


def describe(parts: Sequence[Part], own: int, addresses: Sequence[str]) -> None:
    numbers = [int(ipaddress.IPv4Address(address)) for address in addresses]
    leads_to, peers = BpfMap(PINS / "trunk_to"), BpfMap(PINS / "trunk_peers")
    for part in parts:
        if part.machine != own:
            peers.update(struct.pack("=I", numbers[part.machine]), struct.pack("=I", part.machine))
            for port in part.ports:
                leads_to.update(
                    struct.pack("=I", port.number), struct.pack("=I", numbers[part.machine])
                )
    leads_to.close()
    peers.close()


class TrunkCounters:
    def __init__(self) -> None:
        self._stats, self._strays = (
            live_words(PINS / name) for name in ("trunk_stats", "trunk_strays")
        )

    @property
    def strays(self) -> int:
        return int(self._strays[0])

    def carried(self, ports: Iterable[int]) -> Carried:
        rows = ((port, self._stats[port * _WORDS : (port + 1) * _WORDS].tolist()) for port in ports)
        return {port: words for port, words in rows if any(words)}


def lost(machines: Iterable[Mapping[int, Sequence[int]]]) -> dict[int, int]:
    """Count lost packets by egress port, where there are any. A frame on its way counts as lost:
    ask once the fabric is quiet, and read the receivers' counters first."""
    sent, received = (
        layout.TRUNK_WORDS.index("sent_packets"),
        layout.TRUNK_WORDS.index("received_packets"),
    )
    missing: dict[int, int] = {}
    for carried in machines:
        for port, words in carried.items():
            missing[port] = missing.get(port, 0) + words[sent] - words[received]
    return {port: packets for port, packets in sorted(missing.items()) if packets}
