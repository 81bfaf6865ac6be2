"""Routes of kernel transports as text: who loses what when a link dies."""

from __future__ import annotations

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agents.clock import WallClock
from testbed.emulated.bringup import host_lines, link_mtu
from testbed.emulated.kernel_paths import begin_lines, dead_evs, end_lines, route, routes, shares
from topologies import load_fabric
from topologies.addressing import ev, ev_fields, path_address, text
from topologies.paths import path_evs

DEMO = load_fabric("demo")
CLOCK = WallClock(12_500)
EVS = [ev(plane, uplink) for plane in range(4) for uplink in range(4)]


def slots(parts: list[tuple[int, int]]) -> list[int]:
    """Which path each share of the hash belongs to."""
    return [value for value, weight in parts for _ in range(weight)]


@given(st.sets(st.sampled_from(EVS)))
def test_only_flows_on_dead_paths_move(dead: set[int]) -> None:
    before, after = slots(shares(EVS, ())), slots(shares(EVS, dead))
    assert len(before) == len(after) == 16
    if len(dead) == 16:
        assert before == after, "no path: nothing changes, frames vanish in the fault"
        return
    assert all(b == a for b, a in zip(before, after, strict=True) if b not in dead)
    assert not dead & set(after)


def test_a_lost_planes_flows_spread_over_uplinks() -> None:
    dead = {ev(2, uplink) for uplink in range(4)}
    assert Counter(ev_fields(value)[1] for value in slots(shares(EVS, dead))) == {
        0: 4,
        1: 4,
        2: 4,
        3: 4,
    }
    assert max(weight for _, weight in shares(EVS, dead)) == 2


def test_dead_links_take_their_paths() -> None:
    assert dead_evs(DEMO, 0, 5, []) == set()
    assert (
        dead_evs(DEMO, 0, 5, ["p1-t0-0:p1-t1-2"])
        == {ev(1, 2)}
        == dead_evs(DEMO, 5, 0, ["p1-t0-0:p1-t1-2"])
    )
    assert dead_evs(DEMO, 0, 1, ["p1-t0-0:p1-t1-2"]) == set(), "under one T0 nothing crosses it"
    assert dead_evs(DEMO, 0, 5, ["h5:p3-t0-1"]) == {ev(3, uplink) for uplink in range(4)}


def test_a_route_names_every_path_once() -> None:
    lines = routes(DEMO, 0, "tcp", "bbr", CLOCK)
    assert len(lines) == 7
    (line,) = [li for li in lines if " fd6d:7263::6/128 " in li]
    assert (
        "src fd6d:7263::1 " in line
        and " congctl bbr " in line
        and f" mtu {link_mtu(DEMO)} rto_min 200ms " in line
    )
    assert " rto_min 400ms " in route(DEMO, 0, 1, [(0, 1)], -1, "bbr", WallClock(25_000)), (
        "the same in network time"
    )
    assert sorted(re.findall(r"segs (\S+)", line)) == sorted(
        text(path_address(DEMO, 0, 5, value)) for value in path_evs(DEMO, 0, 5)
    )
    assert all(
        f"segs {text(path_address(DEMO, 0, 5, ev(p, 0)))} via fe80::1 dev h0-p{p} weight 1" in line
        for p in range(4)
    )
    changed = set(routes(DEMO, 0, "tcp", "bbr", CLOCK, ["p1-t0-0:p1-t1-2"])) - set(lines)
    assert len(changed) == 4, "only to the hosts across"


def test_mptcp_has_an_address_and_a_route_per_plane() -> None:
    lines = routes(DEMO, 2, "mptcp", "cubic", CLOCK)
    assert len(lines) == 7 * 4
    (line,) = [li for li in lines if " fd6d:7263::3:7/128 " in li]
    assert (
        "src fd6d:7263::3:3 " in line
        and line.count("nexthop") == 4
        and set(re.findall(r"dev (\S+)", line)) == {"h2-p2"}
    )
    begin = begin_lines(DEMO, 2, "mptcp")
    assert [li for li in begin if li.startswith("mptcp endpoint")] == [
        f"mptcp endpoint add fd6d:7263::{plane + 1}:3 id {plane + 1} signal" for plane in range(4)
    ]
    assert begin_lines(DEMO, 2, "tcp") == []


def test_what_was_added_is_taken_away() -> None:
    """Each address and route by name; for TCP the routes are those of bring-up again."""
    end = end_lines(DEMO, 2, "mptcp")
    added = {li.split()[2] for li in begin_lines(DEMO, 2, "mptcp") if li.startswith("addr add")}
    assert {li.split()[2] for li in end if li.startswith("addr del")} == added
    assert {li.split()[2] for li in end if li.startswith("route del")} == {
        li.split()[2] for li in routes(DEMO, 2, "mptcp", "cubic", CLOCK)
    }
    back = {li.replace("route replace", "route add") for li in end_lines(DEMO, 2, "tcp")}
    assert back <= set(host_lines(DEMO, 2)) and len(back) == 7
