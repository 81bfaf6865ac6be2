"""Runs random fault schedules in several processes; outcomes do not depend on their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from scenarios.run.processes import at_once
from scenarios.sets.schedules import FABRIC, Outcome, run_schedule


def run_many(
    seeds: Iterable[int], jobs: int = 2, fabric: str = FABRIC, keep: Path | None = None,
    report: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:  # fmt: skip
    """Return outcomes in the order of ``seeds``; ``report`` gets each at its end. Whatever ends
    this process ends the others."""
    outcomes: dict[int, Outcome] = {}
    with closing(
        at_once(
            partial(run_schedule, fabric=fabric, keep=keep), list(seeds), jobs, "schedule {}".format
        )
    ) as ended:
        for number, outcome in ended:
            outcomes[number] = outcome
            report(outcome)
    return [outcomes[number] for number in sorted(outcomes)]


def figures(outcomes: Sequence[Outcome], wall_s: float, jobs: int) -> dict[str, Any]:
    """``hops_per_s``: frames that crossed a link, per second of CPU time."""
    cpu = sum(o.cpu_s for o in outcomes)
    hops = sum(o.hops for o in outcomes)
    kinds: Counter[str] = Counter()
    for outcome in outcomes:
        kinds.update(outcome.kinds)
    return {
        "schedules": len(outcomes),
        "broken": sum(bool(o.broken) for o in outcomes),
        "jobs": jobs,
        "faults": kinds.total(),
        "kinds": dict(sorted(kinds.items())),
        "steps": sum(o.steps for o in outcomes),
        "retransmitted": sum(o.retransmitted for o in outcomes),
        "network_us": sum(o.network_us for o in outcomes),
        "wall_s": wall_s,
        "cpu_s": cpu,
        "slowest_s": max((o.cpu_s for o in outcomes), default=0.0),
        "hops": hops,
        "hops_per_s": hops / cpu if cpu else 0.0,
    }


def describe(totals: dict[str, Any]) -> str:
    kinds = ", ".join(f"{n} {kind}" for kind, n in totals["kinds"].items())
    count = max(1, totals["schedules"])
    return (
        f"{totals['schedules']:,} schedules, {totals['broken']} broken: {totals['faults']:,} "
        f"faults under {totals['steps']:,} all-reduces, {totals['retransmitted']:,} packets "
        f"retransmitted, {totals['network_us'] / 1e3:,.1f} ms of network time\nfaults: {kinds}\n"
        f"{totals['wall_s']:.1f} s with {totals['jobs']} processes, "
        f"{totals['schedules'] / max(totals['wall_s'], 1e-9):.2f} schedules/s; "
        f"{totals['cpu_s'] / count:.2f} s of CPU each, {totals['slowest_s']:.2f} s at most; "
        f"{totals['hops_per_s']:,.0f} packet-hops per second of CPU"
    )


def repeat_command(outcome: Outcome, fabric: str = FABRIC) -> str:
    return f"mrcbed tools bench schedules --first {outcome.seed} --count 1" + (
        f" --fabric {fabric}" if fabric != FABRIC else ""
    )
