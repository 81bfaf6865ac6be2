"""Loss at one switch of what goes to one host."""

from __future__ import annotations

from tests.testbed.faults.places import TINY, port, refused, tiny
from topologies import FabricError
from topologies.addressing import host_usid, usid


def test_a_destination_is_matched_in_every_form() -> None:
    down, last = host_usid(TINY, 0, 2), usid(0, 1, 1)
    assert {(port(n), sids) for n, sids in tiny("destination-loss", "p0-t1-1", to="h2").paths} == {
        ("p0-t1-1-d0", (last, down, 0)), ("p0-t1-1-d1", (last, down, 0)),
    }  # fmt: skip
    ups = [(usid(0, 2, j), last, down) for j in (0, 1)]
    assert {(port(n), sids) for n, sids in tiny("destination-loss", "p0-t0-0", to="h2").paths} == {
        (f"p0-t0-0-d{i}", sids) for i in (0, 1) for sids in ups
    }
    own = {(port(n), sids) for n, sids in tiny("destination-loss", "p0-t0-1", to="h2").paths}
    assert own == {(f"p0-t0-1-{p}", (down, 0, 0)) for p in ("d0", "d1", "u0", "u1")} | {
        (f"p0-t0-1-d{i}", s) for i in (0, 1) for s in ups
    }
    refused(FabricError, "destination-loss", "p0-t1-0", "no host 'h7'", to="h7")
