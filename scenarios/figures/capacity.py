"""How near a collective comes to what theory allows with whatever is broken at the time. docs/results.md says what each key means.

Called by scenarios.figures.failures. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scenarios.figures.flows import rate_in
from scenarios.figures.measure import Run
from scenarios.figures.outages import Outage, changes, dead_at
from topologies.theory import COLLECTIVES, bus_bandwidth, collective_step_ns

SETTLE_RTTS = 20
"""After a change nothing is asked for so many base RTTs (the issue's figure)."""
REGROW_RTTS = 60
"""After capacity came back: NSCC's windows grow by a packet or two per RTT at these rates, and nothing tells them sooner [ours]."""
FEWEST_FOR_P99 = 1000

Theory = Callable[[frozenset[str]], float]


def theory_of(run: Run) -> Theory:
    """Dead cables -> bus bandwidth that is left, bits/s; each set is solved once."""
    cache: dict[frozenset[str], float] = {}

    def bandwidth_left(dead: frozenset[str]) -> float:
        if dead not in cache:
            cache[dead] = bus_bandwidth(run.fabric, run.record["workload"], run.record["ranks"], sorted(dead))
        return cache[dead]

    return bandwidth_left


def stretches(run: Run, outages: list[Outage]) -> list[tuple[int, int, frozenset[str]]]:
    """(begin, end, dead cables): the measured window without the base RTTs after each change, more of them after one for the better."""
    begin, end = run.window
    times = changes(outages)
    slowed = [(o.begin, o.end) for o in outages if o.entry.slows]  # theory does not know of them
    edges = sorted({begin, *(t for t in times if begin < t < end)})
    settle = {t: (SETTLE_RTTS if dead_at(outages, t) - dead_at(outages, t - 1) else REGROW_RTTS) * run.fabric.base_rtt_ns for t in times}
    rows = []
    for a, b in zip(edges, [*edges[1:], end], strict=True):
        a = max([a, *(t + settle[t] for t in times if t <= a)])
        if a < b and not any(x < b and a < y for x, y in slowed):
            rows.append((a, b, dead_at(outages, a)))
    return rows


def bandwidths(run: Run, outages: list[Outage], bandwidth_left: Theory) -> list[dict[str, Any]]:
    """One row per capacity that theory leaves, apart while something is dead and while all is whole: bus bandwidth over all its stretches
    beside it. At least 20 base RTTs in all, or no row.
    """
    pooled: dict[tuple[float, bool], list[tuple[int, int]]] = {}
    for begin, end, dead in stretches(run, outages):
        pooled.setdefault((float(round(bandwidth_left(dead))), bool(dead)), []).append((begin, end))
    ranks = len(run.record["ranks"])
    rows = []
    for (theory, broken), spans in pooled.items():
        duration = sum(end - begin for begin, end in spans)
        if duration < SETTLE_RTTS * run.fabric.base_rtt_ns or theory <= 0:
            continue
        bits = sum((rate_in(run.goodput, span) or 0.0) * (span[1] - span[0]) / 1e9 for span in spans)
        busbw = bits * 1e9 / duration / ranks  # what each rank gets is the bus bandwidth
        rows.append({"broken": broken, "ns": duration, "busbw_bps": busbw, "theory_bps": theory, "share": busbw / theory})
    return rows


def step_ratios(run: Run, outages: list[Outage], bandwidth_left: Theory) -> list[float]:
    """Per step that all ranks finished: its time over that of a step at the least capacity that there was in the meantime."""
    frame = run.steps[~run.steps["warmup"].astype(bool)]
    kind, ranks, size = run.record["workload"], len(run.record["ranks"]), int(run.record["message_bytes"])
    times = changes(outages)
    ratios = []
    for step, step_ns in run.step_times.items():
        rows = frame[frame["step"] == step]
        begin, end = int(rows["start_ns"].min()), int(rows["end_ns"].max())
        if any(o.entry.slows and o.begin < end and begin < o.end for o in outages):
            continue
        least = min(bandwidth_left(dead_at(outages, t)) for t in [begin, *(t for t in times if begin < t < end)])
        ratios.append(float(step_ns) / collective_step_ns(kind, ranks, size, least))
    return ratios


def figures(run: Run, outages: list[Outage]) -> dict[str, Any]:
    """What a collective's run adds to its entry in summary.json; nothing for other runs."""
    if run.record["workload"] not in COLLECTIVES:
        return {}
    bandwidth_left = theory_of(run)
    rows = bandwidths(run, outages, bandwidth_left)
    ratios = sorted(step_ratios(run, outages, bandwidth_left))
    rank = math.ceil(0.99 * len(ratios)) if len(ratios) >= FEWEST_FOR_P99 else len(ratios)
    return {
        "outside_busbw": rows,
        "outside_busbw_share": min((row["share"] for row in rows if row["broken"]), default=None),
        "whole_busbw_share": min((row["share"] for row in rows if not row["broken"]), default=None),
        "step_p99_over_theory": ratios[rank - 1] if ratios else None,
    }
