"""NSCC told whole streams, recorded and made up: at every event its window is the one of a plain
second writing of the protocol's rules."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.mrc.config import Config
from agents.mrc.sender.congestion.nscc import Nscc
from tests.agents.mrc.sender.plain_nscc import Plain
from tests.agents.mrc.sender.recorder import FILE, record
from topologies.units import BYTE, US

RTT = 12 * US
TENTH = US // 10


class Pair:
    """Both, told the same."""

    def __init__(self, config: Config, path_rtt: int) -> None:
        self.nscc = Nscc(config, path_rtt)
        self.plain = Plain(
            config.port_rate / BYTE, config.base_rtt, path_rtt, config.mtu + 88, config.trimming
        )
        self.plain.window = self.plain.max_wnd

    def tell(self, name: str, *args: Any) -> None:
        getattr(self.nscc, name)(*args)
        if name == "on_sack":
            now, news, in_flight, ecn, rtt, penalty, restore = args
            args = (now, news, in_flight, ecn, rtt if rtt >= 0 else None, penalty, restore)
        getattr(self.plain, name)(*args)
        assert abs(self.nscc.cwnd - self.plain.cwnd) <= 1, (name, args)  # floats round differently
        assert self.plain.mtu <= self.nscc.cwnd <= self.plain.max_wnd + 1


def stream() -> tuple[dict[str, Any], list[list[Any]]]:
    with FILE.open() as lines:
        told, *calls = (json.loads(line) for line in lines)
    return told, calls


def test_a_recorded_incast() -> None:
    """Windows agree all along, and the recording has what it is for: marks, trims, a penalty and
    its end, a lost plane."""
    told, calls = stream()
    path_rtt = told.pop("path_rtt")
    pair = Pair(Config(**told), path_rtt)
    windows = set()
    for name, *args in calls:
        pair.tell(name, *args)
        windows.add(pair.nscc.cwnd)
    sacks = [c[1:] for c in calls if c[0] == "on_sack"]
    target = 0.75 * told["base_rtt"]
    delays = [(ecn, rtt - path_rtt) for _, _, _, ecn, rtt, _, _ in sacks if rtt >= 0]
    assert any(ecn and d >= target for ecn, d in delays)
    assert any(not ecn and d >= target for ecn, d in delays)
    assert any(not ecn and told["base_rtt"] / 12 < d < target for ecn, d in delays)
    assert any(not ecn and d < told["base_rtt"] / 12 for ecn, d in delays)
    assert any(s[5] for s in sacks) and any(s[6] for s in sacks) and any(s[4] < 0 for s in sacks)
    assert {c[0] for c in calls} >= {"on_sack", "on_nack", "planes_changed"}
    assert len(windows) > 50


def test_the_story_is_still_one_of_marks_trims_and_penalties() -> None:
    """Told anew by the network of today: agreement does not hang on the recording's age."""
    told, calls = record()
    path_rtt = told.pop("path_rtt")
    pair = Pair(Config(**told), path_rtt)
    for name, *args in calls:
        pair.tell(name, *args)
    assert any(c[0] == "on_nack" for c in calls)


SIZES = st.sampled_from([0, 256, 1000, 4000, 16_000, 32_000, 60_000])
DELAYS = st.one_of(
    st.sampled_from([-1, 0, 9, 10, 45, 89, 90, 91, 119, 120, 360, 480, 481, 1000]),
    st.integers(0, 300),
)
GAPS = st.sampled_from([0, 1, 2, 10, 30, 60, 119, 120, 121, 210, 240, 500])
SACKS = st.tuples(
    st.just("on_sack"),
    GAPS,
    SIZES,
    st.integers(0, 300_000),
    st.booleans(),
    DELAYS,
    st.sampled_from([0, 0, 0, 1, 16, 127]),
    st.booleans(),
)
NACKS = st.tuples(
    st.just("on_nack"), GAPS, st.sampled_from([256, 4000]), st.integers(0, 300_000), st.booleans()
)
OTHERS = st.one_of(
    st.tuples(st.just("on_loss"), GAPS, st.sampled_from([256, 4000, 60_000])),
    st.tuples(st.just("on_wrong_loss"), GAPS, st.sampled_from([256, 4000])),
    st.tuples(st.just("planes_changed"), GAPS, st.integers(1, 4)),
)
STREAMS = st.lists(st.one_of(SACKS, SACKS, SACKS, NACKS, OTHERS), max_size=60)


@settings(deadline=None, max_examples=200)
@given(STREAMS, st.booleans(), st.sampled_from([120, 60]), st.integers(1, 4))
def test_any_stream(events: list[Any], trimming: bool, idle: int, planes: int) -> None:
    """Any mixture of signals at any gaps, in tenths of a us; ``idle`` is the true RTT, at first
    unknown."""
    pair = Pair(Config(RTT, 10**11, 3912, trimming), RTT)
    pair.tell("planes_changed", planes)
    now = 100 * US
    for name, gap, *args in events:
        now += gap * TENTH
        if name == "on_sack":
            news, in_flight, ecn, d, penalty, restore = args
            pair.tell(
                name,
                now,
                news,
                in_flight,
                ecn,
                (idle + d) * TENTH if d >= 0 else -1,
                penalty,
                restore,
            )
        elif name == "planes_changed":
            pair.tell(name, *args)
        else:
            pair.tell(name, now, *args)


@pytest.mark.parametrize("seed", range(4))
def test_long_streams_of_one_kind(seed: int) -> None:
    """A thousand SACKs at one delay: each cell of the table driven to where it ends."""
    d = (0, 50, 95, 200)[seed]
    for ecn in (False, True):
        pair = Pair(Config(RTT, 10**11, 3912, True), RTT)
        pair.tell("on_loss", 0, 200_000)
        for k in range(1000):
            pair.tell(
                "on_sack",
                100 * US + k * 13 * TENTH,
                4000,
                50_000,
                ecn,
                RTT if k == 0 else RTT + d * TENTH,
                0,
                False,
            )
        if not ecn:
            assert pair.nscc.cwnd == 225_000 + 16_384
