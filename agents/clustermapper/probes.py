"""Chooses the probes that a host sends in each round, and builds their frames. Pure.

A probe is source-routed to its sender: uSIDs (T0, own downlink) see the NIC-T0 link, (T0, T1, T0,
own downlink) that and one T0-T1 link, each both ways. It is of the class of data that is not
trimmed, to meet the same fate, and not ECN-capable, to use up no mark.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from struct import Struct
from typing import Any, Final, NamedTuple

from agents.clustermapper.options import Options
from agents.packets import dscp
from agents.packets.headers import HEAD, INNER, crc32, head
from topologies.addressing import (
    TIER_T0,
    TIER_T1,
    ev,
    host_usid,
    inner_address,
    outer_address,
    usid,
)
from topologies.clos import Fabric, t0_name, t1_name
from topologies.units import BYTE

MAGIC: Final = 0x6D726370  # "mrcp"
# magic, nonce of the sender's run, cell, sequence number, time sent
PAYLOAD: Final = Struct("!IQIIQ")
CRC: Final = Struct("!I")
LENGTH: Final = HEAD + PAYLOAD.size + CRC.size
MOST_OF_A_PORT: Final = 0.01
"""The largest share of a port's rate for probes; the interval grows instead."""
TURNS: Final = 8
"""A host probes its share of T1s so often before the shares move on by one [ours]."""
SLACK_RTTS: Final = 1


class Path(NamedTuple):
    """``cell`` numbers the paths of a host: plane by plane, T0 alone first, then T1 by T1."""

    cell: int
    plane: int
    t1: int  # -1: no further than the T0
    head: bytes  # the frame up to the payload


def probe_port(fabric: Fabric) -> int:
    """Return the port after MRC's [ours], as in the switches' programs."""
    return fabric.udp_port + 1


def cells(fabric: Fabric) -> int:
    return fabric.planes * (fabric.t1_per_plane + 1)


def cell_of(fabric: Fabric, plane: int, t1: int = -1) -> int:
    return plane * (fabric.t1_per_plane + 1) + t1 + 1


def nic_link(fabric: Fabric, plane: int, host: int) -> str:
    return f"h{host}:{t0_name(plane, fabric.t0_of(host))}"


def upper_link(plane: int, t0: int, t1: int) -> str:
    return f"{t0_name(plane, t0)}:{t1_name(plane, t1)}"


def paths(fabric: Fabric, host: int) -> tuple[Path, ...]:
    result: list[Path] = []
    me = inner_address(host)
    for plane in range(fabric.planes):
        t0, down = usid(plane, TIER_T0, fabric.t0_of(host)), host_usid(fabric, plane, host)
        for t1 in range(-1, fabric.t1_per_plane):
            sids = (t0, down) if t1 < 0 else (t0, usid(plane, TIER_T1, t1), t0, down)
            value = ev(plane, max(t1, 0))
            front = head(
                (me, outer_address(sids)),
                (me, me),
                value,
                dscp.NO_TRIM,
                dscp.NOT_ECT,
                LENGTH - HEAD,
                probe_port(fabric),
            )
            result.append(Path(len(result), plane, t1, front))
    return tuple(result)


# --- frames ---------------------------------------------------------------------------------------


class Probe(NamedTuple):
    """``sound`` False: the checksum is wrong, and so may be all other fields."""

    sound: bool
    nonce: int
    cell: int
    sequence: int
    sent: int  # ps


def frame(path: Path, nonce: int, sequence: int, now: int) -> bytes:
    """The checksum covers everything from the inner header on: no switch changes it."""
    front = path.head + PAYLOAD.pack(MAGIC, nonce, path.cell, sequence, now)
    return front + CRC.pack(crc32(front[INNER:]))


def read(buffer: Any, start: int, length: int) -> Probe | None:
    """Return None if the frame is no probe. Never raises on hostile input."""
    if length != LENGTH:
        return None
    at = start + HEAD
    magic, nonce, cell, sequence, sent = PAYLOAD.unpack_from(buffer, at)
    end = start + LENGTH - CRC.size
    sound = CRC.unpack_from(buffer, end)[0] == crc32(memoryview(buffer)[start + INNER : end])
    if magic != MAGIC and sound:
        return None
    return Probe(sound, nonce, cell, sequence, sent)


# --- turns ----------------------------------------------------------------------------------------


def interval_ps(fabric: Fabric, options: Options) -> int:
    """Every plane of a host gets two probes in this time: as asked, or long enough for
    :data:`MOST_OF_A_PORT`."""
    least = 2 * LENGTH * BYTE / (MOST_OF_A_PORT * fabric.nic_rate)
    return int(max(options.interval * fabric.base_rtt_ps, least))


def deadline_ps(fabric: Fabric) -> int:
    """Return base RTT, every queue on the way full, and a base RTT for late agents. A probe crosses
    three egress queues. Trimming bounds them, but trimmed headers may take half of a link."""
    if fabric.trimming:
        upper, last, share = fabric.trim_bytes(False), fabric.trim_bytes(True), 0.5
    else:
        upper, last, share = fabric.buffer_bytes, fabric.buffer_bytes, 0.95
    queues = 2 * upper * BYTE / fabric.fabric_rate + last * BYTE / fabric.nic_rate
    return int((1 + SLACK_RTTS) * fabric.base_rtt_ps + queues / share)


def share_size(fabric: Fabric, options: Options) -> int:
    """Every T0-T1 link has two hosts, where its T0 has two."""
    t1s = fabric.t1_per_plane
    return min(t1s, max(-(-2 * t1s // fabric.hosts_per_t0), round(options.share * t1s)))


@lru_cache(maxsize=256)
def _order(seed: int, plane: int, t0: int, t1s: int) -> tuple[int, ...]:
    order = list(range(t1s))
    Random(f"{seed}/{plane}/{t0}").shuffle(order)
    return tuple(order)


def share(
    fabric: Fabric, options: Options, seed: int, host: int, plane: int, epoch: int
) -> tuple[int, ...]:
    """Choose the T1s of a plane that a host probes in an epoch, in turn. The T1s stand in a circle,
    in an order drawn per T0. Hosts begin at equal distances d and take arcs of two d or more, so
    every T1 is in two arcs. All arcs move on by one each epoch."""
    t1s = fabric.t1_per_plane
    order = _order(seed, plane, fabric.t0_of(host), t1s)
    first = fabric.downlink_of(host) * t1s // fabric.hosts_per_t0 + epoch
    return tuple(order[(first + k) % t1s] for k in range(share_size(fabric, options)))


def cells_of_round(
    fabric: Fabric, options: Options, seed: int, host: int, number: int
) -> tuple[list[int], list[int]]:
    """Return the cells of round ``number`` of the common clock: to the T0s, then to one T1 of each
    plane. Each list leaves together: planes never meet."""
    planes = range(fabric.planes)
    size = share_size(fabric, options)
    if not size:
        return [cell_of(fabric, p) for p in planes], []
    epoch, turn = divmod(number, TURNS * size)
    upper = [
        cell_of(fabric, p, share(fabric, options, seed, host, p, epoch)[(turn + p) % size])
        for p in planes
    ]
    return [cell_of(fabric, p) for p in planes], upper
