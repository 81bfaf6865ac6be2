"""A dead plane."""

from __future__ import annotations

from tests.testbed.faults.places import TINY, refused, tiny
from topologies import FabricError


def test_a_plane_is_its_switches_and_all_their_cables() -> None:
    plane = tiny("plane", "p1")
    assert set(plane.switches) == {"p1-t0-0", "p1-t0-1", "p1-t1-0", "p1-t1-1"}
    assert set(plane.links) == {link.name for link in TINY.links if link.plane == 1}
    refused(FabricError, "plane", "p2", r"planes p0\.\.p1")
    refused(FabricError, "plane", "plane 1", "no plane 'plane 1'")
