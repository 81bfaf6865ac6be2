"""Loss on one path."""

from __future__ import annotations

from testbed.faults.kinds import KINDS
from tests.testbed.faults.places import TINY, port, refused, tiny
from topologies import FabricError
from topologies.addressing import ev, host_usid, usid


def test_a_path_is_matched_where_it_enters() -> None:
    ((number, sids),) = tiny("path-loss", "h1>h2@p1/1").paths
    assert port(number) == "p1-t0-0-d1"
    assert sids == (usid(1, 2, 1), usid(1, 1, 1), host_usid(TINY, 1, 2))
    ((number, sids),) = tiny("path-loss", "h1>h0@p0/0").paths
    assert (port(number), sids) == ("p0-t0-0-d1", (host_usid(TINY, 0, 0), 0, 0))


def test_it_hits_one_path_in_one_direction() -> None:
    kind, target = KINDS["path-loss"], tiny("path-loss", "h1>h2@p1/1")
    hit = [
        (a, b, uplink)
        for a in range(4)
        for b in range(4)
        for uplink in (0, 1)
        if kind.hits(target, a, b, ev(1, uplink), frozenset())
    ]
    assert hit == [(1, 2, 1)]
    assert kind.used_on(TINY, 1, 2, ev(1, 1)) == "h1>h2@p1/1"


def test_paths_that_are_not_there() -> None:
    refused(FabricError, "path-loss", "h0:p0-t0-0", "is not a path: write it as")
    refused(FabricError, "path-loss", "h0>h0@p0/0", "from one host to another")
    refused(FabricError, "path-loss", "h0>h2@p0/7", r"uplinks 0\.\.1")
