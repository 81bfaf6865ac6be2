"""Random fault schedules in virtual time: all-reduces on a simulated fabric while a random plan of
faults is carried out.

A schedule is one number. From it follow the plan (testbed/faults/plan.py), the ring, its sizes and
the transport's settings, so it is enough to repeat a failure: ``mrcbed tools bench schedules
--first N --count 1``. Every schedule must meet these conditions:

1. every sum of every all-reduce is exact, and no queue pair fails;
2. a step ends within a stated time after the last begin or end of a fault;
3. after the last fault every path and plane is used again within a stated time, and then the
   healthy fabric loses nothing more;
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
from agents.transport import Note
from scenarios.figures.books import books, cable_gaps, port_rows
from scenarios.figures.fidelity import Evidence, judge
from testbed.faults.plan import Planned, back_after, plan, stuck_after, used
from testbed.results.record import Counted
from testbed.simulated.cluster import SimulatedCluster
from testbed.terminal import duration
from topologies import Fabric, load_fabric
from topologies.theory import place_ranks
from topologies.units import MS, NS, US, S

FABRIC = "rack16"
STORM = 600 * US  # Faults begin and end within it.
RING = "ring-allreduce"
STEPS = 2  # per start of the workload, which is started again while the storm lasts
LIMIT_S = 120.0  # of CPU: a schedule takes about a second, so only an endless loop gets there


class BrokenError(AssertionError):
    """An error that a schedule showed, in words."""


@dataclass(frozen=True)
class Setting:
    placement: str
    message_bytes: int
    slices: int
    trimming: bool
    policy: str
    options: dict[str, Any]


@dataclass
class Outcome:
    """``broken`` is empty if there was no error; ``cpu_s``: CPU time; ``network_us``: the
    network's."""

    seed: int
    kinds: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    retransmitted: int = 0
    hops: int = 0
    network_us: float = 0.0
    cpu_s: float = 0.0
    broken: str = ""


def setting(seed: int) -> Setting:
    """Draw a small setting: a storm has to be cheap, and a ring of 16 sends at least 480 messages a
    step."""
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
    def __init__(self, cluster: SimulatedCluster, faults: list[Planned]) -> None:
        self.cluster = cluster
        # ``changed_ps``: when something last began or ended
        self.begin_ps = self.changed_ps = cluster.clock.now()
        actions = [(fault.at, 1, fault) for fault in faults] + [
            (fault.until, 0, fault) for fault in faults
        ]
        self.pending = sorted(actions, key=lambda action: action[:2])
        self.active: dict[int, int] = {}  # id of a planned fault -> number of the injected one

    def apply_due(self) -> int | None:
        """Return the time until something is due again, or None."""
        now = self.cluster.clock.now()
        while self.pending and now >= self._next():
            _, begins, fault = self.pending.pop(0)
            if begins:
                self.active[id(fault)] = self.cluster.strike(fault.target).number
            else:
                self.cluster.clear(self.active.pop(id(fault)))
            self.changed_ps = now
        if self.cluster.fault_events():
            self.changed_ps = now
        return self._next() - now if self.pending else None

    def _next(self) -> int:
        return self.begin_ps + self.pending[0][0]

    @property
    def over(self) -> bool:
        return not self.pending and not self.cluster.faults()


class Schedule:
    """:meth:`run` raises :class:`BrokenError`."""

    def __init__(
        self,
        seed: int,
        fabric: Fabric,
        cluster: SimulatedCluster,
        setting: Setting,
        outcome: Outcome,
    ) -> None:
        self.cluster, self.setting, self.outcome = cluster, setting, outcome
        self.clock = cluster.clock
        self.seed = seed
        self.config = Config.from_fabric(cluster.fabric, setting.options)
        self.hosts = place_ranks(fabric, setting.placement)
        self.agents = [cluster.agents[host] for host in self.hosts]
        self.faults = plan(fabric, seed, STORM)
        self.errors: list[str] = []  # errors that ranks reported
        self.latest = 0  # end of a step
        outcome.kinds = dict(Counter(fault.kind for fault in self.faults))

    def run(self) -> None:
        before = self.cluster.counters()
        connect(self.agents, self.hosts, RING, slices=self.setting.slices)
        storm = Storm(self.cluster, self.faults)
        while not storm.over:
            self.go(STEPS, storm)
        self.recover()
        lost = self.lost()
        self.go(1, storm)
        if self.lost() != lost:
            raise BrokenError(
                f"{self.lost() - lost} packets were given up on a fabric on which nothing was "
                "broken any more"
            )
        self.settle(before)

    def go(self, steps: int, storm: Storm) -> None:
        begin, limit = self.clock.now(), stuck_after(self.config)

        def check() -> int | None:
            self.cluster.check()
            delay = storm.apply_due()
            waited = self.clock.now() - max(begin, storm.changed_ps, self.latest)
            if waited > limit:
                raise BrokenError(
                    f"no step ended for {duration(waited / NS)}, and no fault began or ended"
                )
            return delay

        for agent in self.agents:
            agent.call(
                "start",
                collective=RING,
                message_bytes=self.setting.message_bytes,
                steps=steps,
                seed=self.seed,
            )
        ended = wait_for_all(self.agents, self._handle_note, check, S, self.clock)
        if not ended or self.errors:
            raise BrokenError(self.errors[0] if self.errors else "the ring did not come to its end")
        self.outcome.steps += steps

    def _handle_note(self, rank: int, note: Note) -> None:
        if note["event"] == "step":
            self.latest = max(self.latest, note["end_ps"])
            if not note["ok"]:
                self.errors.append(
                    f"rank {rank} (h{self.hosts[rank]}) had a wrong sum in step {note['step']}"
                )
        elif note["event"] == "failed":
            self.errors.append(f"rank {rank} (h{self.hosts[rank]}) failed: {note.get('reason')}")
        elif note["event"] == "done" and note["wrong"]:
            self.errors.append(
                f"rank {rank} (h{self.hosts[rank]}) had {note['wrong']} wrong elements"
            )

    def recover(self) -> None:
        """Wait until every path is in use. Raises if that takes longer than the longest hold-down
        and proof."""
        begin, limit = self.clock.now(), back_after(self.config)
        while idle := [
            row for agent in self.agents for row in agent.call("paths") if not self._used(row)
        ]:
            elapsed = self.clock.now() - begin
            if elapsed > limit:
                raise BrokenError(
                    f"{len(idle)} paths not in use {duration(elapsed / NS)} after the last "
                    f"fault, the first {idle[0]}"
                )
            self.clock.sleep(4 * self.config.base_rtt)
        if not all(self.cluster.link_states().values()):
            raise BrokenError("faults left a cable down")

    def _used(self, row: dict[str, Any]) -> bool:
        return used(row if "active_evs" not in self.setting.options else {**row, "active": True})

    def lost(self) -> int:
        return sum(
            n
            for agent in self.agents
            for name, n in agent.call("counters").items()
            if name.startswith("lost_by_")
        )

    def settle(self, before: list[dict[str, Any]]) -> None:
        if not self.cluster.quiesce(MS):
            raise BrokenError("the fabric did not come to rest within 1 ms")
        agent_counters = {
            str(host): agent.call("counters")
            for host, agent in zip(self.hosts, self.agents, strict=True)
        }
        self.outcome.retransmitted = sum(
            counters["retransmitted"] for counters in agent_counters.values()
        )
        counted = Counted(
            agent_counters=agent_counters,
            counters_before=before,
            counters_after=self.cluster.counters(),
            outcome="done",
        )
        discrepancies = imbalance(counted, self.config.base_rtt / NS)
        if discrepancies:
            raise BrokenError("; ".join(discrepancies))


def imbalance(counted: Counted, base_rtt_ns: float) -> list[str]:
    """Return errors in the books of agents, switches and cables. ``counted``: with outcome
    ``done``."""
    packets = books(counted)
    evidence = Evidence(
        window=(0, 0),
        loops=[],
        base_rtt_ns=base_rtt_ns,
        cables=cable_gaps(counted, port_rows(counted)),
        gone=packets.lost + (packets.trimmed or 0),
        causes=packets.causes,
        unexplained=packets.unexplained,
        rejected=packets.rejected,
        corrupted=packets.corrupted,
    )
    return judge(evidence).reasons


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise BrokenError after so much CPU time. Only for the main thread."""

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
    """Raises nothing. ``keep``: directory for the agents' logs."""
    outcome, drawn = Outcome(seed), setting(seed)
    cpu_start = time.process_time()
    with tempfile.TemporaryDirectory(prefix="mrcbed-schedule-") as scratch:
        topology = load_fabric(fabric)
        cluster = SimulatedCluster(topology.with_(trimming=drawn.trimming))
        start = cluster.clock.now()
        try:
            with limited(LIMIT_S), cluster:
                cluster.start_agents(
                    "mrc",
                    drawn.options,
                    Path(scratch) if keep is None else keep / f"{seed}",
                    seed,
                    drawn.policy,
                )
                Schedule(seed, topology, cluster, drawn, outcome).run()
        except BrokenError as error:
            outcome.broken = str(error)
        except Exception as error:
            # a bug of this program is a result, too, and the other schedules must go on
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome.broken = (
                f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            )
        outcome.hops = cluster.network.hops
        outcome.network_us = (cluster.clock.now() - start) / US
    outcome.cpu_s = time.process_time() - cpu_start
    return outcome
