"""Time has no origin: a play goes the same whenever it begins, at time 0 too, at the far end of 64
bits, and with the longest round trips while the clock is young.

What an engine has not seen yet must not count as seen at some time (agents.transport.LONG_AGO).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.properties.play import Action, Break, Mend, Post, Setting, Tell, Wait, play
from tests.properties.scenes import LOAD, SCENES
from tests.properties.world import World
from topologies.clos import MAX_DELAY
from topologies.units import US

LATER = 1 << 60
"""Half of NEVER, far beyond MAX_TIME. A multiple of the range of every fabric's 16-bit timestamps,
so that they read the same."""
TIMES = ("sent_ps", "last_data_ps")
"""Fields of events that are times, not durations."""
YOUNG: dict[str, list[Action]] = {
    "one plane of several": [*LOAD, Break("plane", 1), Wait(40), Mend(), Post(0, 9_000), Wait(40)],
    "one plane, silently": [*LOAD, Break("silent", 6), Wait(60), Mend(), Post(0, 9_000), Wait(40)],
    "most planes at once": [
        *LOAD,
        Break("silent", 0),
        Break("silent", 6),
        Wait(60),
        Mend(),
        Mend(),
        Post(1, 9_000),
        Wait(40),
    ],
    "all planes, one after the other": [
        *LOAD,
        Wait(3),
        *(a for n in range(3) for a in (Break("plane", n), Wait(9), Mend(), Wait(9))),
    ],
    "ports and denials": [
        Break("port", 0),
        Tell("deny", 5),
        *LOAD,
        Wait(20),
        Tell("deny", -1),
        Mend(),
        Post(0, 9_000),
        Wait(40),
    ],
}


def story(world: World, begin: int) -> Iterator[list[tuple[int, str, dict[str, Any]]]]:
    """What each endpoint said, by the time since the beginning."""
    for host in world.hosts:
        yield [
            (
                t - begin,
                kind,
                {k: v - begin if k in TIMES and v is not None else v for k, v in fields.items()},
            )
            for t, kind, fields in host.watch.events
        ]


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_goes_the_same_whenever_it_begins(name: str) -> None:
    setting, actions = SCENES[name]
    young, old = (
        list(story(play(setting._replace(begin=begin), actions), begin)) for begin in (0, LATER)
    )
    assert young == old and all(young)


@pytest.mark.parametrize("delay", [200 * US, MAX_DELAY])
@pytest.mark.parametrize("fabric", ["small", "many"])
@pytest.mark.parametrize("name", YOUNG)
def test_planes_are_lost_while_the_clock_is_younger_than_a_round_trip(
    name: str, fabric: str, delay: int
) -> None:
    setting = Setting(fabric, delay_ps=delay)
    young, old = (
        list(story(play(setting._replace(begin=begin), YOUNG[name]), begin)) for begin in (0, LATER)
    )
    assert young == old and all(young)
