"""A ring all-reduce on a living cluster, for tests: run it, do things at moments of it, keep what
every rank said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agents.collectives.steer import connect, wait_for_all
from scenarios.figures.books import books
from testbed.emulated.cluster import Cluster
from testbed.machine.slowness import patient
from testbed.results.record import Counted
from topologies.theory import place_ranks

BYTES = 1 << 16
PATIENCE_S = patient(30.0)
"""How long a test waits for what must come about. Only a failure takes so long, so it may be long
enough for any machine."""
SETTLE_S = 10.0
"""How long books may stay open while packets are on their way."""


class Ring:
    """All hosts; interleaved, every edge crosses the upper switches."""

    def __init__(self, cluster: Cluster, placement: str = "interleaved") -> None:
        self.cluster = cluster
        self.hosts = place_ranks(cluster.fabric, placement)
        self.agents = [cluster.agents[h] for h in self.hosts]
        connect(self.agents, self.hosts, "ring-allreduce")
        self.ends: list[tuple[int, int, bool]] = []  # (ps, step, right) of every rank's steps
        self.wrong = 0
        self.failures: list[dict[str, Any]] = []

    def local(self, host: int, peer: int) -> dict[str, Any]:
        """What ``host`` told its ring neighbour ``peer``: QPN, first PSN, arena (va, rkey,
        length)."""
        rank = self.hosts.index(host)
        made = self.agents[rank].call(
            "setup", collective="ring-allreduce", ranks=self.hosts, rank=rank
        )
        return dict(made["qps"][str(self.hosts.index(peer))][0])

    def hear(self, rank: int, note: dict[str, Any]) -> None:
        if note["event"] == "step":
            self.ends.append((note["end_ps"], note["step"], note["ok"]))
        elif note["event"] == "done":
            self.wrong += note["wrong"]
        else:
            self.failures.append(note)

    def run(
        self,
        steps: int,
        acts: Sequence[tuple[float, Callable[[], object]]] = (),
        size: int = BYTES,
        timeout: float = 2 * PATIENCE_S,
    ) -> bool:
        """``acts``: what to do so many seconds after the start, wall time. Whether every rank came
        to its end."""
        todo = sorted(acts, key=lambda act: act[0])
        begun = time.monotonic()

        def check() -> int | None:
            self.cluster.check()
            while todo and time.monotonic() - begun >= todo[0][0]:
                todo.pop(0)[1]()
            return (
                self.cluster.clock.patience(begun + todo[0][0] - time.monotonic()) if todo else None
            )

        before = len(self.ends)
        ended = self.go(steps, check, size, timeout)
        assert not (ended and todo), (
            "the ring was over before all was done to it: give it more steps"
        )
        assert not ended or len(self.ends) - before == steps * len(self.hosts)
        return ended

    def go(self, steps: int, check: Callable[[], int | None], size: int, timeout: float) -> bool:
        """As :meth:`run`; ``check`` is called all the time, as `wait_for_all` does."""
        for agent in self.agents:
            agent.call(
                "start",
                collective="ring-allreduce",
                message_bytes=size,
                dtype="int32",
                steps=steps,
                warmup=0,
                seed=7,
            )
        return wait_for_all(
            self.agents, self.hear, check, self.cluster.clock.patience(timeout), self.cluster.clock
        )

    def all_right(self) -> bool:
        return (
            bool(self.ends)
            and self.wrong == 0
            and not self.failures
            and all(right for _, _, right in self.ends)
        )


def paths(cluster: Cluster) -> list[dict[str, Any]]:
    """Every queue pair's EVs on every host; ``host`` is added."""
    return [
        {"host": h, **row} for h, agent in enumerate(cluster.agents) for row in agent.call("paths")
    ]


def quiet(cluster: Cluster) -> bool:
    return cluster.quiesce(cluster.clock.patience(PATIENCE_S))


def wait_until(what: Callable[[], object], timeout: float = PATIENCE_S) -> bool:
    until = time.monotonic() + timeout
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def accounts(cluster: Cluster, before: list[dict[str, Any]], kind: str = "mrc") -> Counted:
    """The packets' books since the agents' start, when the ports' counters were ``before``, as a
    run's record has them.

    Agents that live on probe paths at any time, and are asked one after another: a packet may be on
    its way between two of the answers. So the books are read again until they balance; what is
    really lost stays missing.
    """
    record = Counted(kind=kind, counters_before=before)

    def balance() -> bool:
        assert quiet(cluster)
        agents = {str(h): agent.call("counters") for h, agent in enumerate(cluster.agents)}
        record.agent_counters, record.counters_after = agents, cluster.counters()
        return not books(record).unexplained

    wait_until(balance, SETTLE_S)
    return record


def unexplained(cluster: Cluster, before: list[dict[str, Any]]) -> int:
    """Packets that agents sent and that neither arrived nor were dropped by a named cause, once all
    had time to arrive."""
    return books(accounts(cluster, before)).unexplained or 0


def logged(directory: Path, *kinds: str) -> list[dict[str, Any]]:
    """Lines of the agents' logs, by time; complete once the agents have ended."""
    lines = [
        json.loads(line)
        for path in sorted(directory.glob("h*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return sorted(
        (line for line in lines if line["kind"] in kinds), key=lambda line: int(line["t"])
    )
