"""Random faults of every kind for minutes under repeated all-reduces: every sum exact, nobody
stuck, everything healed and found again.

It goes in rounds: a plan of faults (testbed/faults/plan.py) that heals by itself, then calm, in
which every path and plane must be used again under the same load.

MRCBED_SOAK_S: how long, seconds (default 600). MRCBED_SOAK_SEED: which faults when (default 1).
MRCBED_SOAK_FABRIC: where (default demo). The faults, the rounds and the agents' logs are kept in
results/soak-faults-<time>/, faults.jsonl on the agents' clock.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agents.mrc.config import Config
from scenarios.run.watch import Watch
from testbed.emulated.cluster import Cluster
from testbed.faults.plan import Planned, back_after, plan, stuck_after, used
from testbed.terminal import duration
from tests.emulated.fault_state import state
from tests.emulated.ring import Ring, logged, paths, wait_until
from tests.soak.looks import ALLOWED_GROWTH, imbalance, machine, resident, results
from topologies import Fabric, load_fabric
from topologies.fabrics import DILATION
from topologies.units import MS, NS

pytestmark = [pytest.mark.soak, pytest.mark.sandbox, pytest.mark.timeout(0)]
STORM = 2 * MS
"""Length of a round's plan."""
STEPS = 4
"""In one go; goes follow each other as long as a storm lasts and until all is in use again."""
STEP_BYTES = 1 << 20


class Storm:
    """A plan being carried out; every act is journalled."""

    def __init__(self, cluster: Cluster, number: int, faults: list[Planned], journal: Path) -> None:
        self.cluster, self.number, self.journal = cluster, number, journal
        self.clock = cluster.clock
        self.begun = self.clock.now()
        acts = [(fault.at, 1, fault) for fault in faults] + [
            (fault.until, 0, fault) for fault in faults
        ]
        self.todo = sorted(acts, key=lambda act: act[:2])
        self.there: dict[int, int] = {}  # id of a planned fault -> number of the injected one
        self.changed = self.begun  # when something last began or ended

    def write(self, kind: str, **fields: Any) -> None:
        with self.journal.open("a") as out:
            out.write(
                json.dumps({"t": self.clock.now(), "kind": kind, "round": self.number, **fields})
                + "\n"
            )

    def due(self) -> int | None:
        """Do what is due; in how much time there is more to do, None: nothing any more."""
        while self.todo and self.clock.now() - self.begun >= self.todo[0][0]:
            _, begins, fault = self.todo.pop(0)
            if begins:
                made = self.cluster.strike(fault.target)
                self.there[id(fault)] = made.number
                self.write(
                    "inject",
                    number=made.number,
                    fault=fault.kind,
                    on=fault.on,
                    keys=fault.keys,
                    links=made.target.links,
                )
            else:
                number = self.there.pop(id(fault))
                self.cluster.clear(number)
                self.write("clear", number=number)
            self.changed = self.clock.now()
        for event in self.cluster.fault_events():
            self.write(
                "fault", t_told=event.t, number=event.number, phase=event.phase, links=event.links
            )
            self.changed = self.clock.now()
        return max(0, self.begun + self.todo[0][0] - self.clock.now()) if self.todo else None

    @property
    def over(self) -> bool:
        return not self.todo and not self.cluster.faults()


class StuckError(AssertionError):
    """No step ended for too long."""


def out_of_use(cluster: Cluster) -> list[dict[str, Any]]:
    """Paths that carry no data although nothing is broken."""
    return [row for row in paths(cluster) if not used(row)]


def go(ring: Ring, storm: Storm, bound: int, where: str) -> None:
    """STEPS steps under the storm. Raises AssertionError saying what went wrong."""
    clock = ring.cluster.clock
    begun = clock.now()

    def check() -> int | None:
        ring.cluster.check()
        sooner = storm.due()
        latest = max([begun, storm.changed, *(end for end, _, _ in ring.ends[-len(ring.hosts) :])])
        if (quiet := clock.now() - latest) > bound:
            raise StuckError(
                f"{where}: no step ended for {duration(quiet / NS)}, and no fault began or ended"
            )
        return sooner

    ring.ends.clear()
    assert ring.go(STEPS, check, STEP_BYTES, 3600), f"{where}: {ring.failures or 'no end'}"
    assert ring.all_right(), f"{where}: {ring.wrong} wrong, {ring.failures}"


def test_random_faults_for_a_long_time() -> None:
    seconds, seed = (
        float(os.environ.get("MRCBED_SOAK_S", "600")),
        int(os.environ.get("MRCBED_SOAK_SEED", "1")),
    )
    fabric = load_fabric(os.environ.get("MRCBED_SOAK_FABRIC", "demo"))
    kept = results("soak-faults")
    print(f"seed {seed} on {fabric.name}, {seconds:g} s; faults and logs in {kept}")
    cluster = Cluster(fabric, dilation=DILATION)
    watch = Watch(cluster.clock)
    watch.start()
    try:
        with cluster:
            cluster.start_agents("mrc", {}, kept, seed)
            story = weather(cluster, fabric, seed, seconds, kept / "faults.jsonl")
            cluster.stop_agents()
    finally:
        watch.stop()
        print(machine(watch, logged(kept, "loop"), cluster))
    dead = [line for line in logged(kept, "qp") if line["state"] == "ERROR"]
    assert not dead, f"{dead[:3]}"
    print(story)


def weather(cluster: Cluster, fabric: Fabric, seed: int, seconds: float, journal: Path) -> str:
    """Rounds of storm and calm; what came of them, in one line."""
    config, clock = Config.from_fabric(fabric, {}), cluster.clock
    before, whole = cluster.counters(), state(cluster)
    ring = Ring(cluster)
    pids = [process.pid for process in cluster._agents]
    first: list[int] = []
    begun, rounds, steps = time.monotonic(), 0, 0
    kinds = Counter[str]()
    stuck, back = stuck_after(config), back_after(config)
    longest = 0
    while (now := time.monotonic() - begun) < seconds or rounds < 3:
        where = f"seed {seed}, round {rounds}"
        faults = plan(fabric, seed * 10_000 + rounds, STORM)
        kinds.update(fault.kind for fault in faults)
        storm = Storm(cluster, rounds, faults, journal)
        while not storm.over:
            go(ring, storm, stuck, f"{where}, storm")
            steps += STEPS
        calm = clock.now()
        assert state(cluster) == whole, f"{where}: faults left something behind"
        missing = out_of_use(cluster)
        while missing and clock.now() - calm < back:
            # found again under load, when answers take longest
            go(ring, storm, stuck, f"{where}, calm")
            steps += STEPS
            missing = out_of_use(cluster)
        took = clock.now() - calm
        assert not missing, (
            f"{where}: not in use {duration(took / NS)} after the last fault: {len(missing)} "
            f"paths, {missing[:4]}"
        )
        longest = max(longest, took)
        storm.write("calm", recovered_ps=took, resident=[resident(pid) for pid in pids])
        balanced = wait_until(lambda: imbalance(cluster, before) == [], 5)
        assert balanced, f"{where}: {imbalance(cluster, before)}"
        assert cluster.controller_alive, where
        rounds += 1
        if not first and (rounds == 2 or now > seconds / 10):
            first = [resident(pid) for pid in pids]  # pools and caches are filled by now
    grown = [resident(pid) - was for pid, was in zip(pids, first, strict=True)]
    again = sum(agent.call("counters")["retransmitted"] for agent in cluster.agents)
    assert again > 0, "the faults must have been felt"
    assert max(grown) <= ALLOWED_GROWTH, grown
    listed = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    return (
        f"{rounds} rounds, {sum(kinds.values())} faults ({listed}) under {steps} steps; {again} "
        f"packets sent again; all in use again within {duration(longest / NS)}; agents grew by "
        f"at most {max(grown) >> 10} KiB"
    )
