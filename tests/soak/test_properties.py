"""The properties of tests/properties, thousands of plays anew each time. Needs neither root nor a
fabric.

MRCBED_SOAK_EXAMPLES: how many plays of each (default 3000). A failure prints the shortest play; it
becomes a test of tests/properties/test_found.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.mrc.test_delivery import DEAD_PATH, dead_path
from tests.properties.play import ACTIONS, POSTS, SETTINGS, Action, Post, Setting, play
from tests.properties.profiles import LONG
from tests.properties.test_end import HOW, end
from tests.properties.test_trims import TRIMS, only_trims
from tests.properties.world import Weather
from topologies.clos import Fabric

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]


@LONG
@given(SETTINGS, ACTIONS)
def test_every_write_arrives_once_and_every_path_comes_back(
    setting: Setting, actions: list[Action]
) -> None:
    play(setting, actions)


@LONG
@given(SETTINGS, st.lists(POSTS, min_size=1, max_size=6), st.lists(TRIMS, min_size=1, max_size=3))
def test_a_trim_never_marks_a_path_as_bad(
    setting: Setting, posts: list[Post], trims: list[Weather]
) -> None:
    only_trims(setting, posts, trims)


@LONG
@given(
    SETTINGS,
    st.lists(POSTS, min_size=1, max_size=5),
    st.sampled_from(HOW),
    st.integers(1, 12),
    st.integers(0, 3),
    st.integers(0, 4),
)
def test_with_no_path_left_the_queue_pair_fails_in_time_and_says_so(
    setting: Setting, posts: list[Post], how: str, after: int, linear: int, exponential: int
) -> None:
    end(setting, posts, how, after, linear, exponential)


@settings(LONG, max_examples=LONG.max_examples // 10)  # a second each
@DEAD_PATH
def test_a_dead_path_is_left_alone_until_a_probe_came_back(
    fabric: Fabric, seed: int, when: float, link: int
) -> None:
    dead_path(fabric, seed, when, link)
