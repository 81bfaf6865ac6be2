"""Random faults of every kind for minutes under repeated all-reduces: every sum exact, nobody stuck, everything healed and found again.

It goes in rounds: a plan of faults (testbed/faults/plan.py) that heals by itself, then calm, in which every path and plane must be used
again under the same load.

MRCBED_SOAK_S: how long, seconds (default 600). MRCBED_SOAK_SEED: which faults when (default 1). MRCBED_SOAK_FABRIC: where (default demo).
The faults, the rounds and the agents' logs are kept in results/soak-faults-<time>/, faults.jsonl on the agents' clock.
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
from tests.emulated.fault_state import state
from tests.emulated.ring import Ring, logged, paths, wait_until
from tests.soak.looks import ALLOWED_GROWTH, imbalance, machine, resident, results
from topologies import Fabric, load_fabric

pytestmark = [pytest.mark.soak, pytest.mark.sandbox, pytest.mark.timeout(0)]
STORM_S = 20.0
"""Length of a round's plan."""
STEPS = 4
"""In one go; goes follow each other as long as a storm lasts and until all is in use again."""
STEP_BYTES = 1 << 20


class Storm:
    """A plan being carried out; every act is journalled."""

    def __init__(self, cluster: Cluster, number: int, faults: list[Planned], journal: Path) -> None:
        self.cluster, self.number, self.journal = cluster, number, journal
        self.begun = time.monotonic()
        acts = [(fault.at, 1, fault) for fault in faults] + [(fault.until, 0, fault) for fault in faults]
        self.todo = sorted(acts, key=lambda act: act[:2])
        self.there: dict[int, int] = {}  # id of a planned fault -> number of the injected one
        self.changed = time.monotonic()  # when something last began or ended

    def write(self, kind: str, **fields: Any) -> None:
        with self.journal.open("a") as out:
            out.write(json.dumps({"t": time.monotonic_ns(), "kind": kind, "round": self.number, **fields}) + "\n")

    def due(self) -> float | None:
        """Do what is due; in how many seconds there is more to do, None: nothing any more."""
        while self.todo and time.monotonic() - self.begun >= self.todo[0][0]:
            _, begins, fault = self.todo.pop(0)
            if begins:
                made = self.cluster.inject(fault.kind, fault.on, **fault.keys)
                self.there[id(fault)] = made.number
                self.write("inject", number=made.number, fault=fault.kind, on=fault.on, keys=fault.keys, links=made.target.links)
            else:
                number = self.there.pop(id(fault))
                self.cluster.clear(number)
                self.write("clear", number=number)
            self.changed = time.monotonic()
        for event in self.cluster.fault_events():
            self.write("fault", t_told=event.t, number=event.number, phase=event.phase, links=event.links)
            self.changed = time.monotonic()
        return max(0.001, self.todo[0][0] - (time.monotonic() - self.begun)) if self.todo else None

    @property
    def over(self) -> bool:
        return not self.todo and not self.cluster.faults()


class StuckError(AssertionError):
    """No step ended for too long."""


def out_of_use(cluster: Cluster) -> list[dict[str, Any]]:
    """Paths that carry no data although nothing is broken."""
    return [row for row in paths(cluster) if not used(row)]


def go(ring: Ring, storm: Storm, bound_s: float, where: str) -> None:
    """STEPS steps under the storm. Raises AssertionError saying what went wrong."""

    begun = time.monotonic()

    def check() -> float | None:
        ring.cluster.check()
        sooner = storm.due()
        latest = max([begun, storm.changed, *(ns / 1e9 for ns, _, _ in ring.ends[-len(ring.hosts) :])])
        if time.monotonic() - latest > bound_s:
            raise StuckError(f"{where}: no step ended for {time.monotonic() - latest:.1f} s, and no fault began or ended")
        return sooner

    ring.ends.clear()
    assert ring.go(STEPS, check, STEP_BYTES, 3600), f"{where}: {ring.failures or 'no end'}"
    assert ring.all_right(), f"{where}: {ring.wrong} wrong, {ring.failures}"


def test_random_faults_for_a_long_time() -> None:
    seconds, seed = float(os.environ.get("MRCBED_SOAK_S", "600")), int(os.environ.get("MRCBED_SOAK_SEED", "1"))
    fabric = load_fabric(os.environ.get("MRCBED_SOAK_FABRIC", "demo"))
    kept = results("soak-faults")
    print(f"seed {seed} on {fabric.name}, {seconds:g} s; faults and logs in {kept}")
    watch = Watch()
    watch.start()
    try:
        with Cluster(fabric) as cluster:
            cluster.start_agents("mrc", {}, kept, seed)
            story = weather(cluster, fabric, seed, seconds, kept / "faults.jsonl")
            cluster.stop_agents()
    finally:
        watch.stop()
        stalls = machine(watch, logged(kept, "loop"), fabric.base_rtt_ps)
        print(stalls)
    dead = [line for line in logged(kept, "qp") if line["state"] == "ERROR"]
    assert not dead, f"{dead[:3]}"
    print(story)


def weather(cluster: Cluster, fabric: Fabric, seed: int, seconds: float, journal: Path) -> str:
    """Rounds of storm and calm; what came of them, in one line."""
    config = Config.from_fabric(fabric, {})
    before, whole = cluster.counters(), state(cluster)
    ring = Ring(cluster)
    pids = [process.pid for process in cluster._agents]
    first: list[int] = []
    begun, rounds, steps = time.monotonic(), 0, 0
    kinds = Counter[str]()
    stuck_s, back_s = stuck_after(config), back_after(config)
    longest_s = 0.0
    while (now := time.monotonic() - begun) < seconds or rounds < 3:
        where = f"seed {seed}, round {rounds}"
        faults = plan(fabric, seed * 10_000 + rounds, STORM_S)
        kinds.update(fault.kind for fault in faults)
        storm = Storm(cluster, rounds, faults, journal)
        while not storm.over:
            go(ring, storm, stuck_s, f"{where}, storm")
            steps += STEPS
        calm = time.monotonic()
        assert state(cluster) == whole, f"{where}: faults left something behind"
        missing = out_of_use(cluster)
        while missing and time.monotonic() - calm < back_s:
            go(ring, storm, stuck_s, f"{where}, calm")  # found again under load, when answers take longest
            steps += STEPS
            missing = out_of_use(cluster)
        assert not missing, f"{where}: not in use {time.monotonic() - calm:.0f} s after the last fault: {len(missing)} paths, {missing[:4]}"
        longest_s = max(longest_s, time.monotonic() - calm)
        storm.write("calm", recovered_s=time.monotonic() - calm, resident=[resident(pid) for pid in pids])
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
        f"{rounds} rounds, {sum(kinds.values())} faults ({listed}) under {steps} steps; "
        f"{again} packets sent again; all in use again within {longest_s:.1f} s; agents grew by at most {max(grown) >> 10} KiB"
    )
