"""A network that re-routes: what is down when it begins is known, what changes later is known after
its delay, flaps included."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.reconvergence import RECONVERGENCE, Reconvergence, usual
from testbed.simulated.cluster import SimulatedCluster
from topologies import load_fabric
from topologies.units import US

CABLE, OTHER = "p0-t0-0:p0-t1-0", "p1-t0-0:p1-t1-0"


def world(path: Path, transport: str) -> SimulatedCluster:
    cluster = SimulatedCluster(load_fabric("tiny"))
    cluster.start()
    cluster.start_agents(transport, {}, path, 1)
    return cluster


def known(cluster: SimulatedCluster) -> list[set[str]]:
    """The cables that each host's engine takes for dead."""
    return [set(host.agent.engine._dead_links) for host in cluster._hosts]


def test_what_is_down_at_the_beginning_is_known_and_what_changes_later_after_the_delay(
    tmp_path: Path,
) -> None:
    cluster = world(tmp_path, "roce")
    cluster.set_link(CABLE, False)
    network = usual(cluster, "roce")
    assert network is not None and known(cluster) == [{CABLE}] * 4
    assert network.look() is None

    cluster.set_link(OTHER, False)
    assert network.look() == RECONVERGENCE and known(cluster) == [{CABLE}] * 4
    cluster.network.run(cluster.network.time + RECONVERGENCE - 1)
    assert network.look() is not None and known(cluster) == [{CABLE}] * 4
    cluster.set_link(CABLE, True)
    network.look()
    cluster.network.run(cluster.network.time + 1)
    network.look()
    assert known(cluster) == [{CABLE, OTHER}] * 4  # that the cable is back will be known later
    cluster.network.run(cluster.network.time + RECONVERGENCE)
    assert network.look() is None and known(cluster) == [{OTHER}] * 4


def test_a_flap_is_looked_at_when_it_changes(tmp_path: Path) -> None:
    cluster = world(tmp_path, "roce")
    network = Reconvergence(cluster, US)
    fault = cluster.inject("flap", CABLE, period="400us", duty=0.5)
    network.look()
    states = []
    for _ in range(9):
        again = network.look()
        assert again is not None and again <= 200 * US
        cluster.network.run(cluster.network.time + max(1, again))
        states.append(known(cluster)[0])
    assert states.count({CABLE}) >= 2 and states.count(set()) >= 2
    cluster.clear(fault.number)


@pytest.mark.parametrize("repair", [50 * US, 1000 * US])
def test_the_switch_at_a_dead_cable_repairs_before_the_others_are_told(
    tmp_path: Path, repair: int
) -> None:
    cluster = world(tmp_path, "roce")
    network = Reconvergence(cluster, 10_000 * US, repair)
    network.settle()

    def at(time: int) -> list[set[str]]:
        cluster.network.run(time)
        network.look()
        return known(cluster)

    cluster.set_link(CABLE, False)
    network.look()
    assert at(repair - 1) == [set()] * 4
    assert at(repair) == [{CABLE}, {CABLE}, set(), set()], (
        "h0 and h1 hang under the T0 at the cable"
    )
    assert at(10_000 * US - 1) == [{CABLE}, {CABLE}, set(), set()]
    assert at(10_000 * US) == [{CABLE}] * 4
    cluster.set_link(CABLE, True)
    network.look()
    assert at(10_000 * US + repair) == [set(), set(), {CABLE}, {CABLE}]
    assert at(20_000 * US) == [set()] * 4 and network.look() is None


def test_source_routed_mrc_is_left_alone(tmp_path: Path) -> None:
    assert usual(world(tmp_path, "mrc"), "mrc") is None
