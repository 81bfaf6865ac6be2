"""Which paths are probed, by whom and when; what a probe looks like."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.clustermapper import probes
from agents.clustermapper.options import Options
from agents.packets import dscp
from topologies import Fabric, load_fabric, named_fabrics
from topologies.addressing import shift, switch_usid
from topologies.paths import static_tables
from topologies.units import BYTE, S

DEFAULT = Options()
ONE_SITE = [name for name in named_fabrics() if load_fabric(name).sites == 1]
SHAPES = ["tiny", "demo-1p", "cluster-b", "cluster-d", "pod64"]
"""As many switches and hosts of a kind as another, fewer, more, one plane, eight."""


def travel(fabric: Fabric, host: int, path: probes.Path) -> tuple[list[str], str]:
    """The cables a probe takes by the static tables, and where it ends."""
    tables = static_tables(fabric)
    ends = {
        port.name: (link.name, other.node)
        for link in fabric.links
        for port, other in ((link.a, link.b), (link.b, link.a))
    }
    cable, node = ends[f"h{host}-p{path.plane}"]
    taken, address = [cable], path.head[38:54]
    while not node.startswith("h"):
        assert int.from_bytes(address[4:6], "big") == switch_usid(node)
        address = shift(address)
        cable, node = ends[tables[node][int.from_bytes(address[4:6], "big")]]
        taken.append(cable)
    return taken, node


@pytest.mark.parametrize("name", SHAPES)
def test_probes_come_back_to_their_sender_over_the_links_they_are_meant_for(name: str) -> None:
    fabric = load_fabric(name)
    for host in {0, fabric.host_count - 1}:
        every = probes.paths(fabric, host)
        assert [path.cell for path in every] == list(range(probes.cells(fabric)))
        for path in every:
            nic = probes.nic_link(fabric, path.plane, host)
            upper = (
                [probes.upper_link(path.plane, fabric.t0_of(host), path.t1)] * 2
                if path.t1 >= 0
                else []
            )
            assert travel(fabric, host, path) == ([nic, *upper, nic], f"h{host}")
            assert probes.cell_of(fabric, path.plane, path.t1) == path.cell


@pytest.mark.parametrize("port", [4791, 4971])
def test_probes_have_the_port_after_mrc(port: int) -> None:
    fabric = load_fabric("tiny").with_(udp_port=port)
    assert (
        int.from_bytes(probes.paths(fabric, 0)[0].head[96:98], "big")
        == probes.probe_port(fabric)
        == port + 1
    )


def test_a_probe_is_data_that_is_neither_trimmed_nor_marked() -> None:
    fabric = load_fabric("tiny")
    for path in probes.paths(fabric, 1):
        for at in (14, 54):
            word = int.from_bytes(path.head[at : at + 2], "big")
            assert word >> 6 & 63 == dscp.NO_TRIM and word >> 4 & 3 == dscp.NOT_ECT


def test_what_is_written_is_read_and_any_damage_is_seen() -> None:
    fabric = load_fabric("tiny")
    path = probes.paths(fabric, 1)[4]
    frame = probes.frame(path, 7 << 40, 9, 123_456_789_012_345)
    assert len(frame) == probes.LENGTH
    assert probes.read(frame, 0, len(frame)) == (True, 7 << 40, 4, 9, 123_456_789_012_345)
    assert probes.read(b"xx" + frame, 2, len(frame)) == (True, 7 << 40, 4, 9, 123_456_789_012_345)
    for at in range(54, len(frame)):
        bad = bytearray(frame)
        bad[at] ^= 1 << at % 8
        seen = probes.read(bad, 0, len(bad))
        assert seen is not None and not seen.sound, at
    moved = bytearray(frame)
    moved[38:54] = shift(bytes(moved[38:54]))  # what switches do
    moved[21] -= 1
    assert probes.read(moved, 0, len(moved)) == (True, 7 << 40, 4, 9, 123_456_789_012_345)


@given(st.binary(max_size=2 * probes.LENGTH))
def test_reading_never_raises(noise: bytes) -> None:
    seen = probes.read(noise, 0, len(noise))
    assert seen is None or (len(noise) == probes.LENGTH and not seen.sound)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("options", [DEFAULT, Options(share=1.0), Options(share=0.6)])
def test_every_upper_link_has_two_hosts_at_any_time_and_every_host_every_t1_in_the_end(
    name: str, options: Options
) -> None:
    fabric = load_fabric(name)
    for plane in range(fabric.planes):
        for t0 in range(fabric.t0_per_plane):
            hosts = range(t0 * fabric.hosts_per_t0, (t0 + 1) * fabric.hosts_per_t0)
            passed: dict[int, set[int]] = {h: set() for h in hosts}
            for epoch in range(fabric.t1_per_plane):
                shares = {h: probes.share(fabric, options, 5, h, plane, epoch) for h in hosts}
                cover = Counter(t1 for share in shares.values() for t1 in share)
                assert set(cover) == set(range(fabric.t1_per_plane))
                assert min(cover.values()) >= min(2, fabric.hosts_per_t0)
                for h, share in shares.items():
                    assert (
                        len(set(share)) == len(share) >= options.share * fabric.t1_per_plane - 0.5
                    )
                    passed[h] |= set(share)
            assert all(seen == set(range(fabric.t1_per_plane)) for seen in passed.values())


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(0, 99), st.integers(0, 40),
)  # fmt: skip
def test_two_hosts_for_every_upper_link_whatever_the_shape(
    hosts: int, t1s: int, seed: int, epoch: int
) -> None:
    fabric = load_fabric("tiny").with_(hosts_per_t0=hosts, t1_per_plane=t1s)
    cover = Counter(
        t1 for h in range(hosts) for t1 in probes.share(fabric, DEFAULT, seed, h, 0, epoch)
    )
    assert set(cover) == set(range(t1s)) and min(cover.values()) >= min(2, hosts)


def test_a_round_probes_every_plane_once_and_shares_take_turns() -> None:
    fabric = load_fabric("demo")
    size = probes.share_size(fabric, DEFAULT)
    rounds = size * probes.TURNS * fabric.t1_per_plane
    seen: Counter[int] = Counter()
    for number in range(rounds):
        to_t0, to_t1 = probes.cells_of_round(fabric, DEFAULT, 1, 2, number)
        assert to_t0 == [probes.cell_of(fabric, p) for p in range(fabric.planes)]
        assert [cell // (fabric.t1_per_plane + 1) for cell in to_t1] == list(range(fabric.planes))
        seen.update(to_t1)
    assert set(seen) == {
        probes.cell_of(fabric, p, j)
        for p in range(fabric.planes)
        for j in range(fabric.t1_per_plane)
    }
    assert set(seen.values()) == {rounds // fabric.t1_per_plane}


def test_without_upper_switches_only_the_nic_links_are_probed() -> None:
    fabric = load_fabric("tiny").with_(t0_per_plane=1, t1_per_plane=0)
    assert probes.cells_of_round(fabric, DEFAULT, 1, 0, 3) == ([0, 1], [])
    assert probes.cells(fabric) == 2


@pytest.mark.parametrize("name", ONE_SITE)
@pytest.mark.parametrize("mtu", [256, 4096])
def test_probes_take_less_than_one_per_cent_of_a_port(name: str, mtu: int) -> None:
    fabric = load_fabric(name).with_(mtu=mtu)
    for options in (DEFAULT, Options(interval=0.1)):
        interval = probes.interval_ps(fabric, options)
        bits = 2 * probes.LENGTH * 8
        assert bits * S / interval <= 0.0100001 * fabric.nic_rate
    if mtu == 4096:
        # the default is not what the bound makes of it
        assert probes.interval_ps(fabric, DEFAULT) == 2 * fabric.base_rtt_ps


@pytest.mark.parametrize("trimming", [True, False])
def test_the_deadline_outlasts_full_queues_both_ways(trimming: bool) -> None:
    fabric = load_fabric("demo").with_(trimming=trimming)
    queued = (
        [fabric.trim_bytes(False), fabric.trim_bytes(False), fabric.trim_bytes(True)]
        if trimming
        else [fabric.buffer_bytes] * 3
    )
    slowest = sum(
        size * BYTE / rate
        for size, rate in zip(
            queued, (fabric.fabric_rate, fabric.fabric_rate, fabric.nic_rate), strict=True
        )
    )
    assert probes.deadline_ps(fabric) > fabric.base_rtt_ps + slowest
    assert probes.deadline_ps(fabric) < (12 if trimming else 30) * fabric.base_rtt_ps


def test_shares_differ_by_seed_and_not_by_host() -> None:
    fabric = load_fabric("rack16")
    orders = {probes.share(fabric, Options(share=1.0), seed, 0, 0, 0) for seed in range(20)}
    assert len(orders) > 10
    for h in range(fabric.hosts_per_t0):
        one = probes.share(fabric, Options(share=1.0), 3, h, 0, 0)
        zero = probes.share(fabric, Options(share=1.0), 3, 0, 0, 0)
        start = zero.index(one[0])
        assert one == zero[start:] + zero[:start]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"intervall": 3}, "interval"),
        ({"interval": 0}, "0.1"),
        ({"interval": True}, "number"),
        ({"share": 2}, "0..1"),
        ({"policy": "no"}, "nic-links"),
        (7, "true, false or a table"),
        ({"threshold": "1 %"}, "number"),
    ],
)
def test_bad_options_are_one_line(data: object, words: str) -> None:
    with pytest.raises(ValueError, match=words) as told:
        Options.read(data)
    assert "\n" not in str(told.value)


def test_options_survive_the_way_to_an_agent() -> None:
    made = Options.read({"interval": 4, "policy": "all"})
    assert (
        Options.read(made.to_dict()) == made
        and made.interval == 4
        and Options.read(True) == Options()
    )
