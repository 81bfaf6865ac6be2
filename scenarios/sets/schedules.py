"""Random fault schedules in virtual time: all-reduces on a simulated fabric while a drawn plan of faults comes and goes.

A schedule is one number. From it follow the plan (testbed/faults/plan.py), the ring, its sizes and the transport's settings, so that the
number is all that is needed to see a failure again: ``mrcbed bench schedules --first N --count 1``. Asked of every schedule:

1. every sum of every all-reduce is exact, and no queue pair fails;
2. a step ends within a stated time after anything last broke or mended;
3. once all is mended every path and plane is used again within a stated time, and then a healthy fabric loses nothing more;
4. the books of hosts, cables and switches balance, and every corrupted frame was refused.
"""

from __future__ import annotations

import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.collectives.steer import connect, wait_for_all
from agents.mrc.config import Config
from scenarios.figures.fidelity import Evidence, judge
from scenarios.figures.measure import books, cable_gaps
from testbed.faults.plan import Planned, back_after, plan, stuck_after, used
from testbed.simulated.cluster import SimulatedCluster
from topologies import Fabric, load_fabric
from topologies.theory import place_ranks

FABRIC = "rack16"
STORM_S = 6.0
"""Virtual time in which faults come and go."""
RING = "ring-allreduce"
STEPS = 2
"""In one go; goes follow each other as long as the storm lasts."""
LIMIT_S = 120.0
"""CPU time after which a schedule is given up: one takes about a second, so only an endless loop gets there."""


class BrokenError(AssertionError):
    """What a schedule showed to be wrong, in words."""


@dataclass(frozen=True)
class Setting:
    """What runs under a schedule's faults. ``options``: the transport's."""

    placement: str
    message_bytes: int
    slices: int
    trimming: bool
    policy: str
    options: dict[str, Any]


@dataclass
class Outcome:
    """What came of one schedule. ``broken`` is empty if all was right; times in seconds, of CPU and virtual."""

    seed: int
    kinds: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    retransmitted: int = 0
    hops: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    broken: str = ""


def setting(seed: int) -> Setting:
    """Drawn, small: a storm has to be cheap, and a ring of 16 sends 480 messages a step at least."""
    rng = random.Random(f"setting {seed}")
    slices = rng.choice([1, 1, 2])
    return Setting(
        placement=rng.choice(["interleaved", "interleaved", "packed"]),
        message_bytes=slices * rng.choice([4 << 10, 64 << 10, 64 << 10]),
        slices=slices,
        trimming=rng.random() < 0.75,
        policy=rng.choice(["none", "none", "hint", "denylist"]),
        options=rng.choice([{}, {}, {"active_evs": 16}, {"congestion": "fixed"}]),
    )


class Storm:
    """A plan being carried out on a cluster, in its virtual time."""

    def __init__(self, cluster: SimulatedCluster, faults: list[Planned]) -> None:
        self.cluster = cluster
        self.begun = self.changed = cluster.clock.now()  # ``changed``: when something last began or ended
        acts = [(fault.at, 1, fault) for fault in faults] + [(fault.until, 0, fault) for fault in faults]
        self.todo = sorted(acts, key=lambda act: act[:2])
        self.there: dict[int, int] = {}  # id of a planned fault -> number of the injected one

    def due(self) -> float | None:
        """Do what is due; in how many seconds there is more to do, None: nothing any more."""
        now = self.cluster.clock.now()
        while self.todo and now >= self._when():
            _, begins, fault = self.todo.pop(0)
            if begins:
                self.there[id(fault)] = self.cluster.inject(fault.kind, fault.on, **fault.keys).number
            else:
                self.cluster.clear(self.there.pop(id(fault)))
            self.changed = now
        if self.cluster.fault_events():
            self.changed = now
        return (self._when() - now) / 1e9 if self.todo else None

    def _when(self) -> int:
        return self.begun + round(self.todo[0][0] * 1e9)

    @property
    def over(self) -> bool:
        return not self.todo and not self.cluster.faults()


class Schedule:
    """One schedule on one cluster. :meth:`run` raises :class:`BrokenError`."""

    def __init__(self, seed: int, fabric: Fabric, cluster: SimulatedCluster, how: Setting, outcome: Outcome) -> None:
        self.cluster, self.how, self.outcome = cluster, how, outcome
        self.clock = cluster.clock
        self.seed = seed
        self.config = Config.from_fabric(cluster.fabric, how.options)
        self.hosts = place_ranks(fabric, how.placement)
        self.agents = [cluster.agents[host] for host in self.hosts]
        self.faults = plan(fabric, seed, STORM_S)
        self.said: list[str] = []  # what ranks said that they should not
        self.latest = 0  # end of a step
        outcome.kinds = dict(Counter(fault.kind for fault in self.faults))

    def run(self) -> None:
        before = self.cluster.counters()
        connect(self.agents, self.hosts, RING, slices=self.how.slices)
        storm = Storm(self.cluster, self.faults)
        while not storm.over:
            self.go(STEPS, storm)
        self.recover()
        lost = self.lost()
        self.go(1, storm)
        if self.lost() != lost:
            raise BrokenError(f"{self.lost() - lost} packets were given up on a fabric on which nothing was broken any more")
        self.settle(before)

    def go(self, steps: int, storm: Storm) -> None:
        """So many steps; each has to end before it counts as stuck."""
        begun = self.clock.now()
        bound = stuck_after(self.config)

        def check() -> float | None:
            self.cluster.check()
            sooner = storm.due()
            waited = (self.clock.now() - max(begun, storm.changed, self.latest)) / 1e9
            if waited > bound:
                raise BrokenError(f"no step ended for {waited:.1f} s of virtual time, and no fault began or ended")
            return sooner

        for agent in self.agents:
            agent.call("start", collective=RING, message_bytes=self.how.message_bytes, steps=steps, seed=self.seed)
        ended = wait_for_all(self.agents, self._hear, check, 3600.0, self.clock)
        if not ended or self.said:
            raise BrokenError(self.said[0] if self.said else "the ring did not come to its end")
        self.outcome.steps += steps

    def _hear(self, rank: int, note: dict[str, Any]) -> None:
        if note["event"] == "step":
            self.latest = max(self.latest, note["end_ns"])
            if not note["ok"]:
                self.said.append(f"rank {rank} (h{self.hosts[rank]}) had a wrong sum in step {note['step']}")
        elif note["event"] == "failed":
            self.said.append(f"rank {rank} (h{self.hosts[rank]}) failed: {note.get('reason')}")
        elif note["event"] == "done" and note["wrong"]:
            self.said.append(f"rank {rank} (h{self.hosts[rank]}) had {note['wrong']} wrong elements")

    def recover(self) -> None:
        """Let time pass until every path is in use. Raises if that takes longer than the longest hold-down and proof."""
        begun, bound = self.clock.now(), back_after(self.config)
        while idle := [row for agent in self.agents for row in agent.host.nic.engine.paths() if not self._used(row)]:
            took = (self.clock.now() - begun) / 1e9
            if took > bound:
                raise BrokenError(f"{len(idle)} paths not in use {took:.0f} s after the last fault, the first {idle[0]}")
            self.clock.sleep(4 * self.config.base_rtt / 1e9)
        if not all(self.cluster.link_states().values()):
            raise BrokenError("faults left a cable down")

    def _used(self, row: dict[str, Any]) -> bool:
        """Where a path stands by, it is enough that it might be used."""
        return used(row if "active_evs" not in self.how.options else {**row, "active": True})

    def lost(self) -> int:
        """Verdicts of loss so far."""
        return sum(n for agent in self.agents for name, n in agent.call("counters").items() if name.startswith("lost_by_"))

    def settle(self, before: list[dict[str, Any]]) -> None:
        """Every packet has to be accounted for."""
        if not self.cluster.quiesce(10.0):
            raise BrokenError("the fabric did not come to rest within 10 s")
        counted = {str(host): agent.call("counters") for host, agent in zip(self.hosts, self.agents, strict=True)}
        self.outcome.retransmitted = sum(counters["retransmitted"] for counters in counted.values())
        record = {"outcome": "done", "agent_counters": counted, "counters_before": before, "counters_after": self.cluster.counters()}
        wrong = imbalance(record, self.config.base_rtt)
        if wrong:
            raise BrokenError("; ".join(wrong))


def imbalance(record: dict[str, Any], base_rtt_ns: int) -> list[str]:
    """What is wrong with the books of agents, switches and cables, in words. ``record`` as a run's, with outcome ``done``."""
    packets = books(record)
    evidence = Evidence(
        samples=[], window=(0, 0), loops=[], base_rtt_ns=base_rtt_ns, cables=cable_gaps(record), gone=packets["lost"] + packets["trimmed"],
        **{key: packets[key] for key in ("causes", "unexplained", "rejected", "corrupted")},
    )  # fmt: skip
    return judge(evidence).reasons


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises BrokenError after so many seconds of this process's CPU time. For the main thread."""

    def over(number: int, frame: Any) -> None:
        raise BrokenError(f"it took more than {seconds:g} s of CPU time: an endless loop?")

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run_schedule(seed: int, fabric: str = FABRIC, keep: Path | None = None) -> Outcome:
    """One schedule, from its number to its outcome; nothing is raised. ``keep``: where agents' logs go, else they are not kept."""
    outcome, how = Outcome(seed), setting(seed)
    begun = time.process_time()
    with tempfile.TemporaryDirectory(prefix="mrcbed-schedule-") as scratch:
        shape = load_fabric(fabric)
        cluster = SimulatedCluster(shape.with_(trimming=how.trimming))
        since = cluster.clock.now()
        try:
            with limited(LIMIT_S), cluster:
                cluster.start_agents("mrc", how.options, Path(scratch) if keep is None else keep / f"{seed}", seed, how.policy)
                Schedule(seed, shape, cluster, how, outcome).run()
        except BrokenError as error:
            outcome.broken = str(error)
        except Exception as error:  # a bug of ours is a finding, too, and the others' schedules are to go on
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome.broken = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        outcome.hops = cluster.network.hops
        outcome.virtual_s = (cluster.clock.now() - since) / 1e9
    outcome.cpu_s = time.process_time() - begun
    return outcome
