"""Two sites: who is where, what joins them, how long it takes, and that the static tables lead from
one to the other."""

from __future__ import annotations

from typing import Any

import pytest

from topologies import FabricError, load_fabric
from topologies.addressing import path_address, sid_list, text
from topologies.clos import SACK_BYTES
from topologies.fabrics import fabric_of
from topologies.paths import path_evs, path_links, path_nodes, static_tables
from topologies.theory import traffic_bandwidth
from topologies.units import US, S

TWO = load_fabric("two-sites")
ONE = load_fabric("demo")


def test_each_site_has_half_of_the_t0s_and_t1s_of_its_own() -> None:
    assert [TWO.site_of(host) for host in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert (TWO.t1_count, TWO.paths_per_pair, len(TWO.switches)) == (4, 4, 2 * (4 + 4))
    cables = {link.name for link in TWO.links if link.plane == 1 and link.kind != "nic"}
    assert cables == {
        *(f"p1-t0-{t0}:p1-t1-{t1}" for t0 in (0, 1) for t1 in (0, 1)),
        *(f"p1-t0-{t0}:p1-t1-{t1}" for t0 in (2, 3) for t1 in (2, 3)),
        "p1-t1-0:p1-t1-2",
        "p1-t1-1:p1-t1-3",
    }
    haul = TWO.link("p1-t1-3:p1-t1-1")
    assert (haul.kind, haul.rate, haul.a.name, haul.b.name) == (
        "haul",
        TWO.long_haul_rate,
        "p1-t1-1-s1",
        "p1-t1-3-s0",
    )
    assert [port.number for port in TWO.ports] == list(range(2 * len(TWO.links)))


def test_a_path_between_sites_has_five_usids_and_five_cables() -> None:
    value = 1 << 16 | 1
    assert text(path_address(TWO, 0, 5, value)) == "fcbb:bb00:1400:1801:1803:1402:1c01:0"
    assert text(path_address(TWO, 5, 0, value)) == "fcbb:bb00:1402:1803:1801:1400:1c00:0"
    assert path_nodes(TWO, 0, 5, value) == ("h0", "p1-t0-0", "p1-t1-1", "p1-t1-3", "p1-t0-2", "h5")
    there = [link.name for link in path_links(TWO, 0, 5, value)]
    assert there == [
        "h0:p1-t0-0",
        "p1-t0-0:p1-t1-1",
        "p1-t1-1:p1-t1-3",
        "p1-t0-2:p1-t1-3",
        "h5:p1-t0-2",
    ]
    assert [link.name for link in path_links(TWO, 5, 0, value)] == there[::-1]
    assert path_evs(TWO, 0, 5) == path_evs(TWO, 0, 2) == (0, 1, 1 << 16, 1 << 16 | 1), (
        "an EV means the same wherever the receiver is"
    )
    assert len(sid_list(TWO, 4, 6, value)) == 4 and path_nodes(TWO, 4, 6, value) == (
        "h4",
        "p1-t0-2",
        "p1-t1-3",
        "p1-t0-3",
        "h6",
    )


def test_a_t1_knows_the_t0s_of_its_site_and_its_counterpart_alone() -> None:
    tables = static_tables(TWO)
    assert tables["p0-t1-1"] == {0x400: "p0-t1-1-d0", 0x401: "p0-t1-1-d1", 0x803: "p0-t1-1-s1"}
    assert tables["p0-t1-3"] == {0x402: "p0-t1-3-d2", 0x403: "p0-t1-3-d3", 0x801: "p0-t1-3-s0"}
    assert set(tables["p0-t0-2"]) == {0x802, 0x803, 0xC00, 0xC01}


def test_base_rtts_of_the_three_kinds_of_pairs() -> None:
    bits = (TWO.frame_bytes + SACK_BYTES) * 8
    assert (TWO.rtt_ps(0, 1), TWO.rtt_ps(0, 2), TWO.rtt_ps(0, 4)) == (
        TWO.local_rtt_ps,
        TWO.base_rtt_ps,
        TWO.haul_rtt_ps,
    )
    longer = bits * S // TWO.long_haul_rate + 2 * TWO.long_haul_delay_ps
    assert (
        TWO.haul_rtt_ps
        == TWO.base_rtt_ps + longer
        == pytest.approx(101 * TWO.base_rtt_ps, rel=0.01)
    )
    assert TWO.base_rtt_ps == pytest.approx(10 * US, abs=2) and TWO.haul_rtt_ps == pytest.approx(
        1010.7 * US, rel=1e-5
    )
    assert (
        TWO.data_ps(False, True) - TWO.data_ps(False)
        == TWO.frame_bytes * 8 * S // TWO.long_haul_rate
    )
    assert (
        TWO.plane_bdp
        == ONE.with_(nic_rate=TWO.nic_rate, fabric_rate=0, delay_ps=TWO.delay_ps).plane_bdp
    ), "queues stay a site's"


def test_the_trunk_limits_what_the_sites_exchange() -> None:
    pairs = {(h, h + 4): 1.0 for h in range(4)}
    assert traffic_bandwidth(TWO, pairs) == pytest.approx(
        4 * TWO.long_haul_rate / 4 * TWO.payload_share
    )
    cut = traffic_bandwidth(TWO, pairs, ["p0-t1-0:p0-t1-2"])
    assert cut == pytest.approx(2 * TWO.long_haul_rate / 4 * TWO.payload_share), (
        "planes stay equally loaded: its plane has half"
    )


def test_one_site_is_what_it_was() -> None:
    assert (ONE.sites, ONE.long_haul_rate, ONE.long_haul_delay_ps, ONE.t1_count) == (
        1,
        0,
        0,
        ONE.t1_per_plane,
    )
    assert ONE.haul_rtt_ps == ONE.base_rtt_ps == ONE.rtt_ps(0, 7) and not ONE.is_far(0, 7)
    assert {link.kind for link in ONE.links} == {"nic", "fabric"}


SHAPE = {
    "name": "x",
    "planes": 2,
    "t0_per_plane": 4,
    "t1_per_plane": 2,
    "hosts_per_t0": 2,
    "sites": 2,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"t0_per_plane": 3},
            "t0_per_plane = 3 must be even: with sites = 2 each site has half of them",
        ),
        ({"sites": 3}, "sites = 3 must be a whole number in 1..2"),
        (
            {"t1_per_plane": 0},
            "t1_per_plane = 0: 4 T0 per plane need at least one T1 to reach each other",
        ),
        ({"t1_per_plane": 600}, "t1_per_plane = 600 must be at most 512 with sites = 2"),
        (
            {"pfc": True},
            (
                "pfc = true is not for two sites, whose switches have no headroom for a long "
                "cable: drop it"
            ),
        ),
        (
            {"routing": "adaptive"},
            (
                'routing = "adaptive" is not for two sites: drop it, sources name all switches '
                "of a path then"
            ),
        ),
        (
            {"routing": "ecmp"},
            (
                'routing = "ecmp" is not for two sites: drop it, sources name all switches of a '
                "path then"
            ),
        ),
        (
            {"sites": 1, "long_haul_delay": "1ms"},
            "long_haul_delay is of cables between two sites: add sites = 2, or drop it",
        ),
        (
            {"sites": 1, "long_haul_rate": "1Gbit"},
            "long_haul_rate is of cables between two sites: add sites = 2, or drop it",
        ),
        (
            {"long_haul_delay": "far"},
            "long_haul_delay = 'far' is not a time: write it like '80us' or as a number of seconds",
        ),
        (
            {"long_haul_rate": "100kbit"},
            "long_haul_rate = 100000 must be a whole number in 1000000..10000000000000",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FabricError) as error:
        fabric_of({**SHAPE, **changes})
    assert str(error.value) == f"fabric 'x': {message}"
