"""Clustermapper in a run: reports in, journal and denylist out; and its figures beside what was
broken."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from agents.clock import WallClock
from agents.clustermapper.options import Options
from agents.process.control import AgentError
from scenarios.figures.mapper import figures
from scenarios.figures.measure import Run
from scenarios.figures.outages import Failures
from scenarios.run.mapping import Mapping
from scenarios.schema.scenario import ScenarioError, load_scenario
from tests.agents.clustermapper.model import Model
from topologies import FabricError, load_fabric
from topologies.units import NS

DEMO = load_fabric("demo")
RTT = DEMO.base_rtt_ps
NIC = "h3:p1-t0-0"


class Cluster:
    def __init__(self) -> None:
        self.fabric = DEMO
        self.clock = WallClock()
        self.agents = [self] * DEMO.host_count
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.entries: set[str] = set()
        self.refuse = False
        self.gone = False

    def call(self, op: str, **args: Any) -> None:
        if self.gone:
            raise AgentError("gone")
        self.called.append((op, args))

    def deny(self, entry: str, reason: str = "", by: str = "operator") -> bool:
        assert by == "clustermapper" and reason.startswith("clustermapper")
        if self.refuse:
            raise FabricError("the denylist is full")
        self.entries.add(entry)
        return True

    def allow(self, entry: str, by: str | None = None) -> bool:
        assert by == "clustermapper"
        self.entries.discard(entry)
        return True


class World:
    """A mapping fed by the model of a fabric."""

    def __init__(self, options: Options | None = None, cluster: Cluster | None = None) -> None:
        self.cluster = cluster or Cluster()
        self.lines: list[dict[str, Any]] = []
        self.mapping = Mapping(self.cluster, options or Options(hold=20), 1, self.journal)
        self.model = Model(DEMO, Options(), 1)
        self.now = 0

    def journal(self, t: int, kind: str, **fields: Any) -> None:
        self.lines.append({"t": t, "kind": kind, "host": -1, **fields})

    def play(self, buckets: int) -> None:
        for _ in range(buckets):
            self.model.step()
            self.now += 4 * RTT
            for h in self.model.hosts:
                told = {"host": h, "bucket": self.model.bucket, "carrier": self.model.carrier[h]}
                self.mapping.hear(
                    {
                        **told,
                        "sent": self.model.sent[h].tolist(),
                        "lost": self.model.lost[h].tolist(),
                    }
                )
            self.mapping.tick(self.now)

    def said(self) -> list[tuple[Any, ...]]:
        return [
            (line["kind"], line["on"], line.get("state")) for line in self.lines if "on" in line
        ]


def test_a_lossy_nic_link_is_denied_and_allowed_once_it_is_clear_long_enough() -> None:
    world = World()
    world.mapping.start()
    assert [op for op, _ in world.cluster.called] == ["mapper_start"] * DEMO.host_count
    assert world.cluster.called[0][1] == {"options": Options(hold=20).to_dict(), "seed": 1}
    world.play(20)
    assert world.said() == []
    world.model.rate[NIC] = (0.3, 0.0)
    world.play(30)
    assert world.said() == [
        ("mapper", NIC, "lossy"),
        ("deny", NIC, None),
    ] and world.cluster.entries == {NIC}
    world.model.rate.clear()
    world.play(120)
    assert (
        world.said()[2:] == [("mapper", NIC, "clear"), ("allow", NIC, None)]
        and world.cluster.entries == set()
    )
    lossy = next(line for line in world.lines if line.get("state") == "lossy")
    assert lossy["links"] == [NIC] and 0 < lossy["lost"] <= lossy["sent"] and lossy["carrier"]


def test_a_dead_t1_is_told_link_by_link_then_as_a_switch_and_denied_by_nobody() -> None:
    world = World()
    world.play(10)
    for link in DEMO.links:
        if link.b.node == "p2-t1-1":
            world.model.rate[link.name] = (1.0, 1.0)
    world.play(20)
    assert world.said()[-1] == ("mapper", "p2-t1-1", "dead")
    assert {state for _, _, state in world.said()} <= {"lossy", "dead"}, (
        "its links do not become clear by being the switch's"
    )
    assert world.cluster.entries == set()
    world.model.rate.clear()
    world.play(80)
    assert world.mapping.findings == {} == world.mapping.fading
    after = [said for said in world.said() if said[2] == "clear"]
    assert (
        sorted(on for _, on, _ in after) == ["p2-t0-0:p2-t1-1", "p2-t0-1:p2-t1-1", "p2-t1-1"]
        and world.said()[-1][2] == "clear"
    )
    assert all(
        line["lost"] == 0 < line["sent"] for line in world.lines if line.get("state") == "clear"
    )


def test_entries_do_not_outlive_the_run_and_dead_agents_do_not_matter() -> None:
    world = World()
    world.model.rate[NIC] = (0.3, 0.0)
    world.play(40)
    assert world.cluster.entries == {NIC}
    world.cluster.gone = True
    world.mapping.stop()
    assert world.cluster.entries == set()
    world.mapping.stop()
    assert [line["kind"] for line in world.lines].count("allow") == 1


def test_a_denylist_that_refuses_ends_no_run() -> None:
    cluster = Cluster()
    cluster.refuse = True
    world = World(cluster=cluster)
    world.model.rate[NIC] = (0.3, 0.0)
    world.play(40)
    (line,) = [line for line in world.lines if line["kind"] == "deny"]
    assert "full" in line["refused"]


def test_without_clustermapper_nothing_happens() -> None:
    cluster = Cluster()
    lines: list[Any] = []
    mapping = Mapping(cluster, None, 1, lambda *a, **k: lines.append(a))
    mapping.start()
    mapping.hear({"host": 0})
    mapping.tick(5)
    mapping.stop()
    assert cluster.called == [] and lines == []


# --- scenario files -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["true", '{interval = 4.0, policy = "report", threshold = 0.02, share = 0.5, hold = 50}'],
)
def test_a_transport_may_be_mapped(value: str) -> None:
    scenario = load_scenario(
        "smoke", transports=["mrc"], overrides=[f"transport.mrc.clustermapper={value}"]
    )
    (transport,) = scenario.transports
    assert isinstance(transport.clustermapper, Options)
    json.dumps(scenario.to_dict())
    (plain,) = load_scenario(
        "smoke", transports=["mrc"], overrides=["transport.mrc.clustermapper=false"]
    ).transports
    assert plain.clustermapper is None


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "transport.mrc.clustermapper={intervall = 2}",
            "clustermapper.intervall is not a key: did you mean 'interval'",
        ),
        ("transport.mrc.clustermapper=3", "true or false, or a table"),
        ('transport.mrc.clustermapper={policy = "x"}', "nic-links, report, all"),
        ("transport.mrc.clustermapper={threshold = 0.9}", "0.001..0.5"),
        ("transport.roce.clustermapper=true", "no denylist"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(override: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as told:
        load_scenario("link-failure", overrides=[override])
    assert "\n" not in str(told.value)


# --- figures --------------------------------------------------------------------------------------


def run_of(
    directory: Path, lines: list[dict[str, Any]], mapper: Any = MappingProxyType({"hold": 20})
) -> Run:
    told = {
        "kind": "mrc",
        "transport": "mrc",
        "placement": "packed",
        "seed": 1,
        "workload": "flows",
        "ranks": [0, 1],
        "warmup_steps": 0,
    }
    told |= {"window": [0, 1], "clustermapper": mapper and dict(mapper), "fabric": DEMO.to_dict()}
    (directory / "run.json").write_text(json.dumps(told))
    (directory / "runner.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    # what an agent thinks by itself is no finding of the run's
    (directory / "h0.jsonl").write_text(
        json.dumps({"t": 5, "kind": "mapper", "host": 0, "link": NIC, "state": "lossy"}) + "\n"
    )
    return Run(directory)


def line(t: int, kind: str, on: str, **more: Any) -> dict[str, Any]:
    return {"t": t * RTT, "kind": kind, "on": on, **more}


def test_figures_compare_what_was_named_with_what_was_broken(tmp_path: Path) -> None:
    def fault(t: int, phase: str) -> dict[str, Any]:
        return line(t, "fault", NIC, name="lossy", fault="loss", phase=phase, links=[NIC], keys={})

    lines = [
        {"t": 0, "kind": "mapper", "phase": "start", "options": {}},
        fault(100, "begin"),
        line(130, "mapper", NIC, state="lossy", links=[NIC]),
        line(131, "deny", NIC),
        line(140, "mapper", "p0-t0-0:p0-t1-0", state="lossy", links=["p0-t0-0:p0-t1-0"]),
        fault(200, "heal"),
        line(240, "mapper", NIC, state="dead", links=[NIC]),  # what was in the queue
        line(300, "mapper", NIC, state="clear", links=[NIC]),
        line(400, "allow", NIC),
        line(500, "mapper", NIC, state="lossy", links=[NIC]),  # long after
    ]
    made = figures(Failures(run_of(tmp_path, lines)))
    assert made is not None
    assert (made.right, made.wrong, made.denials, made.kept) == (2, 2, 1, 0)
    (told,) = made.faults
    assert told.named and told.states == ["lossy", "dead"]
    assert [getattr(told, k) for k in ("named_ns", "denied_ns", "clear_ns", "allowed_ns")] == [
        n * RTT / NS for n in (30, 31, 200, 300)
    ]


def test_a_fault_that_was_not_seen_is_not_named_and_no_mapper_has_no_figures(
    tmp_path: Path,
) -> None:
    lines = [line(1, "fault", NIC, name="x", fault="loss", phase="begin", links=[NIC], keys={})]
    made = figures(Failures(run_of(tmp_path, lines)))
    assert made is not None and made.right == made.wrong == 0
    assert made.faults[0].named is False and made.faults[0].named_ns is None
    assert figures(Failures(run_of(tmp_path, lines, None))) is None
