"""Two sites in namespaces: a frame's walk through all of its uSIDs, and a cut of the one cable that
it needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agents.packets import dscp
from testbed.dataplane.counters import totals
from testbed.emulated.cluster import Cluster
from tests.emulated.frames import Wire, arrived, mrc, wires_of
from topologies import addressing, load_fabric
from topologies.addressing import ev
from topologies.fabrics import DILATION
from topologies.paths import path_evs, path_links

pytestmark = pytest.mark.sandbox
TWO = load_fabric("two-sites").with_(hosts_per_t0=1, t0_per_plane=4)


@pytest.fixture(scope="module")
def sites() -> Iterator[Cluster]:
    with Cluster(TWO, dilation=DILATION, controller=False) as cluster:
        yield cluster


@pytest.fixture
def wires(sites: Cluster) -> Iterator[list[Wire]]:
    with wires_of(sites) as opened:
        yield opened


@pytest.mark.parametrize(("src", "dst"), [(0, 3), (3, 0), (2, 1)])
def test_every_path_between_sites_takes_its_five_cables(
    sites: Cluster, wires: list[Wire], src: int, dst: int
) -> None:
    for value in path_evs(TWO, src, dst):
        before = {row["port"]: row["admitted_packets"] for row in sites.counters()}
        sent = mrc(
            src,
            dst,
            addressing.path_address(TWO, src, dst, value),
            b"five cables",
            dscp_class=dscp.TRIMMABLE,
        )
        assert wires[src].send(value >> 16, sent)
        (got,) = arrived(wires[dst])
        assert got.port == f"h{dst}-p{value >> 16}" and got.frame[21] == 60
        assert got.frame[38:54] == addressing.outer_address(
            (addressing.host_usid(TWO, value >> 16, dst),)
        )
        assert (
            got.frame[:21] + got.frame[22:38] + got.frame[54:]
            == sent[:21] + sent[22:38] + sent[54:]
        )
        after = {row["port"]: row["admitted_packets"] for row in sites.counters()}
        took = {port for port in after if after[port] > before[port]}
        cables = path_links(TWO, src, dst, value)
        assert len(took) == 5 and all(took & {link.a.name, link.b.name} for link in cables)


def test_a_cut_long_haul_cable_loses_what_is_sent_into_it_and_no_other(
    sites: Cluster, wires: list[Wire]
) -> None:
    before = totals(sites.counters())["drop_link_down_packets"]
    fault = sites.inject("link", "p1-t1-1:p1-t1-3")
    for value in path_evs(TWO, 0, 3):
        wires[0].send(
            value >> 16,
            mrc(0, 3, addressing.path_address(TWO, 0, 3, value), b"one in four is lost"),
        )
    got = arrived(wires[3])
    assert len(got) == 3 and totals(sites.counters())["drop_link_down_packets"] == before + 1
    sites.clear(fault.number)
    wires[0].send(1, mrc(0, 3, addressing.path_address(TWO, 0, 3, ev(1, 1)), b"mended"))
    assert len(arrived(wires[3])) == 1
