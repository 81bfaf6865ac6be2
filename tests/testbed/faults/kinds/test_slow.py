"""A slow link."""

from __future__ import annotations

from testbed.faults.kinds import KINDS, FaultError
from tests.testbed.faults.places import port, refused, tiny


def test_a_link_is_slow_where_frames_go_out() -> None:
    assert [port(n) for n in tiny("slow", "h1-p0", direction="up", rate=0.5).ports] == ["h1-p0"]
    assert [port(n) for n in tiny("slow", "h1:p0-t0-0", direction="down", rate=0.5).ports] == [
        "p0-t0-0-d1"
    ]
    refused(FaultError, "slow", "h0-p0", "rate = 1 must be a number above 0 and below 1", rate=1)


def test_queues_take_longer_to_drain() -> None:
    assert KINDS["slow"].drain({"rate": 0.2}) == (0.2, 0)
