"""Shapes: what is counted, what is named, what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import Fabric, FabricError, load_fabric
from topologies.clos import HOP_DELAY
from topologies.fabrics import named_fabrics
from topologies.units import NS, US

DEMO = load_fabric("demo")


def test_sizes_of_demo() -> None:
    assert (DEMO.host_count, DEMO.paths_per_pair, DEMO.host_rate) == (8, 16, 4 * 10**11)
    assert len(DEMO.switches) == 4 * (2 + 4)
    assert len(DEMO.links) == 4 * (8 + 2 * 4)
    assert DEMO.frame_bytes == 14 + 40 + 40 + 8 + 12 + 4 + 4 + 16 + 4096 + 4


def test_base_rtt_is_four_links_there_and_four_back_and_the_delay_twice() -> None:
    bits = (4238 + 154) * 8
    near = DEMO.with_(delay_ps=0, cut_through=False)
    assert near.base_rtt_ps == bits * 4 * 10, "a bit takes 10 ps at 100 Gb/s"
    assert near.with_(fabric_rate=2 * 10**11).base_rtt_ps == bits * 3 * 10
    assert near.local_rtt_ps == bits * 2 * 10
    alone = Fabric(
        "one",
        planes=1,
        t0_per_plane=1,
        t1_per_plane=0,
        hosts_per_t0=2,
        delay_ps=0,
        cut_through=False,
    )
    assert alone.base_rtt_ps == alone.local_rtt_ps == bits * 2 * 10
    assert near.plane_bdp == bits * 4 // 8
    far = near.with_(delay_ps=US)
    assert (
        far.base_rtt_ps == near.base_rtt_ps + 2 * US and far.local_rtt_ps == near.local_rtt_ps + US
    ), "hop_delay: a quarter of it"
    assert (
        near.with_(cut_through=True).base_rtt_ps
        == near.with_(cut_through=True).local_rtt_ps
        == bits * 10
    )


def test_across_t1s_a_packet_takes_two_switches_and_cables_more() -> None:
    assert DEMO.delay_ps - DEMO.local_delay_ps == 1450 * NS == 2 * HOP_DELAY
    assert (
        DEMO.with_(delay_ps=US).hop_delay_ps == 250 * NS
        and DEMO.with_(delay_ps=0).hop_delay_ps == 0
    )
    with pytest.raises(FabricError, match="more than half of delay"):
        DEMO.with_(hop_delay_ps=3 * US)
    one = Fabric("one", planes=1, t0_per_plane=1, t1_per_plane=0, hosts_per_t0=2, hop_delay_ps=NS)
    assert one.hop_delay_ps == 0 and one.local_rtt_ps == one.base_rtt_ps, (
        "no path has more than one switch"
    )


@pytest.mark.parametrize("name", named_fabrics())
def test_the_base_rtt_of_every_shipped_fabric_is_a_datacentres(name: str) -> None:
    fabric = load_fabric(name)
    twin, fast = name == "demo-1p", name in ("demo-1p", "cluster-d")
    assert fabric.base_rtt_ps == pytest.approx((10.245 if twin else 10) * US, abs=300)
    serialised = 1 - 2 * fabric.delay_ps / fabric.base_rtt_ps
    assert serialised == pytest.approx(0.0087 if fast else 0.035, abs=0.0002)
    assert fabric.plane_bdp / fabric.frame_bytes == pytest.approx(
        121 if twin else 118 if fast else 29.5, abs=0.2
    ), "118 at 400 Gb/s"
    assert Fabric.from_dict(fabric.to_dict()) == fabric


def test_a_path_that_takes_longer_than_that_to_serialise_has_no_delay() -> None:
    slow = Fabric("slow", planes=1, t0_per_plane=2, t1_per_plane=1, hosts_per_t0=1, nic_rate=10**9)
    assert slow.delay_ps == 0 and slow.base_rtt_ps > 10 * US


def test_thresholds_follow_from_the_bdp() -> None:
    bdp = DEMO.plane_bdp
    assert DEMO.buffer_bytes == math.floor(bdp * 8)
    assert DEMO.ecn_bytes == (math.floor(bdp * 0.2), math.floor(bdp * 0.8))
    assert DEMO.trim_bytes(False) == bdp and DEMO.trim_bytes(True) == math.floor(bdp * 1.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"planes": 0}, "planes = 0 must be a whole number in 1..16"),
        ({"planes": 17}, "planes = 17 must be a whole number in 1..16"),
        ({"planes": "4"}, "planes = '4' must be a whole number"),
        ({"planes": True}, "planes = True must be a whole number"),
        ({"t1_per_plane": 0}, "need at least one T1"),
        ({"t1_per_plane": 1025}, "t1_per_plane = 1025 must be a whole number in 0..1024"),
        ({"nic_rate": 10}, "nic_rate = 10 must be a whole number in 1000000.."),
        ({"mtu": 1002}, "a multiple of 4"),
        ({"mtu": 9000}, "mtu = 9000 must be a whole number in 256..8192"),
        ({"buffer_bdp": 1.0}, "buffer_bdp = 1.0 must be a number in 2..1000"),
        ({"name": "a b"}, "name = 'a b' must be letters"),
        (
            {"pool_alpha": 3.0},
            "pool_alpha = 3.0 must be a power of two: 1/128, 1/64, ... 1, 2, ... 64",
        ),
        ({"pool_alpha_lossless": 0.75}, "pool_alpha_lossless = 0.75 must be a power of two"),
        ({"pool_alpha": 128.0}, "pool_alpha = 128.0 must be a number in 0.0078125..64"),
        ({"pool_mb_per_tbps": -1.0}, "pool_mb_per_tbps = -1.0 must be a number in 0..1000"),
        (
            {"pool_mb_per_tbps": 0.02},
            (
                "pool_mb_per_tbps = 0.02 is too little for a queue of one packet: raise it, or "
                "the alphas"
            ),
        ),
        ({"pool_mb_per_tbps": 1e-9}, "pool_mb_per_tbps = 1e-09 is too little"),
        ({"t0_per_plane": 1, "hosts_per_t0": 1}, "one host has nobody to talk to"),
    ],
)
def test_impossible_fabrics_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FabricError) as caught:
        DEMO.with_(**change)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pool_is_shared_by_the_ports_of_a_switch_in_proportion_to_their_rate() -> None:
    shared = DEMO.with_(pool_mb_per_tbps=2.5, trim_bdp=64.0)
    assert shared.pool_bytes == (8 * 250_000, 2 * 250_000), "a T0 has 8 ports of 100 Gb/s, a T1 two"
    assert shared.buffer_bytes == 2_000_000 * 8 // 9 and shared.port_bytes == DEMO.buffer_bytes
    assert shared.with_(pool_alpha=1.0).buffer_bytes == 1_000_000
    assert shared.with_(pool_alpha_lossless=0.125).pfc_bytes[0] == 2_000_000 // 9
    assert (
        DEMO.pool_bytes == (0, 0) and DEMO.with_(pool_alpha=1.0).buffer_bytes == DEMO.buffer_bytes
    )
    assert DEMO.with_(sites=2, pool_mb_per_tbps=2.5, long_haul_rate=10**12).pool_bytes == (
        8 * 250_000,
        11 * 250_000,
    )
    alone = DEMO.with_(t0_per_plane=1, t1_per_plane=0, pool_mb_per_tbps=2.5)
    assert alone.pool_bytes == (4 * 250_000, 0)


def test_names_fit_linux_even_at_the_limits() -> None:
    large = Fabric("large", planes=16, t0_per_plane=2, t1_per_plane=100, hosts_per_t0=12)
    assert max(len(port.name) for port in large.ports) <= 15


def test_link_by_name_in_either_order_and_near_misses() -> None:
    assert DEMO.link("p0-t1-3:p0-t0-1") is DEMO.link("p0-t0-1:p0-t1-3")
    with pytest.raises(FabricError, match="p0-t0-1:p0-t1-3"):
        DEMO.link("p0-t0-1:p0-t1-33")


def test_host_number() -> None:
    assert DEMO.host_number("h7") == 7
    with pytest.raises(FabricError, match="hosts are h0..h7"):
        DEMO.host_number("h8")


def test_unknown_and_missing_keys_are_named() -> None:
    with pytest.raises(FabricError, match="did you mean 'planes'"):
        Fabric.from_dict({**DEMO.to_dict(), "plane": 2})
    data = DEMO.to_dict()
    del data["planes"]
    with pytest.raises(FabricError, match="planes is missing"):
        Fabric.from_dict(data)


shapes = st.builds(
    lambda p, a, b, h: Fabric("any", p, a, b, h),
    st.integers(1, 4), st.integers(2, 4), st.integers(1, 5), st.integers(1, 5),
)  # fmt: skip


@given(shapes)
def test_every_port_is_numbered_named_and_cabled_once(fabric: Fabric) -> None:
    assert [port.number for port in fabric.ports] == list(range(len(fabric.ports)))
    assert len({port.name for port in fabric.ports}) == len(fabric.ports)
    assert len(fabric.links_by_name) == len(fabric.links)
    for link in fabric.links:
        assert link.a.plane == link.b.plane == link.plane
        assert link.name == f"{link.a.node}:{link.b.node}"
    per_node = {
        node: sum(port.node == node for port in fabric.ports)
        for node in (*fabric.hosts, *fabric.switches)
    }
    assert all(per_node[host] == fabric.planes for host in fabric.hosts)
    assert all(
        per_node[s]
        == (fabric.hosts_per_t0 + fabric.t1_per_plane if "-t0-" in s else fabric.t0_per_plane)
        for s in fabric.switches
    )


@given(shapes)
def test_dictionary_round_trip(fabric: Fabric) -> None:
    assert Fabric.from_dict(fabric.to_dict()) == fabric
