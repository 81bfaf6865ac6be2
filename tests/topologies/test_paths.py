"""EV <-> path <-> links, and that the static tables really lead there."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import Fabric, load_fabric
from topologies.addressing import path_address, shift, switch_usid
from topologies.paths import evs_over, path_evs, path_links, path_nodes, static_tables

DEMO = load_fabric("demo")

shapes = st.builds(
    lambda p, a, b, h: Fabric("any", p, a, b, h),
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(2, 3),
)  # fmt: skip


def test_counts() -> None:
    assert len(path_evs(DEMO, 0, 7)) == 16
    assert len(path_evs(DEMO, 0, 3)) == 4
    assert len(path_evs(load_fabric("wide"), 0, 7)) == 128


def test_links_and_nodes_of_a_path() -> None:
    assert [link.name for link in path_links(DEMO, 1, 6, 2 << 16 | 3)] == [
        "h1:p2-t0-0",
        "p2-t0-0:p2-t1-3",
        "p2-t0-1:p2-t1-3",
        "h6:p2-t0-1",
    ]
    assert path_nodes(DEMO, 1, 6, 2 << 16 | 3) == ("h1", "p2-t0-0", "p2-t1-3", "p2-t0-1", "h6")
    assert path_nodes(DEMO, 1, 2, 2 << 16) == ("h1", "p2-t0-0", "h2")


def test_evs_over_a_cable() -> None:
    assert evs_over(DEMO, 0, 7, "p1-t0-0:p1-t1-2") == (1 << 16 | 2,)
    assert evs_over(DEMO, 0, 7, "h0:p1-t0-0") == tuple(1 << 16 | u for u in range(4))
    assert evs_over(DEMO, 0, 3, "p1-t0-0:p1-t1-2") == ()


two_sites = st.builds(
    lambda p, a, b, h: Fabric("two", p, 2 * a, b, h, sites=2),
    st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3),
)  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(st.one_of(shapes, two_sites))
def test_following_the_shift_through_the_tables_reaches_the_host_from_every_ev(
    fabric: Fabric,
) -> None:
    """What a switch does, and nothing else, carries every EV of every pair over exactly its path's
    nodes."""
    tables = static_tables(fabric)
    far_end = {
        port.name: (link.b if port is link.a else link.a)
        for link in fabric.links
        for port in (link.a, link.b)
    }
    for src in range(fabric.host_count):
        for dst in range(fabric.host_count):
            if src == dst:
                continue
            for value in path_evs(fabric, src, dst):
                address = path_address(fabric, src, dst, value)
                port = far_end[f"h{src}-p{value >> 16}"]
                visited = [f"h{src}", port.node]
                while port.node in tables:
                    assert int.from_bytes(address[4:6], "big") == switch_usid(port.node)
                    address = shift(address)
                    port = far_end[tables[port.node][int.from_bytes(address[4:6], "big")]]
                    visited.append(port.node)
                assert tuple(visited) == path_nodes(fabric, src, dst, value)


@settings(deadline=None, max_examples=40)
@given(shapes)
def test_evs_of_a_pair_are_distinct_paths_and_equally_many_per_plane(fabric: Fabric) -> None:
    src, dst = 0, fabric.host_count - 1
    values = path_evs(fabric, src, dst)
    assert len({path_address(fabric, src, dst, v) for v in values}) == len(values)
    assert len({sum(v >> 16 == p for v in values) for p in range(fabric.planes)}) == 1
