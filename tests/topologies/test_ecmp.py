"""ECMP's choice of paths: by the shape of the fabric, the flow and the seed, and nothing else."""

from __future__ import annotations

from collections import Counter

from topologies import load_fabric
from topologies.addressing import inner_address, sid_list, usid_fields
from topologies.clos import Fabric
from topologies.ecmp import RESILIENT, choose, fabric_seed, flow_hash
from topologies.paths import path_evs, path_links

DEMO = load_fabric("demo")


def chosen(fabric: Fabric) -> list[int]:
    """The EV of 64 flows from h0 to h4."""
    seed, evs = fabric_seed(fabric), list(path_evs(fabric, 0, 4))
    return [
        choose(flow_hash(seed, inner_address(0), inner_address(4), port, 4791), evs, RESILIENT)
        for port in range(50_000, 50_064)
    ]


def route_of(fabric: Fabric, src: int, dst: int, value: int) -> tuple[int, int]:
    """(plane, T1) of a path between hosts under different T0s."""
    return value >> 16, usid_fields(sid_list(fabric, src, dst, value)[1])[2]


def test_flows_take_the_same_paths_whatever_the_queues_do() -> None:
    paths = chosen(DEMO)
    assert len(set(paths)) == 16, "64 flows over 16 paths"
    assert chosen(DEMO.with_(name="demo-no-trimming", trimming=False)) == paths
    assert chosen(DEMO.with_(hosts_per_t0=5)) != paths, (
        "another fabric is hashed from another start"
    )


def test_evs_that_are_hashed_spread_over_all_uplinks_of_their_plane() -> None:
    fabric = DEMO.with_(name="demo-ecmp", routing="ecmp")
    evs = path_evs(fabric, 0, 4)
    assert len(evs) == 128 and len(path_evs(fabric, 0, 1)) == 4
    for plane in range(4):
        uplinks = Counter(route_of(fabric, 0, 4, value)[1] for value in evs if value >> 16 == plane)
        assert sorted(uplinks) == [0, 1, 2, 3] and min(uplinks.values()) >= 2, (
            "32 EVs over 4 uplinks, as the hash has it"
        )
    assert {route_of(fabric, 0, 4, value) for value in evs} != {
        route_of(fabric, 0, 5, value) for value in evs[:4]
    }


def test_switches_that_converge_move_only_the_evs_of_the_dead_link() -> None:
    fabric = DEMO.with_(name="demo-ecmp", routing="ecmp")
    dead = "p1-t0-1:p1-t1-2"  # on the far side: the first switch must know of it, too
    for value in path_evs(fabric, 0, 4):
        before, after = sid_list(fabric, 0, 4, value), sid_list(fabric, 0, 4, value, {dead})
        over = dead in {link.name for link in path_links(fabric, 0, 4, value)}
        assert (before != after) == over
        assert usid_fields(after[1])[:2] == usid_fields(before[1])[:2] and after[2:] == before[2:]
        assert not over or usid_fields(after[1])[2] != 2
    every = {link.name for link in fabric.links if link.kind == "fabric" and link.plane == 1}
    value = path_evs(fabric, 0, 4)[40]
    assert sid_list(fabric, 0, 4, value, every) == sid_list(fabric, 0, 4, value), (
        "no T1 is left: nothing to move to"
    )


def test_by_modulo_most_evs_of_the_plane_move_when_switches_converge() -> None:
    fabric = DEMO.with_(name="demo-modulo", routing="ecmp", ecmp_hash="modulo")
    dead = "p1-t0-1:p1-t1-2"
    evs = path_evs(fabric, 0, 4)
    moved = [
        value
        for value in evs
        if sid_list(fabric, 0, 4, value) != sid_list(fabric, 0, 4, value, {dead})
    ]
    over = [
        value for value in evs if dead in {link.name for link in path_links(fabric, 0, 4, value)}
    ]
    assert set(over) < set(moved) and {value >> 16 for value in moved} == {1} and len(moved) > 16, (
        "of 32 in the plane"
    )
    assert sorted(Counter(route_of(fabric, 0, 4, value) for value in evs if value >> 16 == 1)) == [
        (1, t1) for t1 in range(4)
    ]
