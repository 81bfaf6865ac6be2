"""Fig 5-8 and 9c-11: what a job keeps while links and switches fail."""

from __future__ import annotations

import statistics
from typing import Any

from scenarios.run.resume import FINISHED
from scenarios.sets.paper.claims import Evidence, or_never, ratio
from testbed.results.summary import Run
from testbed.results.values import known, number_at


def on_dead_us(run: Run) -> float | None:
    durations_us = [
        f.last_on_dead_rtts * f.srtt_ns / 1e3
        for f in run.failovers
        if f.last_on_dead_rtts is not None and f.srtt_ns
    ]
    return max(durations_us, default=None)


def found_us(run: Run) -> float | None:
    return _since_us(run, "detected_ns")


def delivered_us(run: Run) -> float | None:
    """Return infinity if a packet never arrived."""
    return _since_us(run, "delivered_ns")


def _since_us(run: Run, key: str) -> float | None:
    """A fault that comes and goes has one such event for all outages, so only single outages
    count."""
    failovers = [f for f in run.failovers if len(f.outages_ns) == 1 and f.lost]
    times_ns = [
        or_never(None if (at := number_at(f, key)) is None else at - f.at_ns, True)
        for f in failovers
    ]
    return max((ns / 1e3 for ns in times_ns if ns is not None), default=None)


def beyond_theory(run: Run) -> float | None:
    """Return time lost beyond the cost of the lost capacity, as a share of the healthy time of all
    steps."""
    cost = run.failure_cost
    healthy_ns = known(cost.healthy_step_ns) if cost else None
    if (
        cost is None
        or cost.extra_ns is None
        or cost.ideal_extra_ns is None
        or not cost.steps
        or not healthy_ns
    ):
        return None
    return (cost.extra_ns - cost.ideal_extra_ns) / (cost.steps * healthy_ns)


def lost_share(run: Run) -> float | None:
    return ratio(number_at(run, "failure_cost.extra_percent"), 100)


def flaps_had(run: Run) -> float | None:
    return float(sum(len(f.outages_ns) for f in run.failovers)) or None


def flap_us(run: Run) -> float | None:
    cost = run.failure_cost
    extra_ns = (
        None
        if cost is None or cost.extra_ns is None or cost.ideal_extra_ns is None
        else cost.extra_ns - cost.ideal_extra_ns
    )
    return ratio(None if extra_ns is None else extra_ns / 1e3, flaps_had(run))


def packets_a_flap(run: Run) -> float | None:
    return ratio(
        float(sum(f.lost for f in run.failovers)), sum(f.left_queue_pairs for f in run.failovers)
    )


QPS = 4  # of a rank in job-t1-reboots.toml


def touched_share(run: Run) -> float | None:
    return (
        statistics.mean(f.left_queue_pairs for f in run.failovers) / (QPS * run.ranks)
        if run.failovers
        else None
    )


def longer(run: Run) -> float | None:
    slowdown = number_at(run, "failure_cost.slowdown")
    return None if slowdown is None else slowdown - 1


def ride(e: Evidence, part: str) -> dict[str, Any]:
    runs = [run for run in e.runs(part, "mrc", ended=False) if run.outcome in FINISHED]
    if not runs:
        return {"value": 0.0}
    bad = sum(
        run.wrong + run.failed_steps + run.qp_errors + (run.outcome != "done") for run in runs
    )
    steps = sum(run.steps for run in runs)
    return {
        "value": float(bad),
        "workload": f"{steps} steps" if steps else f"{len(runs)} runs of flows",
    }


def worst_ev(run: Run) -> float | None:
    return max((f.losses_per_ev for f in run.failovers if f.losses_per_ev), default=None)


def lost_per_rank(run: Run) -> float | None:
    return run.failovers[0].lost / run.ranks if run.failovers else None


def left_share(run: Run) -> float | None:
    ideal = run.ideal_busbw_bps
    return (
        min((row.theory_bps / ideal for row in run.outside_busbw or ()), default=None)
        if ideal
        else None
    )


def lower_during(run: Run) -> float | None:
    share = ratio(
        number_at(run, "failure_cost.during_bps"), number_at(run, "failure_cost.before_bps")
    )
    return None if share is None else 1 - share


def back_share(run: Run) -> float | None:
    return run.flaps[0].back / run.flaps[0].n if run.flaps else None


def out_first(run: Run) -> float | None:
    return _out_rtts(run, 0)


def out_last(run: Run) -> float | None:
    return _out_rtts(run, -1)


def _out_rtts(run: Run, index: int) -> float | None:
    out_ns = [row.out_ns for row in run.flaps if row.out_ns is not None]
    return out_ns[index] / run.base_rtt_ns if out_ns else None
