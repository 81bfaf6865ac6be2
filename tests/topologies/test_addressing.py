"""uSIDs, addresses and EVs: inverse of one another, never ambiguous."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import FabricError, load_fabric
from topologies.addressing import (
    ev,
    ev_fields,
    host_of_inner,
    inner_address,
    outer_address,
    path_address,
    shift,
    sid_list,
    switch_usid,
    text,
    usid,
    usid_fields,
)

DEMO = load_fabric("demo")


@given(st.integers(0, 15), st.integers(1, 3), st.integers(0, 1023))
def test_usid_round_trip_and_never_zero(plane: int, tier: int, index: int) -> None:
    value = usid(plane, tier, index)
    assert usid_fields(value) == (plane, tier, index)
    assert 0 < value < 1 << 16


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_ev_round_trip(plane: int, uplink: int) -> None:
    assert ev_fields(ev(plane, uplink)) == (plane, uplink)


@given(st.integers(0, 60_000))
def test_inner_address_round_trip(host: int) -> None:
    assert host_of_inner(inner_address(host)) == host


def test_foreign_inner_address_is_no_host() -> None:
    assert host_of_inner(bytes.fromhex("fd6d7264") + inner_address(3)[4:]) == -1
    assert host_of_inner(inner_address(0)[:14] + b"\0\0") == -1


def test_a_path_as_people_read_it() -> None:
    # h1 under T0 0 to h6 under T0 1, downlink 2, plane 2, uplink 3.
    assert text(path_address(DEMO, 1, 6, ev(2, 3))) == "fcbb:bb00:2400:2803:2401:2c02::"
    assert text(path_address(DEMO, 1, 3, ev(2, 0))) == "fcbb:bb00:2400:2c03::"


@given(st.lists(st.integers(1, 0xFFFF), max_size=6))
def test_shift_consumes_one_usid_after_the_other(sids: list[int]) -> None:
    address = outer_address(tuple(sids))
    for used in range(len(sids)):
        assert int.from_bytes(address[4:6], "big") == sids[used]
        address = shift(address)
    assert address == outer_address(())


def test_seven_usids_do_not_fit() -> None:
    with pytest.raises(ValueError, match="at most six"):
        outer_address((1,) * 7)


def test_switch_usid() -> None:
    assert switch_usid("p3-t1-2") == usid(3, 2, 2)
    for bad in ("p3-t2-2", "t1-2", "p3-t1-x"):
        with pytest.raises(FabricError, match="is not a switch name"):
            switch_usid(bad)


@pytest.mark.parametrize(
    ("src", "dst", "value", "message"),
    [
        (0, 7, ev(4, 0), "planes 0..3"),
        (0, 7, ev(0, 4), "uplinks 0..3"),
        (0, 1, ev(0, 1), "share a T0"),
    ],
)
def test_evs_that_name_no_path(src: int, dst: int, value: int, message: str) -> None:
    with pytest.raises(FabricError, match=message):
        sid_list(DEMO, src, dst, value)
