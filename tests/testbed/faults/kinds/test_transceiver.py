"""Ports that share a transceiver."""

from __future__ import annotations

from testbed.faults.kinds import FaultError, read_keys, resolve
from tests.testbed.faults.places import refused
from topologies import FabricError, load_fabric

DEMO = load_fabric("demo")


def test_a_transceiver_holds_neighbours() -> None:
    assert resolve(DEMO, "transceiver", "h2", {}, 0).links == ("h2:p0-t0-0", "h2:p1-t0-0")
    assert resolve(DEMO, "transceiver", "h2", {"links": 3}, 0).links == (
        "h2:p0-t0-0",
        "h2:p1-t0-0",
        "h2:p2-t0-0",
    )
    named = resolve(DEMO, "transceiver", "p0-t1-2", {"links": ["p0-t1-2:p0-t0-1"]}, 0)
    assert named.links == ("p0-t0-1:p0-t1-2",)


def test_links_may_be_one_word_with_commas() -> None:
    assert read_keys("transceiver", {"links": "h0:p0-t0-0,h0:p1-t0-0"})["links"] == (
        "h0:p0-t0-0",
        "h0:p1-t0-0",
    )


def test_links_that_it_cannot_have() -> None:
    refused(
        FaultError, "transceiver", "h0", "links = 0 must be a number of links from 1 on", links=0
    )
    refused(
        FaultError,
        "transceiver",
        "h0",
        "links = 'h1:p0-t0-0' is no link of h0: it has h0:p0-t0-0",
        links=["h1:p0-t0-0"],
    )
    refused(FabricError, "transceiver", "h0", "h0 has 2 links, not 3", links=3)
    refused(FabricError, "transceiver", "h9", "no host 'h9'")
