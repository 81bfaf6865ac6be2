"""The plays of scenes.py end well, and together get to every verdict, change and corner that the
invariants speak of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agents.mrc.paths.ev_state import ASSUMED_BAD
from agents.mrc.paths.path_set import PathSet
from tests.properties.play import play
from tests.properties.scenes import SCENES
from tests.properties.watch import Watch
from tests.properties.world import World


@pytest.fixture(scope="module")
def seen() -> dict[str, set[str]]:
    """By scene, what was seen in it."""
    return {}


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_ends_well(
    name: str, seen: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    corners: set[str] = set()
    looks = Watch.looks

    def also(self: Watch, now: int) -> None:
        looks(self, now)
        paths = self.qp.requester.paths
        corners.update({"spared"} if any(path.spared for path in paths.all) else ())
        corners.update(
            {"down to the floor"} if paths.in_rotation == paths.floor() < sum(paths.wanted) else ()
        )
        corners.update({"replaced"} if replaced(paths) else ())

    monkeypatch.setattr(Watch, "looks", also)
    seen[name] = corners | set(told(play(*SCENES[name])))


def replaced(paths: PathSet) -> bool:
    """Whether a plane has lost a path and has as many in use as before."""
    lost = {path.plane for path in paths.all if path.state == ASSUMED_BAD}
    return any(len(paths.active[plane]) == paths.wanted[plane] > 0 for plane in lost)


def told(world: World) -> Iterator[str]:
    """What the two endpoints said and counted of it."""
    for host in world.hosts:
        for _, kind, fields in host.watch.events:
            if kind in ("ev", "plane"):
                yield f"{kind} {fields['to']}: {fields['cause']}"
            elif kind != "srtt":
                yield kind
        yield from (name for name, n in host.engine.counters().items() if n)


def test_they_get_everywhere(seen: dict[str, Any]) -> None:
    if len(seen) < len(SCENES):
        pytest.skip("after all scenes only")
    every = set().union(*seen.values())
    wanted = {
        "spared",
        "down to the floor",
        "ev ASSUMED_BAD: order",
        "ev ASSUMED_BAD: time",
        "ev ASSUMED_BAD: suspect plane",
        "ev ASSUMED_BAD: hint",
        "ev DENIED: denied",
        "ev ASSUMED_BAD: allowed",
        "ev GOOD: probed",
        "plane SUSPECT: all is lost",
        "plane DOWN: port down",
        "plane DOWN: peer's port down",
        "plane USED: probed",
        "endpoint",
        "rto",
        "spurious",
        "lost_by_port",
        "replaced",
        "trims",
        "rx_bad_icrc",
        "rx_duplicate",
        "acks_tx",
        "nacks_tx",
        "ev_probes_rx",
        "port_updates_rx",
    }
    assert wanted <= every, sorted(wanted - every)
