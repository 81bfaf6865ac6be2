"""Flows between real agents: told by notifications and written down line by line, on MRC and on
RoCE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.collectives.steer import connect, wait_for_all
from agents.process.control import AgentError
from testbed.emulated.cluster import Cluster
from tests.emulated.ring import PATIENCE_S, logged
from topologies import load_fabric
from topologies.units import US

pytestmark = pytest.mark.sandbox

FABRIC = load_fabric("tiny")
HOSTS = [2, 0, 3, 1]  # by rank
BYTES = 24_000
FLOWS: list[dict[str, Any]] = [
    {"name": "counted", "src": 1, "dst": 0, "messages": 20},
    {"name": "timed", "src": 3, "dst": 0, "start_ps": 30 * US, "for_ps": 100 * US},
    {"name": "back", "src": 0, "dst": 1, "start_ps": 10 * US, "messages": 9},
]


@pytest.mark.parametrize(("kind", "qps"), [("mrc", 1), ("mrc", 2), ("roce", 1)])
@pytest.mark.quiet
def test_flows_are_told_and_written_down(
    tiny: Cluster, tmp_path: Path, kind: str, qps: int
) -> None:
    notes: list[dict[str, Any]] = []
    tiny.start_agents(kind, {}, tmp_path, 1)
    try:
        agents = [tiny.agents[h] for h in HOSTS]
        connect(agents, HOSTS, "flows", qps, 4, FLOWS)
        t0 = tiny.clock.now() + 50 * US  # enough to tell all of them before
        for agent in agents:
            agent.call(
                "start", collective="flows", message_bytes=BYTES, seed=3, outstanding=3, at=t0
            )
        assert wait_for_all(
            agents,
            lambda rank, note: notes.append(note),
            tiny.check,
            tiny.clock.patience(2 * PATIENCE_S),
            tiny.clock,
        )
        with pytest.raises(AgentError, match="set up again"):
            agents[0].call(
                "start",
                collective="flows",
                message_bytes=BYTES,
                flows=[{"name": "else", "src": 0, "dst": 2, "messages": 1}],
            )
    finally:
        tiny.stop_agents()
    assert sorted(n["rank"] for n in notes if n["event"] == "done") == [0, 1, 2, 3]
    assert all(n["wrong"] == 0 for n in notes)
    ends = {n["flow"]: n for n in notes if n["event"] == "flow"}
    assert sorted(ends) == [0, 1, 2]
    assert (ends[0]["rank"], ends[0]["messages"], ends[0]["bytes"]) == (1, 20, 20 * BYTES)
    assert (ends[2]["rank"], ends[2]["messages"]) == (0, 9)
    timed = ends[1]
    assert t0 + 30 * US <= timed["start_ps"] and timed["end_ps"] > t0 + 130 * US
    messages = logged(tmp_path, "message")
    for i, end in ends.items():
        mine = sorted((m for m in messages if m["flow"] == i), key=lambda m: int(m["number"]))
        assert [m["number"] for m in mine] == list(range(end["messages"]))
        assert {m["host"] for m in mine} == {HOSTS[FLOWS[i]["src"]]}
        assert all(
            m["bytes"] == BYTES and end["start_ps"] <= m["start_ps"] < m["end_ps"] <= end["end_ps"]
            for m in mine
        )
    assert max(m["start_ps"] for m in messages if m["flow"] == 1) < t0 + 130 * US
    bins = logged(tmp_path, "flow")
    for i, end in ends.items():
        assert sum(b["rx"] for b in bins if b["flow"] == i) == end["bytes"]
        assert {b["host"] for b in bins if b["flow"] == i} == {HOSTS[FLOWS[i]["dst"]]}
    assert all(b["t"] % b["bin_ps"] == 0 for b in bins), "aligned to the clock that all share"
    sent = logged(tmp_path, "evs")
    assert {(s["host"], s["peer"]) for s in sent} == {(0, 2), (1, 2), (2, 0)}
    packets = sum(count for s in sent if s["host"] == 0 for count in s["tx"].values())
    assert packets >= 20 * -(-BYTES // FABRIC.mtu)
    assert len({ev for s in sent if s["host"] == 0 for ev in s["tx"]}) == (
        4 if kind == "mrc" else 1
    )
    windows = logged(tmp_path, "cwnd")
    assert {(w["host"], w["flow"]) for w in windows} == {(0, 0), (1, 1), (2, 2)}
    assert all(w["cwnd"] > 0 and w["in_flight"] >= 0 for w in windows) and any(
        w["srtt_ps"] > 0 for w in windows
    )
    assert max(w["t"] for w in windows if w["flow"] == 1) <= timed["end_ps"] + 2 * bins[0]["bin_ps"]


def test_collectives_and_flows_take_turns_on_the_same_agents(tiny: Cluster, tmp_path: Path) -> None:
    """What stands is used again, a set-up that was abandoned is not, and after an abort all begins
    anew."""
    tiny.start_agents("mrc", {}, tmp_path, 1)
    try:
        agents = [tiny.agents[h] for h in range(4)]
        hosts = list(range(4))

        def run(what: str) -> None:
            connect(agents, hosts, what, 1, 2, FLOWS[2:] if what == "flows" else None)
            for agent in agents:
                agent.call(
                    "start",
                    collective=what,
                    message_bytes=8192,
                    dtype="int32",
                    steps=2,
                    warmup=0,
                    seed=3,
                )
            notes: list[dict[str, Any]] = []
            assert wait_for_all(
                agents,
                lambda rank, note: notes.append(note),
                tiny.check,
                tiny.clock.patience(2 * PATIENCE_S),
                tiny.clock,
            ), notes
            assert all(note.get("wrong", 0) == 0 and note.get("ok", True) for note in notes)

        def queue_pairs() -> int:
            return len({row["qpn"] for row in agents[0].call("paths")})

        for what in ("ring-allreduce", "tree-allreduce", "all-to-all", "flows"):
            run(what)
        made = queue_pairs()
        for what in (
            "all-gather",
            "flows",
            "send-recv",
            "tree-allreduce",
            "reduce-scatter",
            "all-to-all",
        ):
            run(what)
        assert queue_pairs() == made, "those of ring, tree, mesh and flows stood"
        agents[1].call("abort")
        run("all-to-all")
        agents[2].call("setup", collective="all-to-all", ranks=[2, 3], rank=0)
        run("ring-allreduce")
        with pytest.raises(AgentError, match="no collective 'gossip'"):
            run("gossip")
        with pytest.raises(AgentError, match="flows: there are none"):
            agents[0].call("setup", collective="flows", ranks=hosts, rank=0)
    finally:
        tiny.stop_agents()
