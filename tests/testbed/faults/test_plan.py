"""The plans of random faults: repeatable, of every kind, and never more than a queue pair can live
through."""

from __future__ import annotations

import pytest

from agents.mrc.config import Config
from testbed.faults.kinds import KINDS, resolve
from testbed.faults.plan import EVERY_KIND, LONGEST, MOST_AT_ONCE, MOST_CUT, Paths, Planned, plan
from topologies import Fabric, load_fabric
from topologies.units import MS, US


@pytest.fixture(params=["tiny", "demo"])
def fabric(request: pytest.FixtureRequest) -> Fabric:
    return load_fabric(request.param)


def planned(fabric: Fabric, at: int, until: int, kind: str, on: str, **keys: object) -> Planned:
    return Planned(at, until, kind, on, keys, resolve(fabric, kind, on, keys, 1))


def test_the_same_seed_gives_the_same_plan(fabric: Fabric) -> None:
    assert plan(fabric, 3, 2 * MS) == plan(fabric, 3, 2 * MS)
    assert plan(fabric, 3, 2 * MS) != plan(fabric, 4, 2 * MS)


@pytest.mark.parametrize("seed", range(5))
def test_plans_stay_within_their_bounds(fabric: Fabric, seed: int) -> None:
    made = plan(fabric, seed, 3 * MS)
    assert len(made) > 10
    assert [fault.at for fault in made] == sorted(fault.at for fault in made)
    for fault in made:
        assert (
            0 < fault.at < fault.until <= fault.over <= 3 * MS and fault.until - fault.at <= LONGEST
        )
        assert fault.until - fault.at > 3 * fabric.base_rtt_ps - 1
        assert resolve(fabric, fault.kind, fault.on, fault.keys, 1).on == fault.target.on
        assert sum(other.at <= fault.at < other.over for other in made) <= MOST_AT_ONCE
    assert Paths(fabric).longest_cut(made) <= MOST_CUT


def test_all_kinds_that_heal_come_by(fabric: Fabric) -> None:
    assert {fault.kind for seed in range(3) for fault in plan(fabric, seed, 3 * MS)} == set(
        EVERY_KIND
    )
    assert set(EVERY_KIND) == {name for name, kind in KINDS.items() if not kind.programs} - {"kill"}


def test_a_plan_for_two_sites_leaves_out_what_needs_one() -> None:
    fabric = load_fabric("two-sites")
    assert {fault.kind for seed in range(3) for fault in plan(fabric, seed, 3 * MS)} == set(
        EVERY_KIND
    ) - {"path-loss", "destination-loss"}


def test_some_plans_cut_hosts_off_for_a_while(fabric: Fabric) -> None:
    paths = Paths(fabric)
    assert any(paths.longest_cut(plan(fabric, seed, 3 * MS)) > 10 * US for seed in range(10))


@pytest.mark.parametrize("name", ["tiny", "demo", "wide", "rack16"])
def test_retries_live_longer_than_any_cut(name: str) -> None:
    config = Config.from_fabric(load_fabric(name), {})
    life = config.linear * config.rto + sum(config.rto << n + 1 for n in range(config.exponential))
    assert life > 10 * MOST_CUT


def test_what_is_cut() -> None:
    # two planes, h0 and h1 under the first T0s, h2 and h3 under the second
    fabric = load_fabric("tiny")
    paths = Paths(fabric)
    every = {(a, b) for a in range(4) for b in range(4) if a != b}
    of_h0 = {pair for pair in every if 0 in pair}
    whole = planned(fabric, 1, 3, "transceiver", "h0", links=2)
    assert paths.cut([whole]) == of_h0
    assert paths.cut([planned(fabric, 1, 3, "port", "h0-p0")]) == set()
    assert (
        paths.cut([planned(fabric, 1, 3, "port", "h0-p0"), planned(fabric, 1, 3, "plane", "p1")])
        == of_h0
    )
    two = [planned(fabric, 1, 3, "silent", "p0-t0-0"), planned(fabric, 1, 3, "switch", "p1-t0-1")]
    assert paths.cut(two) == every - {(0, 1), (1, 0), (2, 3), (3, 2)}
    lost = [
        planned(fabric, 1, 3, "destination-loss", f"p{plane}-t0-1", to="h2") for plane in range(2)
    ]
    assert paths.cut(lost) == {(0, 2), (1, 2), (3, 2)}
    four = [
        planned(fabric, 1, 3, "path-loss", f"h0>h2@p{plane}/{uplink}")
        for plane in range(2)
        for uplink in range(2)
    ]
    assert paths.cut(four) == {(0, 2)} and paths.cut(four[:3]) == set()
    assert (
        paths.cut(
            [
                planned(fabric, 1, 3, "loss", "h0-p0", probability=0.1),
                planned(fabric, 1, 3, "port", "h0-p1"),
            ]
        )
        == set()
    )
    assert (
        paths.cut(
            [
                planned(fabric, 1, 3, "loss", "h0-p0", probability=0.4),
                planned(fabric, 1, 3, "port", "h0-p1"),
            ]
        )
        == of_h0
    )
    assert paths.longest_cut([whole]) == 2
    assert (
        paths.longest_cut(
            [planned(fabric, 1, 3, "port", "h0-p0"), planned(fabric, 2, 5, "port", "h0-p1")]
        )
        == 1
    )
    joined = [
        planned(fabric, 0, 2, "port", "h0-p0"), planned(fabric, 1, 9, "port", "h0-p1"),
        planned(fabric, 2, 4, "silent", "p0-t0-0", reboot=1e-12),
    ]  # fmt: skip
    assert paths.longest_cut(joined) == 4, (
        "until the reboot is over, and without a gap between the two"
    )
