"""Denylist entries: what is one, and which EVs it forbids."""

from __future__ import annotations

import pytest

from topologies import FabricError, load_fabric
from topologies.addressing import ev
from topologies.denylist import check_entry, denied, over_links
from topologies.paths import evs_over, path_evs

DEMO = load_fabric("demo")  # 4 planes, 2 T0s of 4 hosts, 4 T1s


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("p0-t0-0:p0-t1-3", "p0-t0-0:p0-t1-3"),
        ("p0-t1-3:p0-t0-0", "p0-t0-0:p0-t1-3"),
        ("h3:p1-t0-0", "h3:p1-t0-0"),
        ("p2-t1-0", "p2-t1-0"),
        ("p3", "p3"),
        ("h0>h5@p0/3", "h0>h5@p0/3"),
    ],
)
def test_every_form_is_taken(text: str, kept: str) -> None:
    assert check_entry(DEMO, text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p4",
        "p0-t1-9",
        "h0",
        "h0>h0@p0/0",
        "h0>h9@p0/0",
        "h0>h5@p0/4",
        "h0>h1@p0/1",
        "h0:p0-t0-1",
        "everything",
        "p0-t0-0:",
    ],
)
def test_what_is_no_entry_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(FabricError) as caught:
        check_entry(DEMO, text)
    assert "\n" not in str(caught.value)


def test_a_fabric_link_forbids_the_evs_that_cross_it() -> None:
    for src, dst in ((0, 5), (5, 0), (4, 1)):
        assert denied(DEMO, ["p1-t0-0:p1-t1-2"], src, dst) == {ev(1, 2)}
    assert denied(DEMO, ["p1-t0-0:p1-t1-2"], 0, 1) == set()


def test_a_nic_link_forbids_its_plane_to_and_from_its_host_only() -> None:
    plane = {ev(1, u) for u in range(4)}
    assert denied(DEMO, ["h3:p1-t0-0"], 3, 6) == denied(DEMO, ["h3:p1-t0-0"], 6, 3) == plane
    assert denied(DEMO, ["h3:p1-t0-0"], 3, 2) == {ev(1, 0)}
    assert denied(DEMO, ["h3:p1-t0-0"], 2, 6) == set()


def test_switches_planes_paths_and_several_entries() -> None:
    assert denied(DEMO, ["p2-t1-1"], 0, 4) == {ev(2, 1)}
    assert denied(DEMO, ["p2-t0-1"], 0, 4) == {ev(2, u) for u in range(4)}
    assert denied(DEMO, ["p2-t0-1"], 0, 1) == set()
    assert denied(DEMO, ["p3"], 0, 1) == {ev(3, 0)}
    assert denied(DEMO, ["h0>h4@p1/2"], 0, 4) == {ev(1, 2)}
    assert denied(DEMO, ["h0>h4@p1/2"], 4, 0) == denied(DEMO, ["h0>h4@p1/2"], 0, 5) == set()
    assert denied(DEMO, ["p3", "p2-t1-1"], 0, 4) == {ev(3, u) for u in range(4)} | {ev(2, 1)}


def test_every_link_agrees_with_the_paths_that_take_it() -> None:
    for link in DEMO.links:
        for src, dst in ((0, 1), (0, 4), (6, 2)):
            assert over_links(DEMO, [link.name], src, dst) == set(
                evs_over(DEMO, src, dst, link.name)
            )


def test_all_planes_forbid_everything() -> None:
    assert denied(DEMO, [f"p{p}" for p in range(4)], 0, 7) == set(path_evs(DEMO, 0, 7))
