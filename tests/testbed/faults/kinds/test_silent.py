"""A switch that is silent, and its reboot."""

from __future__ import annotations

from testbed.simulated.cluster import SimulatedCluster
from tests.testbed.faults.places import TINY
from topologies.units import US


def test_its_links_stay_up_until_it_reboots() -> None:
    cluster = SimulatedCluster(TINY)
    fault = cluster.inject("silent", "p1-t1-0", reboot="30us")
    assert all(cluster.link_states().values())
    at = cluster.clear(fault.number)
    down = [name for name, up in cluster.link_states().items() if not up]
    assert down == list(fault.target.links) and cluster.faults() == [fault]
    cluster.clock.sleep(40 * US)
    assert [(event.t - at, event.phase) for event in cluster.fault_events()] == [
        (0, "begin"),
        (0, "reboot"),
        (30 * US, "heal"),
    ]
    assert all(cluster.link_states().values()) and cluster.faults() == []


def test_without_a_reboot_and_when_all_is_healed_it_is_back_at_once() -> None:
    cluster = SimulatedCluster(TINY)
    cluster.clear(cluster.inject("silent", "p1-t1-0").number)
    cluster.inject("silent", "p1-t1-0", reboot="30us")
    cluster.heal()
    assert [event.phase for event in cluster.fault_events()] == [
        "begin",
        "heal",
    ] * 2 and cluster.faults() == []
