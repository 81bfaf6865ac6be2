"""Faults of every kind on a living cluster: what they do, when, how they overlap, and that nothing
of them stays."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scenarios.run.runner import Runner
from scenarios.schema.scenario import load_scenario
from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from testbed.faults.kinds import KINDS
from testbed.faults.plan import EVERY_KIND
from tests.emulated.fault_state import agent_state, classes, state
from tests.emulated.frames import at_rest
from tests.emulated.ring import wait_until
from tests.scenarios.small import undrawn
from topologies import FabricError, load_fabric
from topologies.fabrics import DILATION
from topologies.units import NS, US

pytestmark = pytest.mark.sandbox
CABLE = "p0-t0-0:p0-t1-0"
EVERY: list[tuple[str, str, dict[str, Any]]] = [
    ("link", CABLE, {}),
    ("port", "h0-p1", {}),
    ("flap", "h1-p0", {"period": "4us", "duty": 0.5}),
    ("transceiver", "p0-t0-0", {"links": 3}),
    ("transceiver", "h0", {"links": 2, "period": "3us", "duty": 0.4}),
    ("switch", "p1-t1-0", {}),
    ("silent", "p0-t1-1", {"reboot": "10s"}),
    ("plane", "p1", {}),
    ("loss", CABLE, {"probability": 0.5}),
    ("corrupt", "h0-p0", {"probability": 0.5, "direction": "down"}),
    ("path-loss", "h0>h2@p0/1", {}),
    ("destination-loss", "p0-t0-1", {"to": "h2"}),
    ("slow", "h0-p0", {"rate": 0.25}),
    ("dead-paths", "fabric", {"share": 0.3, "seed": 5}),
    ("straggler", "h2", {"share": 0.25, "period": "4us"}),
]
LISTED = {kind for kind, _, _ in EVERY}
EVERY += [
    (name, *KINDS[name].draw(load_fabric("tiny"), random.Random(1)))
    for name in EVERY_KIND
    if name not in LISTED
]


@pytest.fixture(scope="module")
def roce(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """`tiny` with agents: a straggler needs one."""
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        cluster.start_agents("roce", {}, tmp_path_factory.mktemp("logs"), seed=3)
        yield cluster


@pytest.fixture
def bare(roce: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The same without agents, for a run's own."""
    roce.stop_agents()
    yield roce
    roce.start_agents("roce", {}, tmp_path_factory.mktemp("logs"), seed=3)


def changes(cluster: Cluster, whole: dict[str, Any]) -> bool:
    """Whether the fabric is other than it was at some moment from now on."""
    return wait_until(lambda: state(cluster) != whole)


@pytest.mark.parametrize(
    ("kind", "on", "keys"), EVERY, ids=[f"{k}-{i}" for i, (k, _, _) in enumerate(EVERY)]
)
def test_each_kind_is_there_and_then_as_if_it_had_never_been(
    roce: Cluster, kind: str, on: str, keys: dict[str, Any]
) -> None:
    whole = state(roce)
    assert (
        all(whole["links"].values())
        and not any(whole["switches"])
        and not whole["ports"]
        and not whole["paths"]
    )
    for undo in ("clear", "heal"):
        fault = roce.inject(kind, on, **keys)
        assert [made.number for made in roce.faults()] == [fault.number]
        assert changes(roce, whole)
        if undo == "clear" and "reboot" not in keys:
            roce.clear(fault.number)
        else:
            roce.heal()
        assert roce.faults() == []
        assert state(roce) == whole
    assert at_rest(roce)


def test_all_at_once_and_healed_at_once(roce: Cluster) -> None:
    whole = state(roce)
    for kind, on, keys in EVERY:
        roce.inject(kind, on, **keys)
    roce.set_link("h3:p0-t0-1", False)
    assert changes(roce, whole)
    roce.heal()
    assert state(roce) == whole
    phases = [event.phase for event in roce.fault_events()]
    assert phases.count("begin") >= len(EVERY) and phases[-1] == "heal"


def test_a_bad_fault_changes_nothing(roce: Cluster) -> None:
    whole = state(roce)
    roce.fault_events()
    for kind, on, keys, error in [
        ("link", "h0:p7-t0-0", {}, FabricError),
        ("loss", CABLE, {}, UserError),
        ("loss", CABLE, {"probability": 1, "to": "h1"}, UserError),
        ("kill", "controller", {}, UserError),
    ]:
        with pytest.raises(error) as caught:
            roce.inject(kind, on, **keys)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="there is no fault number 999"):
        roce.clear(999)
    assert roce.faults() == [] and roce.fault_events() == [] and state(roce) == whole


def test_a_thing_comes_back_when_its_last_fault_is_over(roce: Cluster) -> None:
    cable, switch = roce.inject("link", CABLE), roce.inject("switch", "p0-t1-0")
    plane = roce.inject("plane", "p0")
    roce.clear(switch.number)
    roce.clear(cable.number)
    assert not roce.link_states()[CABLE]
    roce.set_link(CABLE, False)
    roce.clear(plane.number)
    assert [name for name, up in roce.link_states().items() if not up] == [CABLE]
    again = roce.inject("link", CABLE)
    roce.set_link(CABLE, True)
    assert not roce.link_states()[CABLE], "a fault still has it"
    roce.clear(again.number)
    assert all(roce.link_states().values())


@pytest.mark.quiet
def test_a_flap_keeps_its_period_and_its_duty(roce: Cluster) -> None:
    roce.fault_events()
    fault = roce.inject("flap", CABLE, period="20us", duty=0.25)
    events: list[Any] = []
    assert wait_until(
        lambda: events.extend(roce.fault_events()) or [e.phase for e in events].count("down") > 5
    )
    roce.clear(fault.number)
    events += roce.fault_events()
    assert [e.phase for e in events[:4]] == ["begin", "down", "up", "down"] and events[
        -1
    ].phase == "heal"
    assert all(e.links == (CABLE,) for e in events[:-1])
    changed = [e for e in events if e.phase in ("down", "up")]
    late = [
        e.t - changed[0].t - 20 * US * (i // 2) - 5 * US * (i % 2) for i, e in enumerate(changed)
    ]
    assert min(late[-5:]) - min(late) < 2500 * NS, f"late ones shift those after them: {late}"


@pytest.mark.quiet
def test_a_silent_switch_reboots_when_its_silence_ends(roce: Cluster) -> None:
    roce.fault_events()
    fault = roce.inject("silent", "p0-t1-1", reboot="8us")
    assert all(roce.link_states().values())
    told = roce.clear(fault.number)
    down = [name for name, up in roce.link_states().items() if not up]
    assert down == list(fault.target.links)
    assert wait_until(lambda: not roce.faults())
    assert all(roce.link_states().values())
    begin, reboot, heal = roce.fault_events()
    assert (begin.phase, reboot.phase, heal.phase) == ("begin", "reboot", "heal")
    assert reboot.t == told and heal.t - reboot.t >= 8 * US
    assert not any(roce.net.counters._switch_down)


@pytest.mark.quiet
def test_a_straggler_is_stopped_for_its_part_of_the_time(roce: Cluster) -> None:
    fault = roce.inject("straggler", "h2", share=0.25, period="20us")
    seen = []
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        seen.append(agent_state(roce, 2) == "T")
        time.sleep(0.0013)
    others = {agent_state(roce, h) for h in (0, 1, 3)}
    roce.clear(fault.number)
    assert sum(seen) / len(seen) == pytest.approx(0.75, abs=0.1)
    assert others <= {"S", "R"}
    assert agent_state(roce, 2) != "T"
    assert roce.agents[2].call("counters"), "it answers as before"


@pytest.mark.parametrize("ends", ["well", "bug", "interrupt"])
def test_a_run_heals_whatever_becomes_of_it(
    bare: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: str
) -> None:
    """The cluster is kept, to look at; a run on it has four faults when it ends, or is ended."""
    tmp_path.chmod(0o755)
    entries = [
        f'kind = "loss", on = "{CABLE}", at = "1us", probability = 0.05',
        'kind = "slow", on = "h0-p0", before = true, rate = 0.5',
        'kind = "straggler", on = "h1", at = "2us", share = 0.5',
        'kind = "flap", on = "h2-p0", at = "2us", period = "100us", duty = 0.1',
    ]
    faults = f"[{', '.join(f'{{{entry}}}' for entry in entries)}]"
    scenario = load_scenario(
        "smoke",
        fabric="tiny",
        transports=["mrc"],
        overrides=[
            "workload.steps=2",
            "workload.warmup_steps=0",
            "workload.message_bytes=24KiB",
            f"fault={faults}",
            "expect=[]",
        ],
    )
    assert scenario.transports[0].fabric == bare.fabric
    whole = state_without_agents(bare)
    there: list[int] = []
    check = bare.check

    def look() -> None:
        check()
        there.append(len(bare.faults()))
        if there[-1] == 4 and ends != "well":
            raise RuntimeError("a bug") if ends == "bug" else KeyboardInterrupt

    (tmp_path / "out").mkdir()
    with monkeypatch.context() as kept, undrawn():
        for name, instead in (("check", look), ("start", lambda: None), ("stop", lambda: None)):
            kept.setattr(bare, name, instead)
        with (
            pytest.raises(RuntimeError, match="a bug")
            if ends == "bug"
            else contextlib.nullcontext()
        ):
            Runner(scenario, tmp_path / "out", lambda fabric: bare).run()
    assert max(there) == 4
    assert bare.faults() == [] and state_without_agents(bare) == whole
    bare.stop_agents()
    assert at_rest(bare)
    (journal,) = (tmp_path / "out").glob("raw/*/runner.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    ended = {line["name"] for line in lines if line["kind"] == "fault" and line["phase"] == "end"}
    assert len(ended) == 4


def state_without_agents(cluster: Cluster) -> dict[str, Any]:
    packets, counters = cluster.injections.packets, cluster.net.counters
    return {
        "links": cluster.link_states(),
        "switches": counters._switch_down.tolist(),
        "gates": counters._gate.tolist(),
        "ports": [w for w in packets._words if w],
        "paths": list(packets._paths.items()),
        "classes": classes(cluster),
    }
