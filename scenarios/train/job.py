"""One training run on one cluster: ranks, failures at their steps, a network that re-routes, and what each rank measured."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.run.watch import Doubts
from scenarios.train.model import PARAMETERS
from testbed.errors import UserError
from testbed.faults.targets import Injected
from testbed.reconvergence import usual
from testbed.session import Progress, Session
from testbed.world import Program, World
from topologies.clos import Fabric
from topologies.theory import bus_bandwidth, collective_step_ns
from topologies.units import US, S

RANK = Path(__file__).with_name("rank.py")
COMPUTE_US = 40.0
"""What the GPU of a rank computes in a step, network time [ours]: about half of what a healthy all-reduce of the gradient takes."""
FAULT = 480 * US
"""How long each failure lasts [ours]: some four healthy steps."""
PORT_PERIOD = "160us"
"""Period of the flapping port: it is down for half of it."""
DUTY = {"NIC port flaps": 0.5}
"""Share of the time that a failure is there; 1 where nothing is said."""


@dataclass(frozen=True)
class Leg:
    """One of the runs that are compared."""

    name: str
    transport: str
    failing: bool
    one_plane: bool = False
    """On the fabric's twin of one plane, as RoCE fabrics are built."""
    qps: int = 1


MRC_HEALTHY = Leg("mrc-healthy", "mrc", failing=False)
MRC = Leg("mrc", "mrc", failing=True)
ROCE = Leg("roce-1p", "roce", failing=True, one_plane=True)
TCP = Leg("tcp", "tcp", failing=True, qps=4)


@dataclass(frozen=True)
class Failure:
    """What breaks when rank 0 begins ``step``."""

    name: str
    kind: str
    on: str
    step: int


def failures(fabric: Fabric, steps: int) -> list[Failure]:
    """A cable cut, a NIC port that flaps, a T1 switch that reboots, and one that dies silently; spread over the run."""
    t1 = fabric.t1_per_plane
    at = [max(1, int(steps * share)) for share in (0.15, 0.4, 0.6, 0.8)]
    return [
        Failure("cable cut", "link", "p0-t0-0:p0-t1-0", at[0]),
        Failure("NIC port flaps", "flap", "h0-p0", at[1]),
        Failure("T1 reboots", "switch", f"p0-t1-{1 % t1}", at[2]),
        Failure("T1 silently dead", "silent", f"p0-t1-{2 % t1}", at[3]),
    ]


@dataclass
class Outcome:
    """``ranks``: what each rank told at its end. Times in seconds of the network. ``broken``: name, begin, end, links of each failure.
    ``doubtful``: reasons why the times may be the machine's."""

    leg: Leg
    fabric: Fabric
    ranks: list[dict[str, Any]]
    broken: list[tuple[str, float, float, tuple[str, ...]]]
    failed: dict[int, str]
    doubtful: Sequence[str] = ()


class Breaker:
    """Injects failures as steps begin, takes each back after its time, and re-routes for transports that wait for that."""

    def __init__(self, world: World, leg: Leg, plan: Sequence[Failure], seed: int) -> None:
        self.world, self.leg, self.seed = world, leg, seed
        self.clock = world.clock
        self.plan = list(plan) if leg.failing else []
        self.active: list[tuple[Failure, Injected, int]] = []  # and when it ends, ps
        self.broken: list[tuple[str, float, float, tuple[str, ...]]] = []
        self.network = usual(world, leg.transport)

    def step(self, number: int) -> None:
        """Rank 0 begins a step."""
        while self.plan and self.plan[0].step <= number:
            failure = self.plan.pop(0)
            keys = {"period": PORT_PERIOD, "duty": DUTY[failure.name]} if failure.kind == "flap" else {}
            injected = self.world.inject(failure.kind, failure.on, run_seed=self.seed, **keys)
            self.active.append((failure, injected, injected.told_ps + FAULT))
        self.look()

    def end(self) -> None:
        """The ranks have ended: what is still broken lasted until now."""
        now = self.clock.now()
        for failure, injected, _ in self.active:
            self._note(failure, injected, now)
        self.active.clear()

    def _note(self, failure: Failure, injected: Injected, end: int) -> None:
        self.broken.append((failure.name, injected.told_ps / S, end / S, tuple(injected.target.links)))

    def look(self) -> int | None:
        """Do what is due; after what time there is more."""
        now = self.clock.now()
        for entry in list(self.active):
            failure, injected, end = entry
            if end <= now:
                cleared = self.world.clear(injected.number)
                self.active.remove(entry)
                self._note(failure, injected, cleared)
        self.world.fault_events()
        due = [end - now for _, _, end in self.active]
        if self.network is not None and (again := self.network.look()) is not None:
            due.append(again)
        return min(due, default=None)


def run_leg(session: Session, leg: Leg, steps: int, text: Path, logs: Path, user: int | None, progress: Progress) -> Outcome:
    """Carry out one run. Raises :class:`UserError` if a rank reports nothing."""
    fabric, seed = session.fabric, session.seed
    told: dict[int, dict[str, Any]] = {}
    with session.up(logs, nullcontext(progress)) as world:
        breaker = Breaker(world, leg, failures(fabric, steps), seed)
        command = (str(RANK), str(steps), str(seed), str(COMPUTE_US), str(text))
        programs = world.programs(Program(command, user, leg.qps), range(fabric.host_count))
        lines: list[str] = []

        def on_note(rank: int, note: dict[str, Any]) -> None:
            if note["event"] != "told":
                return
            if "step" in note["note"]:
                number = int(note["note"]["step"])
                if number == 1:
                    doubts.look(forget=True)
                breaker.step(number)
                broken = ", ".join(failure.name for failure, _, _ in breaker.active)
                progress(f"{leg.name}: step {number - number % 10} of {steps}{f', {broken}' if broken else ''}", number / steps)
            elif "done" in note["note"]:
                told[rank] = note["note"]["done"]

        try:
            with Doubts(world) as doubts:
                failed = programs.run(lambda rank, line: lines.append(f"rank {rank}: {line}"), on_note, breaker.look)
                doubts.look()
                doubtful = doubts.reasons()
        finally:
            programs.end()
        breaker.end()
        world.heal()
    if not failed and len(told) < fabric.host_count:
        raise UserError(f"{leg.name}: only {len(told)} of {fabric.host_count} ranks told what they measured: {'; '.join(lines[-3:])}")
    if failed and lines:
        (logs / "ranks.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Outcome(leg, fabric, [told[rank] for rank in sorted(told)], breaker.broken, failed, doubtful)


def ideal_ns(fabric: Fabric, dead_links: Sequence[str] = ()) -> float:
    """The all-reduce of a gradient at the rate that the live links carry."""
    hosts = list(range(fabric.host_count))
    kind = "ring-allreduce" if len(hosts) & len(hosts) - 1 else "tree-allreduce"
    size = PARAMETERS * 4
    bus = bus_bandwidth(fabric, kind, hosts, dead_links)
    return collective_step_ns(kind, len(hosts), size, bus) if bus else float("inf")
