"""Loss and damage on links."""

from __future__ import annotations

import pytest

from tests.testbed.faults.places import TINY, port, refused, tiny
from topologies import FabricError


@pytest.mark.parametrize(
    ("on", "direction", "kind", "ports"),
    [
        ("p0-t0-0:p0-t1-1", "up", "loss", ["p0-t1-1-d0"]),
        ("p0-t0-0:p0-t1-1", "down", "corrupt", ["p0-t0-0-u1"]),
        ("p0-t0-0:p0-t1-1", "both", "loss", ["p0-t1-1-d0", "p0-t0-0-u1"]),
        ("h1-p0", "up", "loss", ["p0-t0-0-d1"]),
    ],
)
def test_packets_are_lost_where_frames_come_in(
    on: str, direction: str, kind: str, ports: list[str]
) -> None:
    assert [port(n) for n in tiny(kind, on, direction=direction, probability=0.5).ports] == ports


def test_loss_on_every_t0_t1_link_of_a_plane_or_of_the_fabric_and_on_every_nic_link() -> None:
    one, every = (
        tiny("loss", "p1", direction="up", probability=0.1),
        tiny("corrupt", "fabric", probability=0.1),
    )
    assert one.links == tuple(
        link.name for link in TINY.links if link.kind == "fabric" and link.plane == 1
    )
    # once a packet, on its way up
    assert [port(n) for n in one.ports] == ["p1-t1-0-d0", "p1-t1-1-d0", "p1-t1-0-d1", "p1-t1-1-d1"]
    assert len(every.links) == 8 and len(set(every.ports)) == 16 and every.on == "fabric"
    assert tiny("loss", "fabric", probability=0).keys["probability"] == 0
    arriving = tiny("loss", "nics", direction="down", probability=0.1)
    assert [port(n) for n in arriving.ports] == [
        link.a.name for link in TINY.links if link.kind == "nic"
    ]
    refused(FabricError, "loss", "p2", r"has planes p0\.\.p1", probability=0.1)
