"""The catalogue on fabrics: what each kind takes, what it hits, and that every mistake is one line with the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.faults.kinds import KEYS, KINDS, FaultError, read_keys, resolve
from testbed.faults.targets import Target
from topologies import FabricError, load_fabric
from topologies.addressing import host_usid, usid

TINY, DEMO = load_fabric("tiny"), load_fabric("demo")


def port(number: int) -> str:
    return TINY.ports[number].name


def tiny(kind: str, on: str, run_seed: int = 0, **keys: Any) -> Target:
    return resolve(TINY, kind, on, keys, run_seed)


def test_cables_of_each_kind() -> None:
    assert tiny("link", "p0-t1-0:p0-t0-1").links == ("p0-t0-1:p0-t1-0",)
    assert tiny("port", "h3-p1").links == ("h3:p1-t0-1",)
    assert tiny("flap", "h3-p1", period="1s", duty=0.5).links == ("h3:p1-t0-1",)
    assert tiny("switch", "p1-t1-1").links == ("p1-t0-0:p1-t1-1", "p1-t0-1:p1-t1-1")
    assert tiny("silent", "p1-t1-1").switches == ("p1-t1-1",)
    plane = tiny("plane", "p1")
    assert set(plane.switches) == {"p1-t0-0", "p1-t0-1", "p1-t1-0", "p1-t1-1"}
    assert set(plane.links) == {link.name for link in TINY.links if link.plane == 1}


def test_a_transceiver_holds_neighbours() -> None:
    assert resolve(DEMO, "transceiver", "h2", {}, 0).links == ("h2:p0-t0-0", "h2:p1-t0-0")
    assert resolve(DEMO, "transceiver", "h2", {"links": 3}, 0).links == ("h2:p0-t0-0", "h2:p1-t0-0", "h2:p2-t0-0")
    named = resolve(DEMO, "transceiver", "p0-t1-2", {"links": ["p0-t1-2:p0-t0-1"]}, 0)
    assert named.links == ("p0-t0-1:p0-t1-2",)


def test_dead_paths_are_drawn_by_seed() -> None:
    drawn = [resolve(DEMO, "dead-paths", "fabric", {"share": 0.25}, seed).links for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    every = [link.name for link in DEMO.links if link.kind == "fabric"]
    assert [len(d) for d in drawn] == [round(len(every) / 4)] * 3 and set(drawn[0]) < set(every)
    assert resolve(DEMO, "dead-paths", "fabric", {"share": 0.25, "seed": 1}, 9).links == drawn[0]
    assert all(name.startswith("p2-") for name in resolve(DEMO, "dead-paths", "p2", {"share": 0.5}, 1).links)
    assert len(resolve(DEMO, "dead-paths", "p2", {"share": 0.001}, 1).links) == 1


@pytest.mark.parametrize(
    ("on", "direction", "kind", "ports"),
    [
        ("p0-t0-0:p0-t1-1", "up", "loss", ["p0-t1-1-d0"]),
        ("p0-t0-0:p0-t1-1", "down", "corrupt", ["p0-t0-0-u1"]),
        ("p0-t0-0:p0-t1-1", "both", "loss", ["p0-t1-1-d0", "p0-t0-0-u1"]),
        ("h1-p0", "up", "loss", ["p0-t0-0-d1"]),
        ("h1-p0", "up", "slow", ["h1-p0"]),
        ("h1:p0-t0-0", "down", "slow", ["p0-t0-0-d1"]),
    ],
)
def test_directions(on: str, direction: str, kind: str, ports: list[str]) -> None:
    """Losses are where frames come in, slowness where they go out."""
    keys: dict[str, Any] = {"rate": 0.5} if kind == "slow" else {"probability": 0.5}
    assert [port(n) for n in tiny(kind, on, direction=direction, **keys).ports] == ports


def test_loss_on_every_t0_t1_link_of_a_plane_or_of_the_fabric() -> None:
    one, every = tiny("loss", "p1", direction="up", probability=0.1), tiny("corrupt", "fabric", probability=0.1)
    assert one.links == tuple(link.name for link in TINY.links if link.kind == "fabric" and link.plane == 1)
    assert [port(n) for n in one.ports] == ["p1-t1-0-d0", "p1-t1-1-d0", "p1-t1-0-d1", "p1-t1-1-d1"]  # once a packet, on its way up
    assert len(every.links) == 8 and len(set(every.ports)) == 16 and every.on == "fabric"
    assert tiny("loss", "fabric", probability=0).keys["probability"] == 0
    with pytest.raises(FabricError, match=r"has planes p0\.\.p1"):
        tiny("loss", "p2", probability=0.1)


def test_a_path_is_matched_where_it_enters() -> None:
    ((number, sids),) = tiny("path-loss", "h1>h2@p1/1").paths
    assert port(number) == "p1-t0-0-d1"
    assert sids == (usid(1, 2, 1), usid(1, 1, 1), host_usid(TINY, 1, 2))
    ((number, sids),) = tiny("path-loss", "h1>h0@p0/0").paths
    assert (port(number), sids) == ("p0-t0-0-d1", (host_usid(TINY, 0, 0), 0, 0))


def test_a_destination_is_matched_in_every_form() -> None:
    down, last = host_usid(TINY, 0, 2), usid(0, 1, 1)
    assert {(port(n), sids) for n, sids in tiny("destination-loss", "p0-t1-1", to="h2").paths} == {
        ("p0-t1-1-d0", (last, down, 0)), ("p0-t1-1-d1", (last, down, 0)),
    }  # fmt: skip
    ups = [(usid(0, 2, j), last, down) for j in (0, 1)]
    assert {(port(n), sids) for n, sids in tiny("destination-loss", "p0-t0-0", to="h2").paths} == {
        (f"p0-t0-0-d{i}", sids) for i in (0, 1) for sids in ups
    }
    own = {(port(n), sids) for n, sids in tiny("destination-loss", "p0-t0-1", to="h2").paths}
    assert own == {(f"p0-t0-1-{p}", (down, 0, 0)) for p in ("d0", "d1", "u0", "u1")} | {(f"p0-t0-1-d{i}", s) for i in (0, 1) for s in ups}


def test_defaults_are_filled_and_the_runs_seed_stands_in() -> None:
    assert tiny("loss", "h0-p0", 5, probability="0.1").keys == {"probability": 0.1, "direction": "both", "seed": 5}
    assert tiny("path-loss", "h0>h2@p0/0", 5).keys == {"probability": 1.0, "seed": 5}
    assert tiny("straggler", "h0", share=0.3).keys == {"share": 0.3, "period": 20_000_000}
    assert tiny("link", "h0:p0-t0-0", 5).keys == {}


@pytest.mark.parametrize(
    ("kind", "on", "keys", "said"),
    [
        ("lose", "h0-p0", {}, "kind = 'lose': there are link, port, .*did you mean 'loss'"),
        ("loss", "h0-p0", {}, "probability is missing: kind 'loss' needs it"),
        ("loss", "h0-p0", {"probability": -0.1}, "probability = -0.1 must be from 0 to 1"),
        ("loss", "h0-p0", {"probability": True}, "probability = True must be"),
        ("loss", "h0-p0", {"probability": float("nan")}, "probability = nan must be"),
        ("loss", "h0-p0", {"probability": 0.1, "direction": "left"}, "direction = 'left' must be one of both, up, down"),
        ("loss", "h0-p0", {"probability": 0.1, "sed": 1}, "sed is not a key of kind 'loss': did you mean 'seed'"),
        ("loss", "h0-p0", {"probability": 0.1, "seed": -1}, "seed = -1 must be a whole number"),
        ("link", "h0:p0-t0-0", {"seed": 1}, "seed is not a key of kind 'link': it has none of its own"),
        ("slow", "h0-p0", {"rate": 1}, "rate = 1 must be above 0 and below 1"),
        ("flap", "h0-p0", {"period": "1s", "duty": 1}, "duty = 1 must be above 0 and below 1"),
        ("flap", "h0-p0", {"period": "1us", "duty": 0.5}, "period = '1us' is too short"),
        ("flap", "h0-p0", {"period": "soon", "duty": 0.5}, "period = 'soon' is not a time"),
        ("transceiver", "h0", {"period": "1s"}, "duty is missing: a cycle needs period and duty"),
        ("transceiver", "h0", {"links": 0}, "links = 0 must be a number of links from 1 on"),
        ("transceiver", "h0", {"links": ["h1:p0-t0-0"]}, "links = 'h1:p0-t0-0' is no link of h0: it has h0:p0-t0-0"),
        ("straggler", "h0", {"share": 1}, "share = 1 leaves the agent all"),
        ("dead-paths", "fabric", {"share": 1.5}, "share = 1.5 must be above 0 and up to 1"),
    ],
)
def test_a_bad_key_is_one_line(kind: str, on: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(FaultError, match=said) as caught:
        tiny(kind, on, **keys)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "on", "keys", "said"),
    [
        ("link", "h0:p9-t0-0", {}, "no link"),
        ("port", "p0-t0-0-u0", {}, "no NIC port 'p0-t0-0-u0'; near it: h"),
        ("switch", "p0-t3-0", {}, "no switch"),
        ("plane", "p2", {}, "planes p0..p1"),
        ("plane", "plane 1", {}, "no plane 'plane 1'"),
        ("transceiver", "h0", {"links": 3}, "h0 has 2 links, not 3"),
        ("transceiver", "h9", {}, "no host 'h9'"),
        ("dead-paths", "p7", {"share": 0.1}, "planes p0..p1"),
        ("path-loss", "h0:p0-t0-0", {}, "is not a path: write it as"),
        ("path-loss", "h0>h0@p0/0", {}, "from one host to another"),
        ("path-loss", "h0>h2@p0/7", {}, "uplinks 0..1"),
        ("destination-loss", "p0-t1-0", {"to": "h7"}, "no host 'h7'"),
        ("straggler", "h4", {"share": 0.5}, "no host 'h4'"),
        ("kill", "h4", {}, "no host 'h4'"),
    ],
)
def test_what_a_fabric_lacks_is_told(kind: str, on: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(FabricError, match=said) as caught:
        tiny(kind, on, **keys)
    assert "\n" not in str(caught.value)


def test_the_catalogue_is_whole() -> None:
    assert len(KINDS) == 15
    for name, kind in KINDS.items():
        assert kind.doc and [KEYS[key.name].doc for key in kind.keys] == [key.doc for key in kind.keys], name
    assert read_keys("transceiver", {"links": "h0:p0-t0-0,h0:p1-t0-0"})["links"] == ("h0:p0-t0-0", "h0:p1-t0-0")


def test_the_manual_has_every_kind_and_key() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "faults.md").read_text()
    for name, kind in KINDS.items():
        (line,) = [line for line in manual.splitlines() if line.startswith(f"| `{name}` |") and kind.doc in line]
        assert all(f"`{key.name}`" in line for key in kind.keys), name
    for name, key in KEYS.items():
        assert f"| `{name}` | {key.doc} |" in manual
