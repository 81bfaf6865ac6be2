"""A trim is congestion and never a loss: however many packets are cut, no path is given up for it
and no window is cut as for a loss."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.play import (
    POSTS,
    SETTINGS,
    SIDES,
    Post,
    Setting,
    act,
    finish,
    recover,
    settle,
)
from tests.properties.profiles import QUICK
from tests.properties.world import Weather, World

TRIMS = st.builds(
    Weather,
    st.sampled_from(["trim", "trim-last-hop"]),
    SIDES,
    st.integers(-1, 2),
    st.integers(1, 80),
)


def patience(world: World, posts: list[Post], trims: list[Weather]) -> float:
    """Base RTTs: 400 where a fifth or more comes through; with less, four times what a window of
    one packet needs on average, if more."""
    left = math.prod(1 - trim.odds / 100 for trim in trims)
    packets = sum(1 + post.length // world.fabric.mtu for post in posts)
    return 400 if left > 0.199 else max(400, 4 * packets / left)


def only_trims(setting: Setting, posts: list[Post], trims: list[Weather]) -> None:
    world = setting._replace(trimming=True).world()
    world.weather = list(trims)
    for post in posts:
        act(world, post)
        world.run(3)
    finish(world, round(patience(world, posts, trims)) * world.rtt)
    for host in world.hosts:
        told = [
            fields
            for kind in ("ev", "plane", "loss", "spurious", "endpoint")
            for fields in host.watch.of(kind)
        ]
        assert [fields for fields in told if "to" in fields] == [], "a path was judged for a trim"
        assert not any(path.losses for path in host.qp.requester.paths.all)
        c = host.engine.counters()
        assert c["spurious"] == c["lost_by_rto"] == c["lost_by_time"] == 0
    world.mend()
    recover(world)
    settle(world)


@settings(QUICK, max_examples=25)
@given(SETTINGS, st.lists(POSTS, min_size=1, max_size=6), st.lists(TRIMS, min_size=1, max_size=3))
def test_a_trim_never_marks_a_path_as_bad(
    setting: Setting, posts: list[Post], trims: list[Weather]
) -> None:
    only_trims(setting, posts, trims)


def test_nearly_everything_trimmed_takes_its_time_and_comes_through() -> None:
    """Found by the long runs: two kinds of weather at once, of which one packet in eight escapes,
    and a window of one packet."""
    trims = [Weather("trim", 1, -1, 63), Weather("trim", 1, -1, 66)]
    only_trims(Setting("small", False, "nscc", 128, 3, 0), [Post(0, 15_597, False)], trims)
