"""EV <-> path <-> links, and the static uN table of every switch."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from itertools import pairwise

from topologies.addressing import (
    TIER_T0,
    TIER_T1,
    ev,
    host_usid,
    sid_list,
    switch_usid,
    usid,
    usid_fields,
)
from topologies.clos import ECMP, Fabric, Link, t0_name, t1_name
from topologies.ecmp import EVS


def path_evs(fabric: Fabric, src: int, dst: int) -> tuple[int, ...]:
    """Return EVs plane by plane: one per plane under one T0; across, one per plane and T1. Where
    switches hash, there are ``ecmp.EVS`` in all, as many in each plane, and several lead over the
    same T1."""
    if fabric.t0_of(src) == fabric.t0_of(dst):
        per_plane = 1
    elif fabric.routing == ECMP:
        per_plane = max(fabric.t1_per_plane, EVS // fabric.planes)
    else:
        per_plane = fabric.t1_per_plane
    return _evs(fabric.planes, per_plane)


@lru_cache(maxsize=64)
def _evs(planes: int, per_plane: int) -> tuple[int, ...]:
    return tuple(ev(p, u) for p in range(planes) for u in range(per_plane))


def path_links(fabric: Fabric, src: int, dst: int, value: int) -> tuple[Link, ...]:
    """Return cables in travel order: 4 across a T1, 2 under one T0, 5 between sites."""
    by_name = fabric.links_by_name
    return tuple(
        by_name.get(f"{a}:{b}") or by_name[f"{b}:{a}"]
        for a, b in pairwise(path_nodes(fabric, src, dst, value))
    )


def path_nodes(fabric: Fabric, src: int, dst: int, value: int) -> tuple[str, ...]:
    switches = map(usid_fields, sid_list(fabric, src, dst, value)[:-1])
    return (
        f"h{src}",
        *(
            (t0_name if tier == TIER_T0 else t1_name)(plane, index)
            for plane, tier, index in switches
        ),
        f"h{dst}",
    )


def evs_over(fabric: Fabric, src: int, dst: int, link: str) -> tuple[int, ...]:
    name = fabric.link(link).name
    return tuple(
        e
        for e in path_evs(fabric, src, dst)
        if any(li.name == name for li in path_links(fabric, src, dst, e))
    )


def living_evs(fabric: Fabric, src: int, dst: int, dead_links: Collection[str]) -> list[int]:
    evs = path_evs(fabric, src, dst)
    return (
        [
            value
            for value in evs
            if not any(link.name in dead_links for link in path_links(fabric, src, dst, value))
        ]
        if dead_links
        else list(evs)
    )


def static_tables(fabric: Fabric) -> dict[str, dict[int, str]]:
    """Return switch -> next uSID -> egress port name (MRC paper, section 3: nothing routes
    dynamically). A T0 reaches every T1 of its plane and site and its own downlinks. A T1 reaches
    every T0 of its plane and site, and with two sites the T1 at the other end of its long-haul
    cable."""
    tables: dict[str, dict[int, str]] = {s: {} for s in fabric.switches}
    for p in range(fabric.planes):
        for i in range(fabric.t0_per_plane):
            t0 = t0_name(p, i)
            for j in fabric.t1s_of_t0(i):
                t1 = t1_name(p, j)
                tables[t0][usid(p, TIER_T1, j)] = f"{t0}-u{j}"
                tables[t1][usid(p, TIER_T0, i)] = f"{t1}-d{i}"
            for h in range(i * fabric.hosts_per_t0, (i + 1) * fabric.hosts_per_t0):
                tables[t0][host_usid(fabric, p, h)] = f"{t0}-d{fabric.downlink_of(h)}"
    for link in fabric.links:
        if link.kind == "haul":
            for near, far in ((link.a, link.b), (link.b, link.a)):
                tables[near.node][switch_usid(far.node)] = near.name
    return tables
