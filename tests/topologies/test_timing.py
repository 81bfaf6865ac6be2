"""Times where nothing waits, and fair shares, against figures worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import load_fabric
from topologies.theory import sack_share
from topologies.timing import (
    all_to_all_step_ns,
    burst_ns,
    fair_shares,
    fill_ns,
    frame_ns,
    idle_message_ns,
    ring_step_ns,
)
from topologies.units import NS

TINY = load_fabric("tiny").with_(delay_ps=-1, cut_through=False, hop_delay_ps=0)
"""2 planes of 100 Gb/s; a full packet takes 339.04 ns, the delay is 4.29728 us."""
CUT = load_fabric("tiny")
"""The same with switches that cut through: 4.824176 us, 725 ns of it for each switch."""
FRAME, DELAY, SACK = 339.04, 4297.28, 154 * 0.08
LINE = 200e9 * TINY.payload_share


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("name", ["tiny", "demo", "demo-1p", "wide", "rack16"])
def test_a_full_packet_alone_takes_the_base_rtt(name: str) -> None:
    fabric = load_fabric(name)
    assert idle_message_ns(fabric, False, fabric.mtu) == pytest.approx(
        fabric.base_rtt_ps / NS, abs=0.002
    )
    assert idle_message_ns(fabric, True, fabric.mtu) == pytest.approx(
        fabric.local_rtt_ps / NS, abs=0.002
    )


def test_a_path_is_filled_link_by_link() -> None:
    assert frame_ns(TINY, 4096, TINY.nic_rate) == near(FRAME)
    assert fill_ns(TINY, False) == near(3 * FRAME + DELAY)
    assert fill_ns(TINY, True) == near(FRAME + DELAY)
    assert fill_ns(TINY, True, 4) == near((138 + 4 + 4) * 0.08 + DELAY)
    assert fill_ns(CUT, False) == near(4824.32) and fill_ns(CUT, True) == near(4824.32 - 1450), (
        "the first link's time is all"
    )


def test_a_message_is_spread_over_the_ports() -> None:
    assert burst_ns(TINY, 4 * 4096, 2) == near(2 * FRAME)
    assert burst_ns(TINY, 3 * 4096, 2) == near(2 * FRAME)
    # its last packet leaves alone, and is short
    assert burst_ns(TINY, 2 * 4096 + 58, 2) == near(FRAME + 200 * 0.08)
    # beside a full one it is not the last to leave
    assert burst_ns(TINY, 4096 + 58, 2) == near(FRAME)
    back = DELAY + 4 * SACK
    assert idle_message_ns(TINY, False, 16 * 4096) == near(8 * FRAME + 3 * FRAME + DELAY + back)
    assert idle_message_ns(TINY, False, 54) == near(4 * 196 * 0.08 + DELAY + back)


def test_a_ring_waits_for_its_first_slice_or_sends_without_pause() -> None:
    fill, more = 3 * FRAME + DELAY, 1 + sack_share(TINY)
    # a slice of 10 packets, and of 40, on two ports
    short, long = 5 * FRAME * more, 20 * FRAME * more
    assert ring_step_ns(TINY, 4, 320 << 10, 2, LINE) == near(6 * (short + fill) + short)
    assert ring_step_ns(TINY, 4, 1280 << 10, 2, LINE) == near(6 * 2 * long + fill)
    assert ring_step_ns(TINY, 4, 1280 << 10, 2, LINE, acks=False) == near(6 * 2 * 20 * FRAME + fill)


def test_an_all_to_all_waits_for_its_last_packet() -> None:
    assert all_to_all_step_ns(TINY, 4, 64 << 10, LINE) == near(
        6 * FRAME * (1 + sack_share(TINY)) + 3 * FRAME + DELAY
    )


def test_fair_shares_by_hand() -> None:
    rates = {"a": 10, "b": 10, "c": 4}
    alone = {1: [("a", "x")]}
    assert fair_shares(alone, rates) == {1: 10}
    # both directions of one cable
    assert fair_shares({1: [("a", "x")], 2: [("a", "y")]}, rates) == {1: 10, 2: 10}
    # 2 and 3 share c, 2 each; 1 has what 2 leaves of a.
    assert fair_shares(
        {1: [("a", "x")], 2: [("a", "x"), ("c", "x")], 3: [("b", "x"), ("c", "x")]}, rates
    ) == {1: 8, 2: 2, 3: 2}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=8),
    st.lists(st.integers(1, 50), min_size=6, max_size=6),
)
def test_every_flow_has_a_full_cable_on_which_none_has_more(
    paths: list[set[str]], sizes: list[int]
) -> None:
    """What max-min fairness is."""
    rates = dict(zip("abcdef", sizes, strict=True))
    routes = {n: [(link, "x") for link in sorted(path)] for n, path in enumerate(paths)}
    shares = fair_shares(routes, rates)
    for n, path in enumerate(paths):
        used = {
            link: sum(shares[m] for m, other in enumerate(paths) if link in other) for link in path
        }
        assert all(used[link] <= rates[link] * (1 + 1e-9) for link in path)
        assert any(
            used[link] >= rates[link] * (1 - 1e-9)
            and all(
                shares[m] <= shares[n] * (1 + 1e-9)
                for m, other in enumerate(paths)
                if link in other
            )
            for link in path
        )
