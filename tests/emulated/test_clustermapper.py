"""Probers on real namespaces: every probe comes back, broken cables are named, under load too, and the books still balance."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.clustermapper.localise import Localiser
from agents.clustermapper.options import Options
from testbed.cluster import Cluster
from tests.emulated.ring import Ring, logged, unexplained, wait_until
from topologies import load_fabric

pytestmark = pytest.mark.sandbox

FABRIC = load_fabric("tiny")


class Watch:
    """What the runner does with reports, without a runner."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.localiser = Localiser(FABRIC, Options(), range(FABRIC.host_count))

    def look(self, note: dict[str, Any]) -> None:
        self.localiser.add(note["host"], note["bucket"], note["sent"], note["lost"], note["carrier"])
        self.localiser.judge(time.monotonic_ns())

    def names(self) -> set[str]:
        for agent in self.cluster.agents:
            for note in agent.notifications():
                if note["event"] == "mapper":
                    self.look(note)
        return {f.name for f in self.localiser.findings()}

    def until(self, wanted: set[str], seconds: float) -> bool:
        return wait_until(lambda: self.names() == wanted, seconds)


@pytest.fixture(scope="module")
def agents(tiny: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Watch, Path]]:
    logs = tmp_path_factory.mktemp("logs")
    logs.chmod(0o777)
    tiny.start_agents("mrc", {}, logs, seed=3)
    for agent in tiny.agents:
        agent.call("mapper_start", seed=3)
    yield tiny, Watch(tiny), logs
    tiny.stop_agents()


def mapped(cluster: Cluster) -> list[dict[str, int]]:
    return [agent.call("counters") for agent in cluster.agents]


def test_every_probe_comes_back_and_costs_little(agents: tuple[Cluster, Watch, Path]) -> None:
    cluster, watch, _ = agents
    time.sleep(2)
    before, begun = mapped(cluster), time.monotonic()
    cpu = [agent.call("hello")["pid"] for agent in cluster.agents]
    used = [sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) for pid in cpu]
    time.sleep(4)
    spent = [sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) for pid in cpu]
    after, span = mapped(cluster), time.monotonic() - begun
    print("CPU per agent, %:", [round((b - a) / span, 2) for a, b in zip(used, spent, strict=True)])
    expected = span / (2 * FABRIC.base_rtt_ns / 1e9) * 2 * FABRIC.planes
    for a, b in zip(before, after, strict=True):
        sent = b["mapper_tx"] - a["mapper_tx"]
        assert 0.9 * expected <= sent <= 1.1 * expected
        assert abs(sent - (b["mapper_rx"] - a["mapper_rx"])) <= 2 * FABRIC.planes
        assert b["mapper_lost"] == b["mapper_foreign"] == b["mapper_corrupt"] == b["rx_foreign"] == 0
    assert watch.names() == set()
