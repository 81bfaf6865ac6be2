"""Links between switches that fail one after another."""

from __future__ import annotations

import pytest

from testbed.faults.keys import FaultError
from testbed.simulated.cluster import SimulatedCluster
from tests.testbed.faults.places import TINY, refused, tiny
from topologies.units import US

UPLINKS = tuple(link.name for link in TINY.links if link.kind == "fabric")
CYCLE = {"period": "100us", "outage": "30us"}


def gone(seed: int, laps: int) -> list[tuple[int, str]]:
    """(us after the begin, link) of each failure; every link must be back after its outage."""
    cluster = SimulatedCluster(TINY)
    fault = cluster.inject("failures", "fabric", seed=seed, **CYCLE)
    cluster.clock.sleep((100 * laps * len(UPLINKS) - 50) * US)
    events = [
        ((event.t - fault.told_ps) // US, event.phase, event.links)
        for event in cluster.fault_events()
    ]
    assert events[0] == (0, "begin", UPLINKS)
    downs, ups = events[1::2], events[2::2]
    assert [(t + 30, "up", links) for t, _, links in downs] == ups
    assert all(phase == "down" and len(links) == 1 for _, phase, links in downs)
    assert all(cluster.link_states().values())
    return [(t, links[0]) for t, _, links in downs]


def test_one_fails_each_period_and_each_once_before_any_fails_again() -> None:
    failures = gone(7, 2)
    assert [t for t, _ in failures] == [100 * turn for turn in range(2 * len(UPLINKS))]
    order = [link for _, link in failures]
    first, second = order[: len(UPLINKS)], order[len(UPLINKS) :]
    assert set(first) == set(second) == set(UPLINKS) and first != second
    assert gone(7, 1) == failures[: len(UPLINKS)] and gone(8, 1) != gone(7, 1)


def test_those_of_one_plane() -> None:
    links = tiny("failures", "p1", **CYCLE).links
    assert links and all(link in UPLINKS and link.startswith("p1-") for link in links)


@pytest.mark.parametrize("outage", ["100us", "0us"])
def test_one_link_is_down_at_a_time(outage: str) -> None:
    refused(
        FaultError,
        "failures",
        "fabric",
        "outage must be more than nothing and less than the period",
        period="100us",
        outage=outage,
    )


def test_it_heals_with_the_link_that_is_down() -> None:
    cluster = SimulatedCluster(TINY)
    fault = cluster.inject("failures", "fabric", **CYCLE)
    cluster.clock.sleep(10 * US)
    assert list(cluster.link_states().values()).count(False) == 1
    cluster.clear(fault.number)
    assert all(cluster.link_states().values()) and cluster.fault_events()[-1].phase == "heal"
