"""A dead switch."""

from __future__ import annotations

from tests.testbed.faults.places import refused, tiny
from topologies import FabricError


def test_a_dead_switch_takes_its_cables() -> None:
    switch = tiny("switch", "p1-t1-1")
    assert (switch.links, switch.switches) == (("p1-t0-0:p1-t1-1", "p1-t0-1:p1-t1-1"), ("p1-t1-1",))
    refused(FabricError, "switch", "p0-t3-0", "no switch")
