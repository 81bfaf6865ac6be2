"""Faults of processes, and processes that end while a fault has them. Each test has a cluster of
its own, which is not whole afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.emulated.cluster import Cluster
from testbed.errors import ClusterDied, UserError
from tests.emulated.fault_state import agent_state
from tests.emulated.ring import wait_until
from topologies import load_fabric
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox


@pytest.mark.quiet
def test_a_stopped_agent_can_end(tmp_path: Path) -> None:
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        cluster.start_agents("roce", {}, tmp_path, seed=3)
        pids = [process.pid for process in cluster._agents]
        cluster.inject("straggler", "h1", share=0.01, period="100us")
        assert wait_until(lambda: agent_state(cluster, 1) == "T")
        cluster.stop()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert '"counters"' in (tmp_path / "h1.jsonl").read_text(), (
        "it had time to write down what it counted"
    )


@pytest.mark.usefixtures("unhurried")
def test_killed_processes(tmp_path: Path) -> None:
    with Cluster(load_fabric("tiny"), dilation=DILATION) as cluster:
        cluster.start_agents("roce", {}, tmp_path, seed=3)
        cluster.inject("kill", "controller")
        assert wait_until(lambda: cluster.controller_lost)
        cluster.check()
        with pytest.raises(UserError, match="there is no controller running"):
            cluster.inject("kill", "controller")
        fault = cluster.inject("kill", "h3")
        with pytest.raises(ClusterDied, match=r"the agent of h3 .* was killed by SIGKILL"):
            assert wait_until(lambda: bool(cluster.check()))
        (event,) = [e for e in cluster.fault_events() if e.number == fault.number]
        assert event.phase == "begin" and cluster.faults() == []
