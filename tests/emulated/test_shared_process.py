"""Agents of several hosts in one process: each in its own namespace, with its own log and control
socket."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.process.control import AgentClient
from testbed.emulated.cluster import Cluster
from testbed.errors import ClusterDied
from tests.emulated.ring import Ring, logged, unexplained, wait_until
from topologies import load_fabric
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox

FABRIC = load_fabric("tiny").with_(nic_rate=2 * 10**11, fabric_rate=2 * 10**11)
CABLE = "p0-t0-0:p0-t1-0"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Four hosts in two processes."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    with Cluster(FABRIC, dilation=DILATION, controller=False) as cluster:
        cluster.start_agents("mrc", {}, tmp_path / "logs", seed=2, alone=False)
        yield cluster


def test_two_processes_carry_four_hosts_through_a_failure(shared: Cluster, tmp_path: Path) -> None:
    said = [agent.call("hello") for agent in shared.agents]
    assert [one["host"] for one in said] == ["h0", "h1", "h2", "h3"]
    assert (
        len({(one["pid"], one["uid"]) for one in said}) == len({one["uid"] for one in said}) == 2
    ), "a user for each process"
    pids = [one["pid"] for one in said]
    assert pids[0] == pids[1] != pids[2] == pids[3]
    assert {name for name in shared.processes() if name.startswith("h")} == {"h0", "h2"}
    before = shared.counters()
    ring = Ring(shared)
    acts = [
        (0.3, lambda: shared.set_link(CABLE, False)),
        (0.8, lambda: shared.set_link("h1:p1-t0-0", False)),
    ]
    assert ring.run(40, [*acts, (1.2, shared.heal)]) and ring.all_right()
    assert unexplained(shared, before) == 0
    shared.stop_agents()
    logs = tmp_path / "logs"
    assert [
        line["host"] for line in sorted(logged(logs, "loop"), key=lambda line: line["host"])
    ] == [0, 1, 2, 3]
    assert {line["host"] for line in logged(logs, "port")} == {1}, (
        "only the host whose port went heard of it"
    )
    assert all(line["wakeups"] > 100 for line in logged(logs, "loop"))


def test_clients_come_and_go_while_others_stay(shared: Cluster) -> None:
    directory = shared._agents_dir
    for turn in range(20):  # descriptors are used again
        clients = [AgentClient(directory / f"h{host}.sock", timeout=10.0) for host in (0, 1, 3)]
        assert [client.call("hello")["host"] for client in clients] == ["h0", "h1", "h3"], turn
        for client in clients[: turn % 4]:
            client.close()
        assert [agent.call("hello")["host"] for agent in shared.agents] == ["h0", "h1", "h2", "h3"]
        for client in clients[turn % 4 :]:
            client.close()


def test_a_process_that_dies_is_named_by_its_first_host(shared: Cluster) -> None:
    os.kill(shared.agents[3].call("hello")["pid"], signal.SIGKILL)
    with pytest.raises(
        ClusterDied,
        match=r"the agent of h2 and its neighbours, of one process \(process \d+\) was killed by "
        r"SIGKILL",
    ):
        wait_until(shared.check)


def test_agents_that_were_told_to_stop_are_no_loss(shared: Cluster) -> None:
    for agent in shared.agents[:2]:
        agent.call("stop")
    assert wait_until(lambda: shared._agents[0].poll() == 0)
    shared.check()
    assert shared.agents[2].call("hello")["host"] == "h2"


def test_each_agent_has_a_process_where_it_must(tmp_path: Path) -> None:
    with Cluster(FABRIC, dilation=DILATION, controller=False) as cluster:
        cluster.start_agents("mrc", {}, tmp_path, seed=2)
        assert len({agent.call("hello")["pid"] for agent in cluster.agents}) == 4
        config = json.loads((cluster._agents_dir / "agents.json").read_text())
        assert [place["netns"] for place in config["processes"][1]["hosts"]] == [
            cluster.net.path_of("h1")
        ]
