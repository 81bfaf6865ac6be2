"""Probers on real namespaces: every probe comes back, broken cables are named, under load too, and
the books still balance."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.clock import WallClock
from agents.clustermapper import probes
from agents.clustermapper.localise import DEAD, LOSSY, Localiser
from agents.clustermapper.options import Options
from testbed.emulated.cluster import Cluster
from tests.emulated.frames import INTO_THE_SOCKET_S, OTHERHOST, Wire
from tests.emulated.ring import Ring, logged, unexplained, wait_until
from tests.fabrics import near
from topologies import load_fabric
from topologies.fabrics import DILATION

pytestmark = [pytest.mark.sandbox, pytest.mark.quiet]

FABRIC = near(load_fabric("tiny"))
RTT_S = WallClock(DILATION).wall_s(FABRIC.base_rtt_ps)


class Watch:
    """What a run does with reports, without a run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.localiser = Localiser(FABRIC, Options(), range(FABRIC.host_count))
        self.ever: set[tuple[str, str]] = set()
        self.logs = LOGS[-1]

    def hear(self, note: dict[str, Any]) -> None:
        self.localiser.add(
            note["host"], note["bucket"], note["sent"], note["lost"], note["carrier"]
        )
        self.ever |= {(v.link, v.state) for v in self.localiser.judge(self.cluster.clock.now())}

    def found(self) -> dict[str, str]:
        for agent in self.cluster.agents:
            for note in agent.notifications():
                if note["event"] == "mapper":
                    self.hear(note)
        return {f.name: f.state for f in self.localiser.findings()}

    def sees(self, wanted: dict[str, str]) -> bool:
        return wait_until(lambda: self.found() == wanted)


class MappedRing(Ring):
    """A ring whose agents report probes as well."""

    watch: Watch

    def hear(self, rank: int, note: dict[str, Any]) -> None:
        if note["event"] == "mapper":
            self.watch.hear(note)
        else:
            super().hear(rank, note)


BEFORE: list[list[dict[str, Any]]] = []
LOGS: list[Path] = []


@pytest.fixture(scope="module")
def tiny() -> Iterator[Cluster]:
    """With short cables: what is bounded in base RTTs takes less time."""
    with Cluster(FABRIC, dilation=DILATION, controller=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def agents(tiny: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    logs = tmp_path_factory.mktemp("logs")
    logs.chmod(0o777)
    BEFORE.append(tiny.counters())
    tiny.start_agents("mrc", {}, logs, seed=3)
    LOGS.append(logs)
    yield tiny
    tiny.stop_agents()


@pytest.fixture
def watch(agents: Cluster) -> Iterator[Watch]:
    """Mappers that know nothing of the test before."""
    for agent in agents.agents:
        agent.call("mapper_stop")
        agent.notifications()
    for agent in agents.agents:
        agent.call("mapper_start", seed=3)
    yield Watch(agents)


def counted(cluster: Cluster) -> list[dict[str, int]]:
    return [agent.call("counters") for agent in cluster.agents]


def test_every_probe_comes_back(watch: Watch) -> None:
    cluster = watch.cluster
    before, begun = counted(cluster), time.monotonic()
    enough = 40 * 2 * FABRIC.planes  # two probes a plane and interval
    assert wait_until(
        lambda: (
            min(
                b["mapper_tx"] - a["mapper_tx"]
                for a, b in zip(before, counted(cluster), strict=True)
            )
            >= enough
        )
    )
    most = (time.monotonic() - begun) / (2 * RTT_S) * 2 * FABRIC.planes
    assert all(
        b["mapper_tx"] - a["mapper_tx"] <= 1.1 * most
        for a, b in zip(before, counted(cluster), strict=True)
    )
    for agent in cluster.agents:
        agent.call("mapper_stop")
    assert wait_until(lambda: all(b["mapper_rx"] == b["mapper_tx"] for b in counted(cluster)))
    assert all(
        b["mapper_lost"] == b["mapper_foreign"] == b["mapper_corrupt"] == b["rx_foreign"] == 0
        for b in counted(cluster)
    )
    assert watch.found() == {}


@pytest.mark.parametrize("cable", ["h0:p0-t0-0", "p0-t0-0:p0-t1-1", "p1-t0-1:p1-t1-0"])
def test_a_cable_that_is_pulled_is_named_and_cleared_when_it_is_back(
    watch: Watch, cable: str
) -> None:
    cluster = watch.cluster

    def written(state: str) -> bool:
        """Whether an agent has found this by itself, and written it down. Alone it takes longer
        than all of them together."""
        own = [
            line
            for line in logged(watch.logs, "mapper")
            if line["link"] == cable and {"sent", "lost", "since"} <= set(line)
        ]
        return any(line["state"] == state for line in own)

    cluster.set_link(cable, False)
    try:
        assert watch.sees({cable: DEAD})
        assert wait_until(lambda: written(DEAD))
    finally:
        cluster.set_link(cable, True)
    assert watch.sees({})
    assert {link for link, _ in watch.ever} == {cable}
    assert wait_until(lambda: written("clear"))


def test_a_dead_t1_is_named_as_a_switch(watch: Watch) -> None:
    cluster = watch.cluster
    cluster.set_switch("p1-t1-0", False)
    try:
        assert watch.sees({"p1-t1-0": DEAD})
    finally:
        cluster.set_switch("p1-t1-0", True)


@pytest.mark.parametrize(
    ("kind", "cable", "direction", "probability"),
    [
        ("loss", "h3:p1-t0-1", "up", 0.2),
        ("loss", "h0:p0-t0-0", "down", 0.2),
        ("loss", "p0-t0-1:p0-t1-0", "down", 0.3),
        ("corrupt", "h2:p0-t0-1", "both", 0.2),
    ],
)
def test_a_lossy_cable_is_named_whichever_way_it_loses_with_a_ring_on_top(
    watch: Watch, kind: str, cable: str, direction: str, probability: float
) -> None:
    cluster = watch.cluster
    before = counted(cluster)
    ring = MappedRing(cluster)
    ring.watch = watch
    acts = [
        (
            0.5,
            lambda: cluster.inject(
                kind, cable, direction=direction, probability=probability, seed=5
            ),
        )
    ]
    try:
        assert ring.run(25, acts)
        assert watch.sees({cable: LOSSY})
    finally:
        cluster.heal()
    assert ring.all_right()
    assert {link for link, _ in watch.ever} == {cable}, "and no other"
    damaged = [
        b["mapper_corrupt"] - a["mapper_corrupt"]
        for a, b in zip(before, counted(cluster), strict=True)
    ]
    assert (sum(damaged) > 0) == (kind == "corrupt") and all(
        n == 0 for h, n in enumerate(damaged) if f"h{h}:" not in cable
    )


def test_kernels_do_not_answer_probes_and_books_balance_once_they_are_silent(watch: Watch) -> None:
    cluster = watch.cluster
    assert watch.sees({}) and wait_until(lambda: sum(cluster.agents[1].call("mapper")["sent"]) > 20)
    for agent in cluster.agents:
        agent.call("mapper_stop")
    assert unexplained(cluster, BEFORE[0]) == 0
    wire = Wire(cluster, 1)
    try:
        path = probes.paths(FABRIC, 1)[2]
        frame = probes.frame(path, 1, 1, 0)
        heard = cluster.agents[1].call("counters")["mapper_foreign"]
        assert wire.send(path.plane, frame)
        assert wait_until(lambda: cluster.agents[1].call("counters")["mapper_foreign"] == heard + 1)
        seen = wire.receive(1 << 30, timeout=INTO_THE_SOCKET_S)
        # queue pairs of before still talk
        got = [
            g for g in seen if int.from_bytes(g.frame[96:98], "big") == probes.probe_port(FABRIC)
        ]
        assert [(g.port, g.kind, len(g.frame)) for g in got] == [("h1-p0", OTHERHOST, len(frame))]
    finally:
        wire.close()
    table = cluster.agents[1].call("mapper")
    assert table["running"] is False and table["links"] == []
