"""A process that is killed."""

from __future__ import annotations

from testbed.faults.kinds import KINDS
from tests.testbed.faults.places import refused, tiny
from topologies import FabricError


def test_an_agent_or_the_controller() -> None:
    assert (tiny("kill", "h3").host, tiny("kill", "controller").host) == (3, -1)
    refused(FabricError, "kill", "h4", "no host 'h4'")


def test_only_an_agent_is_simulated() -> None:
    assert KINDS["kill"].not_simulated("controller") and not KINDS["kill"].not_simulated("h3")
