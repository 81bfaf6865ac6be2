"""Computes the bandwidth that theory allows a collective, or any traffic matrix, on a fabric, whole
or with links gone.

scipy is imported only when a linear programme is solved, so that agents can import this package
without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from topologies.addressing import ev_fields
from topologies.clos import SACK_BYTES, Fabric, FabricError, t0_name
from topologies.paths import path_evs, path_links, path_nodes

Placement = Literal["packed", "interleaved"]
PLACEMENTS: tuple[str, ...] = get_args(Placement)
Way = tuple[tuple[str, str], ...]
SACK_EVERY = 16 * 1024
"""Payload bytes per SACK (UET; protocol.md section 5)."""


def place_ranks(fabric: Fabric, placement: str) -> list[int]:
    """Return rank -> host number. ``packed``: neighbours in the ring sit under one T0; only the
    T0s' last ranks cross the T1s. ``interleaved``: ranks are dealt to the T0s in turn, so every
    ring edge crosses the T1s. Raises :class:`FabricError` where that cannot be."""
    if placement == "packed":
        return list(range(fabric.host_count))
    if placement == "interleaved":
        if fabric.t0_per_plane < 2:
            raise FabricError(
                f"fabric {fabric.name!r} has one T0 per plane: placement 'interleaved' needs two "
                "or more, use 'packed'"
            )
        return [
            t0 * fabric.hosts_per_t0 + downlink
            for downlink in range(fabric.hosts_per_t0)
            for t0 in range(fabric.t0_per_plane)
        ]
    raise FabricError(f"no placement {placement!r}: there are {' and '.join(PLACEMENTS)}")


def ring_edges(hosts: Sequence[int]) -> list[tuple[int, int]]:
    return [(host, hosts[(i + 1) % len(hosts)]) for i, host in enumerate(hosts)]


def links_of_switch(fabric: Fabric, switch: str) -> tuple[str, ...]:
    if switch not in fabric.switches:
        import difflib

        near = difflib.get_close_matches(switch, fabric.switches, n=3, cutoff=0.3) or list(
            fabric.switches[:2]
        )
        raise FabricError(
            f"fabric {fabric.name!r} has no switch {switch!r}; near it: {', '.join(near)}"
        )
    return tuple(link.name for link in fabric.links if switch in (link.a.node, link.b.node))


def traffic_bandwidth(
    fabric: Fabric,
    traffic: Mapping[tuple[int, int], float],
    dead_links: Iterable[str] = (),
    taken: Mapping[tuple[str, str], float] | None = None,
) -> float:
    """Find the largest x, bits/s of payload, so that every flow (sender, receiver) of ``traffic``
    can carry its weight times x at once.

    0.0 if one is cut off, infinite without traffic. A flow puts an equal share on each plane that
    is alive for it (MRC paper, section 2: planes stay equally loaded); inside a plane it may split
    over the live uplinks as it likes. Cables are full duplex. SACKs are not counted, see
    :func:`sack_share`. ``taken``: (link, node it leaves) -> bits/s, as on the wire, that other
    traffic has there and does not yield.

    Flows between the same T0s with the same live planes are one in the linear programme: how they
    share its cables makes no difference.
    """
    other = taken or {}
    dead = frozenset(fabric.link(name).name for name in dead_links)
    # T0s and live planes -> weight on each of these
    groups: dict[tuple[int, int, tuple[int, ...]], float] = {}
    nics: dict[tuple[str, str], float] = {}  # (link, node it leaves) -> weight
    for (src, dst), weight in traffic.items():
        ends = fabric.t0_of(src), fabric.t0_of(dst)
        between = _between(fabric, *ends, dead)
        planes = tuple(
            plane
            for plane in between
            if dead.isdisjoint((_nic(plane, src, ends[0]), _nic(plane, dst, ends[1])))
        )
        if not planes:
            return 0.0
        groups[*ends, planes] = groups.get((*ends, planes), 0.0) + weight / len(planes)
        for plane in planes:
            for cable in (
                (_nic(plane, src, ends[0]), f"h{src}"),
                (_nic(plane, dst, ends[1]), t0_name(plane, ends[1])),
            ):
                nics[cable] = nics.get(cable, 0.0) + weight / len(planes)
    if not groups:
        return float("inf")

    # variable -> coefficient
    use: dict[tuple[str, str], dict[int, float]] = {
        cable: {0: weight} for cable, weight in nics.items()
    }
    rows_eq: list[dict[int, float]] = []
    variables = 1  # number 0 is the common rate
    for (first, last, planes), weight in groups.items():
        for plane in planes if first != last else ():
            row = {0: -weight}
            for cables in _between(fabric, first, last, dead)[plane]:
                row[variables] = 1.0
                for cable in cables:
                    use.setdefault(cable, {})[variables] = 1.0
                variables += 1
            rows_eq.append(row)

    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    def matrix(rows: list[dict[int, float]]) -> object:
        entries = [(i, j, value) for i, row in enumerate(rows) for j, value in row.items()]
        data = ([e[2] for e in entries], ([e[0] for e in entries], [e[1] for e in entries]))
        return coo_matrix(data, shape=(len(rows), variables))

    unit = float(fabric.nic_rate)  # rates of order one keep the solver exact
    cost = np.zeros(variables)
    cost[0] = -1.0
    capacity = [
        max(0.0, fabric.links_by_name[link].rate - other.get((link, node), 0.0)) / unit
        for link, node in use
    ]
    equal = {"A_eq": matrix(rows_eq), "b_eq": np.zeros(len(rows_eq))} if rows_eq else {}
    solved = linprog(cost, A_ub=matrix(list(use.values())), b_ub=capacity, **equal, method="highs")
    if not solved.success:
        raise RuntimeError(f"bandwidth of fabric {fabric.name!r}: {solved.message}")
    return float(solved.x[0]) * unit * fabric.payload_share


def _nic(plane: int, host: int, t0: int) -> str:
    return f"h{host}:{t0_name(plane, t0)}"


@lru_cache(maxsize=4096)
def _between(fabric: Fabric, first: int, last: int, dead: frozenset[str]) -> dict[int, list[Way]]:
    if first == last:
        return {plane: [()] for plane in range(fabric.planes)}
    ways: dict[int, list[Way]] = {}
    src, dst = (t0 * fabric.hosts_per_t0 for t0 in (first, last))
    for value in path_evs(fabric, src, dst):
        switches = path_nodes(fabric, src, dst, value)[1:-1]
        cables = path_links(fabric, src, dst, value)[1:-1]
        if dead.isdisjoint(cable.name for cable in cables):
            way = tuple((cable.name, node) for cable, node in zip(cables, switches, strict=False))
            ways.setdefault(ev_fields(value)[0], []).append(way)
    return ways


# --- collectives ----------------------------------------------------------------------------------

COLLECTIVES = (
    "ring-allreduce",
    "tree-allreduce",
    "reduce-scatter",
    "all-gather",
    "all-to-all",
    "send-recv",
    "hierarchical-allreduce",
)


def bus_factor(collective: str, ranks: int) -> float:
    """Return busbw / algbw as nccl-tests has it (PERFORMANCE.md), which is also what each rank
    sends per byte of "size"."""
    if collective == "send-recv":
        return 1.0
    return (2 if collective.endswith("allreduce") else 1) * (ranks - 1) / ranks


@dataclass(frozen=True)
class Phase:
    """All ranks go through a phase together: ``share`` of a collective's bytes, and each rank
    pair's part of a rank's rate."""

    share: float
    traffic: dict[tuple[int, int], float]


def collective_phases(collective: str, hosts: Sequence[int]) -> list[Phase]:
    """Return who sends how much to whom, hosts in rank order. The shares add up to 1.

    Ring collectives, reduce-scatter and all-gather go round the ring. Halving-doubling exchanges
    half of the buffer with the rank at half the distance, a quarter with that at a quarter, and the
    same back. Hierarchical all-reduce goes round the ring of each half of the ranks while slices
    that have been are exchanged between the halves. Raises ValueError on an unknown name, or on a
    number of ranks that it does not take.
    """
    n = len(hosts)
    if collective in ("ring-allreduce", "reduce-scatter", "all-gather", "send-recv"):
        return [Phase(1.0, dict.fromkeys(ring_edges(hosts), 1.0))]
    if collective == "all-to-all":
        return [Phase(1.0, {(a, b): 1 / (n - 1) for a in hosts for b in hosts if a != b})]
    if collective == "tree-allreduce":
        if n < 2 or n & n - 1:
            raise ValueError(f"tree-allreduce needs a power of two of ranks, not {n}")
        distances = [n >> k for k in range(1, n.bit_length())]
        return [
            Phase(d / (n - 1), {(hosts[r], hosts[r ^ d]): 1.0 for r in range(n)}) for d in distances
        ]
    if collective == "hierarchical-allreduce":
        if n < 2 or n % 2:
            raise ValueError(f"hierarchical-allreduce needs an even number of ranks, not {n}")
        m = n // 2
        rings = (
            dict.fromkeys(
                [*ring_edges(hosts[:m]), *ring_edges(hosts[m:])], 2 * (m - 1) / (2 * m - 1)
            )
            if m > 1
            else {}
        )
        return [
            Phase(1.0, rings | {(hosts[r], hosts[(r + m) % n]): 1 / (2 * m - 1) for r in range(n)})
        ]
    raise ValueError(f"no collective {collective!r}: there are {', '.join(COLLECTIVES)}")


def bus_bandwidth(
    fabric: Fabric,
    collective: str,
    hosts: Sequence[int],
    dead_links: Iterable[str] = (),
    taken: Mapping[tuple[str, str], float] | None = None,
) -> float:
    """Return bits/s of payload; 0.0 if a flow is cut off. ``taken`` is that of
    :func:`traffic_bandwidth`. Hosts are in rank order."""
    key = (collective, tuple(hosts), frozenset(dead_links))
    return _bus_bandwidth(fabric, *key) if not taken else _phases_bandwidth(fabric, *key, taken)


@lru_cache(maxsize=64)
def _bus_bandwidth(
    fabric: Fabric, collective: str, hosts: tuple[int, ...], dead: frozenset[str]
) -> float:
    """Results are kept: a run's figures ask the same again and again, and 500 hosts take
    seconds."""
    return _phases_bandwidth(fabric, collective, hosts, dead, None)


def _phases_bandwidth(
    fabric: Fabric,
    collective: str,
    hosts: tuple[int, ...],
    dead: frozenset[str],
    taken: Mapping[tuple[str, str], float] | None,
) -> float:
    time = 0.0
    for phase in collective_phases(collective, hosts):
        rate = traffic_bandwidth(fabric, phase.traffic, dead, taken)
        if rate <= 0:
            return 0.0
        time += phase.share / rate
    return 1 / time


def collective_step_ns(
    collective: str, ranks: int, message_bytes: int, bus_bandwidth: float
) -> float:
    if bus_bandwidth <= 0:
        return float("inf")
    return bus_factor(collective, ranks) * message_bytes * 8 / bus_bandwidth * 1e9


def sack_share(fabric: Fabric) -> float:
    """Return the SACK bytes that a port sends back per data byte it receives, both as on the wire;
    other figures of this module ignore them."""
    packets = max(1.0, SACK_EVERY / fabric.mtu)
    return SACK_BYTES / (packets * fabric.frame_bytes)
