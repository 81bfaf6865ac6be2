"""Estimates how long figures take to run: the paper set is to fit two hours, its quick form 20
minutes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from scenarios.jobs.describe import plan_of
from scenarios.jobs.plan import Plan, moved, rehearse
from scenarios.jobs.plan import estimate as job_estimate
from scenarios.run.one_run import Spec
from scenarios.run.planning import plan
from scenarios.schema.scenario import Scenario
from scenarios.sets.series import Item, PartLike
from topologies.clos import Fabric
from topologies.theory import bus_bandwidth, collective_step_ns, place_ranks
from topologies.units import NS

COLLECTIVE_S, FLOWS_S = 2.5, 2.0
"""Time of a run beside its measured part, on two cores: agents up and connected, one step more or
less, books, agents down [measured]."""
FABRIC_S = 1.5  # to build and remove a fabric [measured]
# tables, summary and report; plots of one setting and placement [measured]
PART_S, DRAWN_S = 2.5, 1.5
FIGURE_S = 3.0  # verdicts, drawing and page of a figure, in its own process [measured]
SLOWER = {"mrc": 1.1, "roce": 2.5}  # over theory's step; RoCE's flows collide [measured]
HOPS = {"ring-allreduce": 1.0, "reduce-scatter": 0.5, "all-gather": 0.5}
"""One-way delays per rank that a step waits for, in base RTTs: a ring passes every rank twice."""
# a slice's ways to the other site: two each time round the ring
CROSSINGS = {"ring-allreduce": 4, "hierarchical-allreduce": 1}
UNDER_LOSS = ((0.005, {"mrc": 1.9, "roce": 1.7}), (0.0, {"mrc": 1.5, "roce": 1.3}))
"""(loss rate above which the factors hold, kind -> factor) [measured]."""
CORES = 2  # of the machine that estimates are for
SIMULATED_PACKETS = 60_000  # per second of one core [measured]
COMPARED = 2.2
"""Time of a job's bytes over that of their packets: ranks make and compare what they send
[measured: 8 ranks, 40 to 700 MB]."""
MESSAGE_S = 0.0003  # a job's tiny message [measured: 0.2 ms on 8 hosts, 0.35 to 0.6 on 32]
DEAD = 2.0  # dead paths from the start: some T0 lost half of its uplinks in a plane


def job_seconds(plan: Plan, fabric: Fabric) -> float:
    payload, messages = moved(plan)
    return COMPARED * payload / fabric.frame_bytes / SIMULATED_PACKETS + MESSAGE_S * messages


def simulated_seconds(spec: Spec) -> float:
    work, fabric = spec.scenario.workload, spec.transport.fabric
    if work.jobs:
        steps = work.steps + work.warmup_steps + work.alone_steps
        return steps * job_seconds(plan_of(work.jobs, fabric.host_count), fabric)
    if not work.is_pattern:
        hosts = place_ranks(fabric, spec.placement)
        step_ns = collective_step_ns(
            work.kind, len(hosts), work.message_bytes, bus_bandwidth(fabric, work.kind, hosts)
        )
        sending_ns = len(hosts) * step_ns * (work.steps + work.warmup_steps)
    elif work.flows:
        sending_ns = sum(flow.for_ps or 0 for flow in work.flows) / NS
    else:
        sending_ns = (1 if work.kind == "incast" else fabric.host_count) * work.lasts_ps / NS
    return fabric.host_rate * sending_ns / 8e9 / fabric.frame_bytes / SIMULATED_PACKETS


def run_seconds(spec: Spec, dilation: float) -> float:
    measured = measured_ns(spec) / 1e9 * dilation
    return min(spec.scenario.timeout_s, measured) + (
        FLOWS_S if spec.scenario.workload.is_pattern else COLLECTIVE_S
    )


def measured_ns(spec: Spec) -> float:
    work, fabric, kind = spec.scenario.workload, spec.transport.fabric, spec.transport.kind
    if work.is_pattern:
        return max(work.lasts_ps, *(f.start_ps + (f.for_ps or 0) for f in work.flows), 0) / NS
    hosts = place_ranks(fabric, spec.placement)
    if work.jobs:
        passes = work.steps + work.warmup_steps + work.alone_steps * len(work.jobs)
        return (
            SLOWER.get(kind, 2.0)
            * passes
            * rehearse(plan_of(work.jobs, len(hosts)), job_estimate(fabric, hosts)).ns
        )
    ideal = collective_step_ns(
        work.kind, len(hosts), work.message_bytes, bus_bandwidth(fabric, work.kind, hosts)
    )
    waits = (1 + HOPS.get(work.kind, 0.0) * len(hosts)) * fabric.base_rtt_ps
    waits += CROSSINGS.get(work.kind, 2) * (fabric.haul_rtt_ps - fabric.base_rtt_ps) / 2
    step = ideal * SLOWER.get(kind, 2.0) + waits / NS
    loss = max(
        (float(f.keys.get("probability", 0)) for f in spec.scenario.faults if f.kind == "loss"),
        default=0.0,
    )
    step *= next(
        (factors[kind] for bound, factors in UNDER_LOSS if loss > bound and kind in factors), 1.0
    )
    if any(f.kind == "dead-paths" for f in spec.scenario.faults):
        step *= DEAD
    return (work.steps + work.warmup_steps) * step


def part_seconds(part: PartLike, quick: bool, seeds: tuple[int, ...] = ()) -> float:
    scenario = part.load(quick, seeds)
    return scenario_seconds(scenario, None if part.simulated(scenario) else scenario.dilation)


def scenario_seconds(scenario: Scenario, dilation: float | None) -> float:
    specs = plan(scenario)
    settings = sum(len(v.scenario.workload.placement) for v in scenario.variants)
    if dilation is None:
        return sum(map(simulated_seconds, specs)) / CORES + PART_S + DRAWN_S * settings
    fabrics = sum(a.transport.fabric != b.transport.fabric for a, b in pairwise(specs)) + 1
    return (
        sum(run_seconds(spec, dilation) for spec in specs)
        + FABRIC_S * fabrics
        + PART_S
        + DRAWN_S * settings
    )


def seconds(figures: Sequence[Item], quick: bool, seeds: tuple[int, ...] = ()) -> dict[str, float]:
    """Runs that several figures share count for the first one."""
    counted: set[Path] = set()
    estimates = {}
    for figure in figures:
        total = 0.0
        for part in figure.parts:
            key = figure.directory(part, Path())
            total += 0.0 if key in counted else part_seconds(part, quick, seeds)
            counted.add(key)
        estimates[figure.id] = total + (FIGURE_S if figure.parts else 0.0)
    return estimates


def runs(figure: Item, quick: bool, seeds: tuple[int, ...] = ()) -> int:
    return sum(len(plan(part.load(quick, seeds))) for part in figure.parts)


def format_duration(duration_s: float) -> str:
    if duration_s < 1:
        return "–"
    return f"{duration_s:.0f} s" if duration_s < 100 else f"{duration_s / 60:.0f} min"
