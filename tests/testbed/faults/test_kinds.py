"""The catalogue: it finds its kinds, every mistake is one line with the key, and each kind comes,
goes, and is in the manual."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from testbed.faults import kinds
from testbed.faults.keys import Keys
from testbed.faults.kinds import KEYS, KINDS, FaultError, read_words, resolve
from testbed.simulated.cluster import SimulatedCluster
from tests.testbed.faults.places import TINY, refused, tiny
from topologies.clos import Fabric
from topologies.paths import path_evs, path_links
from topologies.units import NS, US

DOCS = Path(__file__).parents[3] / "docs"
MANUAL, REFERENCE, EVERY_KEY = (
    (DOCS / page).read_text()
    for page in ("how/faults.md", "reference/faults.md", "reference/scenarios.md")
)


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    [
        ("lose", {}, "kind = 'lose': there are link, port, .*did you mean 'loss'"),
        ("loss", {}, "probability is missing: kind 'loss' needs it"),
        ("loss", {"probability": -0.1}, "probability = -0.1 must be a number in 0..1"),
        ("loss", {"probability": True}, "probability = True must be"),
        ("loss", {"probability": float("nan")}, "probability = nan must be"),
        (
            "loss",
            {"probability": 0.1, "direction": "left"},
            "direction = 'left': there are both, up, down",
        ),
        ("loss", {"probability": 0.1, "sed": 1}, "sed is not a key: did you mean 'seed'"),
        ("loss", {"probability": 0.1, "seed": -1}, "seed = -1 must be a whole number"),
        ("link", {"seed": 1}, "seed is not a key: there are none"),
        ("flap", {"period": "1s", "duty": 1}, "duty = 1 must be a number above 0 and below 1"),
        ("flap", {"period": "1ns", "duty": 0.5}, "period = '1ns' is too short"),
        ("flap", {"period": "soon", "duty": 0.5}, "period = 'soon' is not a time"),
        ("transceiver", {"period": "1s"}, "duty is missing: a cycle needs period and duty"),
        ("dead-paths", {"share": 1.5}, "share = 1.5 must be a number above 0 and up to 1"),
    ],
)
def test_a_bad_key_is_one_line(kind: str, keys: dict[str, Any], message: str) -> None:
    refused(FaultError, kind, "h0-p0", message, **keys)


def test_every_key_has_a_type() -> None:
    """Machines that carry a fabric together drop a key that has none."""
    assert Keys.__annotations__.keys() == KEYS.keys()


def test_defaults_are_filled_and_the_runs_seed_stands_in() -> None:
    assert tiny("loss", "h0-p0", 5, probability="0.1").keys == {
        "probability": 0.1,
        "direction": "both",
        "seed": 5,
    }
    assert tiny("path-loss", "h0>h2@p0/0", 5).keys == {"probability": 1.0, "seed": 5}
    assert tiny("straggler", "h0", share=0.3).keys == {"share": 0.3, "period": 1600 * NS}
    assert tiny("link", "h0:p0-t0-0", 5).keys == {}


def test_every_module_of_the_room_has_a_kind() -> None:
    assert {type(kind).__module__.rpartition(".")[2] for kind in KINDS.values()} == {
        path.stem for path in Path(kinds.__file__).parent.glob("[!_]*.py")
    }
    assert list(KINDS)[:3] == ["link", "port", "flap"] and len(KINDS) >= 15
    for name, kind in KINDS.items():
        assert name == kind.name and kind.doc and kind.on, name
        assert all(KEYS[key.name].doc == key.doc for key in kind.keys), (
            f"{name}: one key has one meaning"
        )
        assert [key.required for key in kind.keys] == sorted(
            (key.required for key in kind.keys), reverse=True
        ), name


def test_the_manual_has_every_kind_and_key() -> None:
    for name, kind in KINDS.items():
        (line,) = [
            line
            for line in REFERENCE.splitlines()
            if line.startswith(f"| `{name}` |") and kind.doc in line
        ]
        assert f"`{name}`" in MANUAL, name
        assert all(f"`{key.name}`" in line for key in kind.keys), name
    for name, key in KEYS.items():
        assert any(
            line.startswith(f"| `fault.{name}` (") and key.doc.split("; default")[0] in line
            for line in EVERY_KEY.splitlines()
        ), name


# --- for how long ---


def test_every_kind_that_heals_may_say_for_how_long() -> None:
    assert (
        tiny("loss", "h0-p0", probability=1, **{"for": "80us"}).lasts == 80 * US
        and tiny("link", "h0:p0-t0-0").lasts == 0
    )
    assert read_words(["link", "h0:p0-t0-0", "for=1ms"], "usage") == (
        "link",
        "h0:p0-t0-0",
        {"for": "1ms"},
    )
    refused(FaultError, "kill", "h0", "for is not for kind 'kill'", **{"for": "1us"})
    refused(FaultError, "link", "h0:p0-t0-0", "for = 'soon' is not a time", **{"for": "soon"})
    refused(FaultError, "link", "h0:p0-t0-0", "for = '0s' must be longer", **{"for": "0s"})


def test_it_is_taken_back_when_its_time_is_over() -> None:
    cluster = SimulatedCluster(TINY)
    whole = state(cluster)
    cluster.inject("flap", "h0-p0", period="20us", duty=0.5, **{"for": "90us"})
    cluster.inject("silent", "p0-t1-1", reboot="30us", **{"for": "50us"})
    early = cluster.inject("port", "h1-p0", **{"for": "70us"})
    cluster.clear(early.number)
    cluster.clock.sleep(60 * US)
    assert [fault.target.kind for fault in cluster.faults()] == ["flap", "silent"]
    cluster.clock.sleep(25 * US)
    assert [fault.target.kind for fault in cluster.faults()] == ["flap"]
    cluster.clock.sleep(10 * US)
    assert cluster.faults() == [] and state(cluster) == whole
    heals = {event.number: event.t for event in cluster.fault_events() if event.phase == "heal"}
    assert heals == {1: 90 * US, 2: 80 * US, early.number: 0}


# --- each kind comes and goes ---------------------------------------------------------------------


def state(cluster: SimulatedCluster) -> tuple[Any, ...]:
    net = cluster.network
    return (
        cluster.link_states(),
        list(net._switch_states),
        [port.rate for port in net.ports],
        list(net.fault_words),
        dict(net.path_faults),
    )


def paths(fabric: Fabric) -> list[tuple[int, int, int, frozenset[str]]]:
    pairs = [(a, b) for a in range(fabric.host_count) for b in range(fabric.host_count) if a != b]
    return [
        (*pair, ev, frozenset(link.name for link in path_links(fabric, *pair, ev)))
        for pair in pairs
        for ev in path_evs(fabric, *pair)
    ]


@pytest.mark.parametrize(
    "name", [name for name, kind in KINDS.items() if kind.heals and not kind.programs]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_drawn_fault_comes_and_goes_and_leaves_nothing(name: str, seed: int) -> None:
    kind, cluster = KINDS[name], SimulatedCluster(TINY)
    whole = state(cluster)
    on, keys = kind.draw(TINY, random.Random(seed))
    for undo in ("clear", "heal"):
        fault = cluster.inject(name, on, **keys)
        assert fault.told_ps == cluster.clock.now() and [
            made.number for made in cluster.faults()
        ] == [fault.number]
        assert (state(cluster) != whole) is not kind.stalls
        cluster.clock.sleep(350 * US)
        assert kind.just_now(fault)
        if undo == "clear":
            cluster.clear(fault.number)
            cluster.clock.sleep(kind.lingers_ps(fault.target.keys) + 1)
        else:
            cluster.heal()
        assert cluster.faults() == [] and state(cluster) == whole
        phases = [event.phase for event in cluster.fault_events()]
        assert (phases[0], phases[-1]) == ("begin", "heal")
    if kind.takes or kind.loses:
        target = resolve(TINY, name, on, keys, seed)
        assert 0 < sum(kind.hits(target, *path) for path in paths(TINY)) < len(paths(TINY))
