"""Plays written by hand, each for something that drawn ones seldom get to. test_scenes.py sees that
they do get there."""

from __future__ import annotations

from tests.properties.play import Action, Break, Mend, Post, Setting, Stall, Tell, Wait
from tests.properties.world import Weather

LOAD: list[Action] = [Post(0, 20_000, True), Post(1, 9_000), Post(0, 12_000, True)]
SCENES: dict[str, tuple[Setting, list[Action]]] = {
    "one path after the other goes, down to the floor": (
        Setting("many", active=128),
        [
            *LOAD,
            Wait(6),
            *(
                step
                for n in range(12)
                for step in (Break("path-loss", n, 99), Post(0, 4_000), Wait(12))
            ),
        ],
    ),
    "backup paths replace those that are lost": (
        Setting("many", active=6),
        [
            *LOAD,
            Wait(4),
            *(Break("path-loss", n, 99) for n in range(3)),
            Post(0, 20_000),
            Wait(60),
            Post(0, 9_000),
            Wait(40),
        ],
    ),
    "a plane falls silent": (
        Setting("many"),
        [*LOAD, Wait(6), Break("silent", 6), Post(0, 15_000, True), Wait(60), Mend(), Wait(30)],
    ),
    "a port flaps under load": (
        Setting("many", active=2),
        [
            *LOAD,
            Wait(4),
            Break("port", 0),
            Wait(8),
            Mend(),
            Wait(20),
            Post(0, 9_000),
            Break("flap", 1, 50),
            Wait(90),
        ],
    ),
    "nothing gets through for a while": (
        Setting("small", seed=5),
        [
            *LOAD,
            Wait(4),
            Weather("loss", 0),
            Wait(150),
            Mend(),
            Wait(40),
            Weather("loss", 1),
            Post(1, 5_000),
            Wait(200),
        ],
    ),
    "half is lost both ways, without trimming": (
        Setting("small", trimming=False, congestion="fixed"),
        [Weather("loss", 0, -1, 40), Weather("loss", 1, -1, 40), *LOAD, Wait(300)],
    ),
    "everything is late, twice and out of turn": (
        Setting("many", immediates=1024, seed=5),
        [
            Weather("delay", 0, -1, 60, 12),
            Weather("delay", 1, -1, 30, 8),
            Weather("copy", 1, -1, 70, 12),
            Weather("copy", 0, -1, 70, 12),
            *LOAD,
            *(Post(0, 300, True) for _ in range(12)),
            Wait(120),
            Post(0, 9_000),
            Weather("skew", 1, 1, 100, 12),
            Weather("trim", 1, -1, 30),
            Wait(80),
        ],
    ),
    "a host sleeps, the controller talks, bytes change": (
        Setting("small", immediates=1024),
        [
            *LOAD,
            Wait(2),
            Tell("hint", 8),
            Weather("flip", 0, -1, 20),
            Weather("flip", 1, -1, 20),
            Wait(8),
            Stall(1),
            Wait(60),
            Stall(1, False),
            Wait(20),
            Tell("deny", 0),
            Tell("deny", 10),
            Post(0, 9_000),
            Wait(30),
            Tell("hint", -1),
            Tell("deny", -1),
            Wait(20),
        ],
    ),
}
