"""Cables by their names, and by those of their NIC ports."""

from __future__ import annotations

from tests.testbed.faults.places import refused, tiny
from topologies import FabricError


def test_a_link_has_its_ends_in_the_fabrics_order() -> None:
    assert tiny("link", "p0-t1-0:p0-t0-1").links == ("p0-t0-1:p0-t1-0",)
    refused(FabricError, "link", "h0:p9-t0-0", "no link")


def test_a_nic_port_is_its_cable() -> None:
    assert tiny("port", "h3-p1").links == ("h3:p1-t0-1",)
    refused(FabricError, "port", "p0-t0-0-u0", "no NIC port 'p0-t0-0-u0'; near it: h")
