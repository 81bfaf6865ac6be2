"""Does ECMP: chooses among a packet's paths as switches that hash do, before and after they have
converged around a failure.

It serves the baselines, whose flows are hashed by their 5-tuple, and MRC over statically configured
ECMP (MRC paper, section 2), whose EV is hashed. Sources write the result into their packets' SRv6
addresses on behalf of the switches
(docs/why/decisions/0024-hashing-switches-are-played-by-sources.md).

The hash is CRC-32 from the fabric's start value, as switch ASICs do it, then MurmurHash3's 32-bit
finaliser: CRC alone is linear, and consecutive values would fall in patterns. Among the paths the
highest of mix(hash, path) wins (rendezvous hashing): a failure moves only what it hit, as resilient
ECMP does. Plain ECMP, ``ecmp_hash = "modulo"``, moves nearly everything; all get the kinder unless
a fabric says so [ours].
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topologies.clos import Fabric

RESILIENT, MODULO = "resilient", "modulo"
HASHES: Final = (RESILIENT, MODULO)
EVS: Final = 128
"""EVs of a pair of hosts, over all planes (MRC paper: 128 to 256 per queue pair)."""
_MASK: Final = 0xFFFFFFFF
_TUPLE: Final = struct.Struct("!16s16sBHH")
_ENTROPY: Final = struct.Struct("!HHI")


def _mix(value: int) -> int:
    """MurmurHash3's fmix32: every output bit depends on every input bit."""
    value ^= value >> 16
    value = value * 0x85EBCA6B & _MASK
    value ^= value >> 13
    value = value * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def fabric_seed(fabric: Fabric) -> int:
    return zlib.crc32(
        repr(
            (fabric.planes, fabric.t0_per_plane, fabric.t1_per_plane, fabric.hosts_per_t0)
        ).encode()
    )


def flow_hash(seed: int, src: bytes, dst: bytes, sport: int, dport: int) -> int:
    return _mix(zlib.crc32(_TUPLE.pack(src, dst, 17, sport, dport), seed))


def choose(hashed: int, paths: Sequence[int], how: str) -> int:
    if how == MODULO:
        return paths[hashed % len(paths)]
    return max(paths, key=lambda path: _mix(hashed ^ _mix(path + 1)))


def uplink_of(
    fabric: Fabric, src: int, dst: int, value: int, dead_links: Collection[str] = ()
) -> int:
    """Return the T1 over which EV ``value`` leads between hosts under different T0s, once the
    switches know of ``dead_links``. Where no T1 of the plane is left, it is the one of before: the
    packets are lost."""
    plane, first, last = value >> 16, fabric.t0_of(src), fabric.t0_of(dst)
    uplinks = range(fabric.t1_per_plane)
    living = (
        [
            j
            for j in uplinks
            if not any(f"p{plane}-t0-{t0}:p{plane}-t1-{j}" in dead_links for t0 in (first, last))
        ]
        if dead_links
        else uplinks
    )
    return choose(
        _mix(zlib.crc32(_ENTROPY.pack(src, dst, value), fabric_seed(fabric))),
        living or uplinks,
        fabric.ecmp_hash,
    )
