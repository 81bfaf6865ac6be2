"""Many random fault schedules over several processes, and what to say of them. Used by ``mrcbed bench schedules`` and the soak.

A process runs one schedule after the other; none shares anything with another, so the outcomes do not depend on the number of processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scenarios.run.processes import at_once
from scenarios.sets.schedules import FABRIC, Outcome, run_schedule


def run_many(
    seeds: Iterable[int], jobs: int = 2, fabric: str = FABRIC, keep: Path | None = None,
    told: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:  # fmt: skip
    """Outcomes in the order of ``seeds``; ``told`` hears of each as it comes. Whatever ends us ends the processes."""
    made: dict[int, Outcome] = {}
    for number, outcome in at_once(partial(run_schedule, fabric=fabric, keep=keep), list(seeds), jobs, "schedule {}".format):
        made[number] = outcome
        told(outcome)
    return [made[number] for number in sorted(made)]


def figures(outcomes: Sequence[Outcome], wall_s: float, jobs: int) -> dict[str, Any]:
    """Of all outcomes together. ``hops_per_s``: frames that took a link, per second of CPU time."""
    cpu = sum(o.cpu_s for o in outcomes)
    hops = sum(o.hops for o in outcomes)
    kinds: Counter[str] = Counter()
    for outcome in outcomes:
        kinds.update(outcome.kinds)
    return {
        "schedules": len(outcomes), "broken": sum(bool(o.broken) for o in outcomes), "jobs": jobs, "faults": kinds.total(),
        "kinds": dict(sorted(kinds.items())), "steps": sum(o.steps for o in outcomes),
        "retransmitted": sum(o.retransmitted for o in outcomes), "virtual_s": sum(o.virtual_s for o in outcomes), "wall_s": wall_s,
        "cpu_s": cpu, "slowest_s": max((o.cpu_s for o in outcomes), default=0.0), "hops": hops, "hops_per_s": hops / cpu if cpu else 0.0,
    }  # fmt: skip


def told_of(made: dict[str, Any]) -> str:
    """The figures for people."""
    listed = ", ".join(f"{n} {kind}" for kind, n in made["kinds"].items())
    count = max(1, made["schedules"])
    return (
        f"{made['schedules']:,} schedules, {made['broken']} broken: {made['faults']:,} faults under {made['steps']:,} all-reduces, "
        f"{made['retransmitted']:,} packets retransmitted, {made['virtual_s']:,.0f} s of virtual time\n"
        f"faults: {listed}\n"
        f"{made['wall_s']:.1f} s with {made['jobs']} processes, {made['schedules'] / max(made['wall_s'], 1e-9):.2f} schedules/s; "
        f"{made['cpu_s'] / count:.2f} s of CPU each, {made['slowest_s']:.2f} s at most; "
        f"{made['hops_per_s']:,.0f} packet-hops per second of CPU"
    )


def repeated_by(outcome: Outcome, fabric: str = FABRIC) -> str:
    """The command that shows a schedule again."""
    return f"mrcbed bench schedules --first {outcome.seed} --count 1" + (f" --fabric {fabric}" if fabric != FABRIC else "")
