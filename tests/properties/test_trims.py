"""A trim is congestion and never a loss: however many packets are cut, no path is given up for it and no window is cut as for a loss."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.play import POSTS, SETTINGS, SIDES, Post, Setting, act, finish, recover, settle
from tests.properties.profiles import QUICK
from tests.properties.world import Weather

TRIMS = st.builds(Weather, st.sampled_from(["trim", "trim-last-hop"]), SIDES, st.integers(-1, 2), st.integers(1, 80))


def only_trims(setting: Setting, posts: list[Post], trims: list[Weather]) -> None:
    world = setting._replace(trimming=True).world()
    world.weather = list(trims)
    for post in posts:
        act(world, post)
        world.run(3)
    finish(world, 400 * world.rtt)
    for host in world.hosts:
        told = [fields for kind in ("ev", "plane", "loss", "spurious", "endpoint") for fields in host.watch.of(kind)]
        assert [fields for fields in told if "to" in fields] == [], "a path was judged for a trim"
        assert host.qp.requester.paths.losses == [0] * len(host.qp.ev_index)
        c = host.engine.counters()
        assert c["spurious"] == c["lost_by_rto"] == c["lost_by_time"] == 0
    world.mend()
    recover(world)
    settle(world)


@settings(QUICK, max_examples=25)
@given(SETTINGS, st.lists(POSTS, min_size=1, max_size=6), st.lists(TRIMS, min_size=1, max_size=3))
def test_a_trim_never_marks_a_path_as_bad(setting: Setting, posts: list[Post], trims: list[Weather]) -> None:
    only_trims(setting, posts, trims)
