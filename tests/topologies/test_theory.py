"""Bandwidth theory against figures worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import Fabric, FabricError, load_fabric
from topologies.paths import path_evs, path_links
from topologies.theory import (
    COLLECTIVES,
    bus_bandwidth,
    bus_factor,
    collective_phases,
    collective_step_ns,
    links_of_switch,
    place_ranks,
    ring_edges,
    sack_share,
    traffic_bandwidth,
)

DEMO = load_fabric("demo")
FULL = DEMO.nic_rate * DEMO.planes * DEMO.payload_share
CABLE = "p2-t0-0:p2-t1-1"


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-6)


def test_a_packet_is_payload_and_142_bytes_more() -> None:
    assert near(400e9 * 4096 / 4238) == FULL  # 138 B of headers and 4 B of iCRC


@pytest.mark.parametrize(
    ("placement", "dead", "share"),
    [
        ("packed", [], 1),
        ("interleaved", [], 1),
        # Packed: one flow crosses each T0, 100 Gb/s a plane over three uplinks of 100 Gb/s.
        # Interleaved: four flows share the three, and planes stay equally loaded, so every plane
        # slows to 3/4.
        ("packed", [CABLE], 1),
        ("interleaved", [CABLE], 3 / 4),
        # two of one switch, one of them named from above
        ("interleaved", [CABLE, "p2-t1-3:p2-t0-0"], 1 / 2),
        # T1 number 1 cannot be entered from T0 0, T1 number 2 cannot leave to T0 1: two of four T1s
        # remain for each direction.
        ("interleaved", [CABLE, "p2-t0-1:p2-t1-2"], 1 / 2),
        ("packed", ["h2:p0-t0-0"], 3 / 4),  # the three other ports
        # a plane
        (
            "interleaved",
            [name for i in range(4) for name in links_of_switch(DEMO, f"p1-t1-{i}")],
            3 / 4,
        ),
        # a host without any port stops the ring
        ("packed", [f"h2:p{p}-t0-0" for p in range(4)], 0),
    ],
)
def test_a_ring_loses_what_its_busiest_link_does(
    placement: str, dead: list[str], share: float
) -> None:
    assert bus_bandwidth(DEMO, "ring-allreduce", place_ranks(DEMO, placement), dead) == near(
        FULL * share
    )


def test_oversubscribed_uplinks_bound_interleaved() -> None:
    slow = DEMO.with_(t1_per_plane=2)
    assert bus_bandwidth(slow, "ring-allreduce", place_ranks(slow, "interleaved")) == near(FULL / 2)
    assert bus_bandwidth(slow, "ring-allreduce", place_ranks(slow, "packed")) == near(FULL)


def test_step_time() -> None:
    # 8 ranks send 2 x 7/8 of 1 MB: 14 Mb at 14 Mb/s take a second.
    assert collective_step_ns("ring-allreduce", 8, 1_000_000, 14e6) == near(1e9)
    assert collective_step_ns("ring-allreduce", 8, 1 << 20, 0.0) == float("inf")


def test_bus_factors_are_those_of_nccl_tests() -> None:
    assert [bus_factor(c, 8) for c in COLLECTIVES] == [
        14 / 8,
        14 / 8,
        7 / 8,
        7 / 8,
        7 / 8,
        1.0,
        14 / 8,
    ]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_a_rank_sends_is_what_the_bus_factor_says(collective: str) -> None:
    """Phases: shares add up to 1, and in each every rank sends, and receives, at the whole rate."""
    phases = collective_phases(collective, range(8))
    assert sum(phase.share for phase in phases) == near(1.0)
    for phase in phases:
        for rank in range(8):
            assert sum(w for (a, _), w in phase.traffic.items() if a == rank) == near(1.0)
            assert sum(w for (_, b), w in phase.traffic.items() if b == rank) == near(1.0)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_fabric_that_is_not_oversubscribed_carries_every_collective_at_line_rate(
    collective: str,
) -> None:
    assert bus_bandwidth(DEMO, collective, place_ranks(DEMO, "packed")) == near(FULL)


def test_oversubscribed_by_hand() -> None:
    slow = DEMO.with_(t1_per_plane=2)
    # A plane carries x/4 of each rank; 4/7 of that goes to the other T0, and the four ranks there
    # share two uplinks of FULL/4: 4 * 4/7 * x/4 <= 2 * FULL/4.
    assert bus_bandwidth(slow, "all-to-all", range(8)) == near(FULL * 7 / 8)
    # Packed ranks, distance 4 crosses the T1s: 4/7 of the bytes at half the rate, the rest at the
    # whole.
    assert bus_bandwidth(slow, "tree-allreduce", range(8)) == near(FULL / (2 * 4 / 7 + 3 / 7))


def test_hierarchical_over_a_trunk_by_hand() -> None:
    # A seventh of what a rank sends goes to its twin: four of them share a trunk of 1/16 of the
    # line rate.
    two = load_fabric("two-sites").with_(long_haul_rate=25 * 10**9 // 4)
    line, trunk = two.host_rate * two.payload_share, 4 * two.long_haul_rate * two.payload_share
    assert bus_bandwidth(two, "hierarchical-allreduce", range(8)) == near(7 * trunk / 4)
    assert bus_bandwidth(two, "ring-allreduce", range(8)) == near(trunk), (
        "one rank's whole rate crosses it"
    )
    assert bus_bandwidth(two.with_(long_haul_rate=0), "hierarchical-allreduce", range(8)) == near(
        line
    )


def test_incast_shares_the_last_hop() -> None:
    assert traffic_bandwidth(DEMO, {(0, 4): 1.0, (1, 4): 1.0, (2, 4): 2.0}) == near(FULL / 4)
    assert traffic_bandwidth(DEMO, {(0, 4): 1.0}, [f"h4:p{p}-t0-1" for p in range(4)]) == 0.0
    assert traffic_bandwidth(DEMO, {}) == float("inf")


def test_collectives_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="power of two of ranks, not 6"):
        collective_phases("tree-allreduce", range(6))
    with pytest.raises(ValueError, match="even number of ranks, not 5"):
        collective_phases("hierarchical-allreduce", range(5))
    with pytest.raises(ValueError, match="no collective 'gossip': there are ring-allreduce"):
        collective_phases("gossip", range(4))


def test_sacks_are_about_one_percent() -> None:
    assert sack_share(DEMO) == near(154 / (4 * 4238))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(FabricError, match="near it: p2-t0-0:p2-t1-1"):
        bus_bandwidth(DEMO, "ring-allreduce", place_ranks(DEMO, "packed"), ["p2-t0-0:p2-t1-11"])
    with pytest.raises(FabricError, match="no placement 'striped'"):
        place_ranks(DEMO, "striped")
    with pytest.raises(FabricError, match="has no switch 'p9-t0-0'"):
        links_of_switch(DEMO, "p9-t0-0")
    with pytest.raises(FabricError, match="needs two or more, use 'packed'"):
        place_ranks(DEMO.with_(t0_per_plane=1), "interleaved")


def cut_off(fabric: Fabric, src: int, dst: int, dead: set[str]) -> bool:
    return all(
        dead & {link.name for link in path_links(fabric, src, dst, ev)}
        for ev in path_evs(fabric, src, dst)
    )


fabrics = st.builds(
    lambda p, a, b, h: Fabric("any", p, a, b, h),
    st.integers(1, 3), st.integers(2, 4), st.integers(1, 3), st.integers(1, 3),
)  # fmt: skip


@given(fabrics)
def test_placements_are_permutations_with_the_edges_they_promise(fabric: Fabric) -> None:
    packed, spread = place_ranks(fabric, "packed"), place_ranks(fabric, "interleaved")
    assert sorted(packed) == sorted(spread) == list(range(fabric.host_count))
    assert all(fabric.t0_of(a) != fabric.t0_of(b) for a, b in ring_edges(spread))
    assert (
        sum(fabric.t0_of(a) != fabric.t0_of(b) for a, b in ring_edges(packed))
        == fabric.t0_per_plane
    )


@settings(max_examples=30, deadline=None)
@given(fabrics, st.data())
def test_losing_one_more_link_of_a_plane_that_stays_alive_never_helps(
    fabric: Fabric, data: st.DataObject
) -> None:
    """Never more than healthy; nothing at all exactly when some edge has no path left."""
    dead = data.draw(st.sets(st.sampled_from([link.name for link in fabric.links]), max_size=4))
    hosts = place_ranks(fabric, "interleaved")
    rate = bus_bandwidth(fabric, "ring-allreduce", hosts, dead)
    assert rate <= bus_bandwidth(fabric, "ring-allreduce", hosts) * (1 + 1e-9)
    assert (rate == 0.0) == any(cut_off(fabric, a, b, dead) for a, b in ring_edges(hosts))
