"""Sizes of fabrics worked out by hand, and against a Clos that is really built."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import Fabric, FabricError
from topologies.sizing import GBIT, NIC_RATE, PAPER_NICS, SWITCH_RATE, Size, fewest_tiers, splits


def paper(planes: int, tiers: int, nics: int = PAPER_NICS) -> Size:
    return Size(nics, NIC_RATE, SWITCH_RATE, planes, tiers)


def test_ports_of_a_51_2_tbit_switch() -> None:
    assert [paper(planes, 2).radix for planes in (1, 2, 4, 8)] == [64, 128, 256, 512]
    assert [paper(planes, 2).port_rate // GBIT for planes in (1, 2, 4, 8)] == [800, 400, 200, 100]


def test_two_tiers_of_100_gbit_ports_connect_exactly_131_072() -> None:
    eight = paper(8, 2)
    assert eight.most_nics == 131_072 == 512 * 256 and eight.fits  # 512 T0s of 256 NICs
    assert not paper(8, 2, PAPER_NICS + 1).fits
    assert eight.switches == 8 * (512 + 256)
    assert eight.longest_path == 3 and eight.one_hop_nics == 256


def test_three_tiers_of_800_gbit_ports_stop_at_65_536() -> None:
    three = paper(1, 3)
    assert three.most_nics == 65_536 == 64**3 // 4
    assert not three.fits  # so that the 131,072 need a fourth tier
    assert fewest_tiers(PAPER_NICS, NIC_RATE, SWITCH_RATE, 1) == paper(1, 4)
    assert paper(1, 4).longest_path == 7 and three.longest_path == 5 and three.one_hop_nics == 32


def test_two_thirds_of_the_optics_and_three_fifths_of_the_switches() -> None:
    two, three = paper(8, 2, 65_536), paper(1, 3, 65_536)
    assert two.switches == 8 * (256 + 128) == 3072 and three.switches == 2048 + 2048 + 1024 == 5120
    assert Fraction(two.switches, three.switches) == Fraction(3, 5)
    assert three.optics == 2 * 3 * 65_536 and Fraction(two.optics, three.optics) == Fraction(2, 3)
    assert two.links == 8 * 2 * 65_536  # of an eighth of the rate each


def test_what_one_lost_link_takes() -> None:
    assert (
        paper(8, 2).uplink_share == Fraction(1, 256)
        and round(100 * float(paper(8, 2).uplink_share), 1) == 0.4
    )
    assert (
        paper(1, 3).uplink_share == Fraction(1, 32)
        and round(100 * float(paper(1, 3).uplink_share)) == 3
    )
    assert paper(8, 2).nic_link_share == Fraction(1, 8) and paper(1, 3).nic_link_share == 1


def test_as_few_tiers_as_it_takes_for_each_split() -> None:
    assert [(s.planes, s.tiers) for s in splits()] == [(1, 4), (2, 3), (4, 3), (8, 2)]
    assert [s.switches for s in splits()] == [14_336, 10_240, 10_240, 6_144]
    assert fewest_tiers(64, NIC_RATE, SWITCH_RATE, 1).tiers == 1
    # 4 planes of 200 Gb/s: 256^2 / 2
    assert [(s.planes, s.tiers) for s in splits(32_768)] == [(1, 3), (2, 3), (4, 2), (8, 2)]


def test_the_formulae_hold_for_a_clos_that_is_built() -> None:
    # switches of 8 ports, full: 8^2 / 2 NICs
    fabric = Fabric("check", planes=2, t0_per_plane=8, t1_per_plane=4, hosts_per_t0=4)
    size = Size(32, 2 * fabric.nic_rate, 8 * fabric.nic_rate, 2, 2)
    assert size.radix == 8 and size.most_nics == fabric.host_count == 32
    assert size.switches == len(fabric.switches) and size.links == len(fabric.links)
    assert size.paths == fabric.planes * fabric.t1_per_plane


@given(st.integers(1, 7), st.integers(2, 4), st.integers(1, 100_000))
def test_planes_cost_no_switches_only_tiers_do(power: int, tiers: int, nics: int) -> None:
    """As many tiers, split or not: the same switches, but for rounding a tier of a plane up to
    whole ones."""
    one, split = paper(1, tiers, nics), Size(nics, 1 << 10, 1 << 16, 1 << power, tiers)
    assert one.radix == 64 and split.radix == 64 << power
    ideal = (2 * tiers - 1) * nics / 64
    assert ideal <= split.switches <= ideal + split.planes * tiers
    assert split.optics == one.optics and split.most_nics >= one.most_nics


def test_one_tier_is_a_switch_a_plane() -> None:
    size = Size(64, NIC_RATE, SWITCH_RATE, 1, 1)
    assert (
        size.switches,
        size.most_nics,
        size.longest_path,
        size.one_hop_nics,
        size.uplink_share,
    ) == (1, 64, 1, 64, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"planes": 3}, "must divide both"),
        ({"planes": 0}, "must be 1 or more"),
        ({"nics": 0}, "must be 1 or more"),
        ({"tiers": 7}, "from 1 to 6"),
        ({"switch_rate": 3 * NIC_RATE}, "even number of ports"),
        ({"oversubscription": Fraction(1, 2)}, "1 or more"),
    ],
)
def test_what_cannot_be(change: dict[str, Any], said: str) -> None:
    given_ = {
        "nics": 64,
        "nic_rate": NIC_RATE,
        "switch_rate": SWITCH_RATE,
        "planes": 1,
        "tiers": 2,
        **change,
    }
    with pytest.raises(FabricError, match=said):
        Size(**given_)
    with pytest.raises(FabricError, match="do not fit 6 tiers"):
        fewest_tiers(1_000, 100, 400, 1)  # 4 ports: 2 x 2^6 = 128


def test_an_oversubscribed_t0_has_more_ports_down_than_up() -> None:
    size = Size(24_576, NIC_RATE, SWITCH_RATE, 1, 3, Fraction(3))  # 64 ports: 48 down, 16 up
    assert (size.down, size.up, size.t0s) == (48, 16, 512)
    assert size.switch_links == 512 * 16 and size.links == 24_576 + 2 * 8_192
    assert size.switches == 512 + 8_192 // 32 + 8_192 // 64
    assert (
        size.most_nics == 48 * 32 * 64
        and size.uplink_share == Fraction(1, 16)
        and size.paths == 16 * 32
    )
    assert Size(512 * 3, NIC_RATE, SWITCH_RATE, 8, 2, Fraction(3)).down == 384


@given(st.integers(1, 9), st.integers(2, 4), st.integers(1, 50_000))
def test_oversubscription_never_costs_more(ratio: int, tiers: int, nics: int) -> None:
    full, less = (Size(nics, NIC_RATE, SWITCH_RATE, 1, tiers, Fraction(r)) for r in (1, ratio))
    assert (
        less.links <= full.links and less.optics <= full.optics and less.most_nics >= full.most_nics
    )
