"""How long figures take to run, from their scenarios alone: theory's time of a step, what was seen beside it, and what runs cost.

For ``--list`` of ``mrcbed paper`` and ``validate``, and for the promise that the paper set fits two hours, in short a quarter of one. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from scenarios.run.one_run import Spec
from scenarios.run.runner import plan
from scenarios.sets.series import Item, PartLike
from topologies.theory import bus_bandwidth, collective_step_ns, place_ranks

COLLECTIVE_S, FLOWS_S = 2.5, 2.0
"""A run beside its measured time, on two cores: agents up and connected, one step more or less, books balanced, agents down [measured]."""
FABRIC_S = 1.5
"""A fabric up and down [measured]."""
PART_S, DRAWN_S = 2.5, 1.5
"""Tables, summary and report of a scenario, and the plots of one setting and placement of it [measured]."""
FIGURE_S = 3.0
"""Verdicts, drawing and page of a figure, in a process of its own [measured]."""
SLOWER = {"mrc": 1.1, "roce": 2.5}
"""A step over theory's, by kind: RoCE's flows collide [measured]."""
HOPS = {"ring-allreduce": 1.0, "reduce-scatter": 0.5, "all-gather": 0.5}
"""One-way delays per rank that a step waits for, in base RTTs: a ring passes every rank twice."""
UNDER_LOSS = ((0.005, {"mrc": 1.9, "roce": 1.7}), (0.0, {"mrc": 1.5, "roce": 1.3}))
"""(loss above which, factor by kind) [measured]."""
DEAD = 2.0
"""A step's factor where paths are dead from the start: some T0 has lost half of its uplinks in a plane."""


def run_seconds(spec: Spec) -> float:
    """One run, without building its fabric."""
    work, fabric, kind = spec.scenario.workload, spec.transport.fabric, spec.transport.kind
    cap = spec.scenario.timeout_ns / 1e9
    if work.is_pattern:
        ends = [(f.start_ns + (f.for_ns or 0)) / 1e9 for f in work.flows]
        return min(cap, max([(work.victim_alone_ns + (work.duration_ns or 0)) / 1e9, *ends])) + FLOWS_S
    hosts = place_ranks(fabric, spec.placement)
    ideal = collective_step_ns(work.kind, len(hosts), work.message_bytes, bus_bandwidth(fabric, work.kind, hosts)) / 1e9
    waits = (1 + HOPS.get(work.kind, 0.0) * len(hosts)) * fabric.base_rtt_ns / 1e9
    step = ideal * SLOWER.get(kind, 2.0) + waits
    loss = max((float(f.keys.get("probability", 0)) for f in spec.scenario.faults if f.kind == "loss"), default=0.0)
    step *= next((by[kind] for above, by in UNDER_LOSS if loss > above and kind in by), 1.0)
    if any(f.kind == "dead-paths" for f in spec.scenario.faults):
        step *= DEAD
    return min(cap, (work.steps + work.warmup_steps) * step) + COLLECTIVE_S


def part_seconds(part: PartLike, quick: bool, seeds: tuple[int, ...] = ()) -> float:
    scenario = part.load(quick, seeds)
    specs = plan(scenario)
    fabrics = sum(a.transport.fabric != b.transport.fabric for a, b in pairwise(specs)) + 1
    settings = sum(len(v.scenario.workload.placement) for v in scenario.variants)
    return sum(map(run_seconds, specs)) + FABRIC_S * fabrics + PART_S + DRAWN_S * settings


def seconds(figures: Sequence[Item], quick: bool, seeds: tuple[int, ...] = ()) -> dict[str, float]:
    """Figure -> its estimate; runs that several share count for the first of them."""
    done: set[Path] = set()
    out = {}
    for figure in figures:
        total = 0.0
        for part in figure.parts:
            key = figure.directory(part, Path())
            total += 0.0 if key in done else part_seconds(part, quick, seeds)
            done.add(key)
        out[figure.id] = total + (FIGURE_S if figure.parts else 0.0)
    return out


def runs(figure: Item, quick: bool, seeds: tuple[int, ...] = ()) -> int:
    return sum(len(plan(part.load(quick, seeds))) for part in figure.parts)


def shown(seconds_: float) -> str:
    """For people."""
    if seconds_ < 1:
        return "–"
    return f"{seconds_:.0f} s" if seconds_ < 100 else f"{seconds_ / 60:.0f} min"
