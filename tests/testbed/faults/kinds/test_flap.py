"""A link that goes and comes."""

from __future__ import annotations

from testbed.simulated.cluster import SimulatedCluster
from tests.testbed.faults.places import TINY, tiny
from topologies.units import US

CABLE = "h3:p1-t0-1"


def test_it_is_down_for_its_part_of_every_period() -> None:
    assert tiny("flap", "h3-p1", period="100us", duty=0.5).links == (CABLE,)
    cluster = SimulatedCluster(TINY)
    fault = cluster.inject("flap", CABLE, period="100us", duty=0.4)
    cluster.clock.sleep(120 * US)
    events = [
        ((event.t - fault.told_ps) // US, event.phase, event.links)
        for event in cluster.fault_events()
    ]
    gone = [(0, "begin"), (0, "down"), (40, "up"), (100, "down")]
    assert events == [(*event, (CABLE,)) for event in gone]


def test_one_that_another_fault_keeps_down_does_not_come_up() -> None:
    cluster = SimulatedCluster(TINY)
    cluster.inject("link", CABLE)
    cluster.inject("flap", CABLE, period="100us", duty=0.4)
    cluster.clock.sleep(50 * US)
    assert [event.links for event in cluster.fault_events()] == [(CABLE,), (CABLE,), (), ()]
    assert not cluster.link_states()[CABLE]
