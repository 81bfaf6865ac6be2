"""ECMP: which of a pair's paths a flow takes, before and after the network has converged around a failure.

Called by the endpoint when a queue pair is made and when the network re-routes. Packets never influence it: a
flow keeps one path, whatever happens on it.

The hash is CRC-32 over the inner 5-tuple from a start value that is the fabric's, as switch ASICs do it, then
MurmurHash3's 32-bit finaliser, because CRC alone is linear and consecutive source ports would fall in patterns.
Among the paths the highest of mix(flow, EV) wins (rendezvous hashing): a failure moves only the flows it hit, as
resilient ECMP does. Plain modulo ECMP would move nearly all of them and reorder the innocent; the baseline gets the kinder of
the two that are deployed [ours].
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from agents.packets.headers import UDP_PORT
from topologies.clos import Fabric
from topologies.paths import path_links

_MASK: Final = 0xFFFFFFFF
_TUPLE: Final = struct.Struct("!16s16sBHH")


def _mix(value: int) -> int:
    """MurmurHash3's fmix32: every output bit depends on every input bit."""
    value ^= value >> 16
    value = value * 0x85EBCA6B & _MASK
    value ^= value >> 13
    value = value * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def fabric_seed(fabric: Fabric) -> int:
    """Start value of every switch's hash: the same on every fabric of this shape, however fast it runs and whatever its queues do."""
    return zlib.crc32(repr((fabric.planes, fabric.t0_per_plane, fabric.t1_per_plane, fabric.hosts_per_t0)).encode())


def flow_hash(seed: int, src: bytes, dst: bytes, sport: int) -> int:
    """32-bit hash of the inner 5-tuple (addresses, UDP, source port, 4791)."""
    return _mix(zlib.crc32(_TUPLE.pack(src, dst, 17, sport, UDP_PORT), seed))


def choose(flow: int, evs: list[int]) -> int:
    """The EV that the flow takes among ``evs`` (not empty)."""
    best, best_score = evs[0], -1
    for value in evs:
        score = _mix(flow ^ _mix(value + 1))
        if score > best_score:
            best, best_score = value, score
    return best


def living_paths(fabric: Fabric, src: int, dst: int, evs: list[int], dead_links: set[str]) -> list[int]:
    """Those of ``evs`` whose path from ``src`` to ``dst`` uses no dead link."""
    if not dead_links:
        return list(evs)
    living: list[int] = []
    for value in evs:
        intact = True
        for link in path_links(fabric, src, dst, value):
            if link.name in dead_links:
                intact = False
        if intact:
            living.append(value)
    return living
