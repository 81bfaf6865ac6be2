"""Options: each knob's kind and range, a wrong one told in a line; the same compiled and
interpreted."""

from __future__ import annotations

from typing import Any

import pytest

from agents.mrc.config import Config
from tests.agents.mrc.rig import DEMO, TINY, WIDE
from topologies import load_fabric


@pytest.mark.parametrize(
    "options",
    [
        {"window_bdp": 2},
        {"window_bdp": 2.5},
        {"sack_jitter": 0},
        {"mpr": 32640},
        {"exponential": 25},
        {"skip": False},
    ],
)
def test_good_options(options: dict[str, Any]) -> None:
    made = Config.from_fabric(TINY, options)
    for key, value in options.items():
        assert getattr(made, key) == value


@pytest.mark.parametrize(
    "options, words",
    [
        ({"windw_bdp": 2}, "did you mean 'window_bdp'"),
        ({"mtu": 100}, "mtu is not a key"),
        ({"mpr": 1000}, "multiple of 128"),
        ({"mpr": 0}, "in 128..32640"),
        ({"mpr": 128.0}, "whole number"),
        ({"window_bdp": "2"}, "number"),
        ({"linear": True}, "whole number"),
        ({"linear": 8}, "in 0..7"),
        ({"oblivious": 1}, "oblivious = 1 must be true or false"),
        ({"exponential": 26}, "in 0..25"),
        ({"active_evs": 0}, "in 1..65536"),
        ({"max_wimm": 32768}, "in 1..32767"),
        ({"window_bdp": 0.01}, "in 0.1..100"),
    ],
)
def test_bad_options_are_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        Config.from_fabric(TINY, options)
    assert "\n" not in str(caught.value)


def test_the_sack_period_follows_a_small_bdp() -> None:
    slow = DEMO.with_(nic_rate=DEMO.nic_rate // 10, delay_ps=DEMO.delay_ps)
    assert Config.from_fabric(DEMO, {}).sack_bytes <= 16384
    assert (
        Config.from_fabric(slow, {}).sack_bytes
        == max(256, slow.planes * slow.plane_bdp // 7)
        < 16384
    )
    assert (
        Config.from_fabric(load_fabric("demo"), {}).sack_bytes
        == Config.from_fabric(load_fabric("demo-1p"), {}).sack_bytes
        == 16384
    )
    assert Config.from_fabric(slow, {"sack_bytes": 16384}).sack_bytes == 16384


@pytest.mark.parametrize("fabric", [TINY, DEMO, WIDE], ids=lambda f: f.name)
def test_the_retransmission_timer_leaves_time_for_a_probe_to_ask_first(fabric: Any) -> None:
    c = Config.from_fabric(fabric, {})
    assert c.rto > 2 * (3 * c.base_rtt)
