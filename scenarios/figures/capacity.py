"""Computes how close a collective comes to what theory allows, given what is broken."""

from __future__ import annotations

import math
from collections.abc import Callable

from scenarios.figures.flows import rate_in
from scenarios.figures.measure import Run
from scenarios.figures.outages import Failures, changes, dead_at
from testbed.results import summary
from topologies.theory import COLLECTIVES, bus_bandwidth, collective_step_ns

SETTLE_RTTS = 20
REGROW_RTTS = 60
"""NSCC's windows grow by only one or two packets per RTT at these rates [ours]."""
FEWEST_FOR_P99 = 1000

Theory = Callable[[frozenset[str]], float]


def theory_of(run: Run) -> Theory:
    cache: dict[frozenset[str], float] = {}

    def bandwidth_left(dead: frozenset[str]) -> float:
        if dead not in cache:
            cache[dead] = bus_bandwidth(
                run.fabric, run.record.workload, run.record.ranks, sorted(dead)
            )
        return cache[dead]

    return bandwidth_left


def stretches(failures: Failures) -> list[tuple[float, float, frozenset[str]]]:
    """Return (begin, end, dead cables) of the measured window without settling times."""
    run, outages = failures.run, failures.outages
    begin, end = run.window
    times = changes(outages)
    # theory does not cover slow links
    slowed = [(o.begin, o.end) for o in outages if o.entry.slows]
    edges = sorted({begin, *(t for t in times if begin < t < end)})
    settle = {
        t: (
            SETTLE_RTTS
            if dead_at(outages, t) - dead_at(outages, math.nextafter(t, -math.inf))
            else REGROW_RTTS
        )
        * run.base_rtt_ns
        for t in times
    }
    rows = []
    for a, b in zip(edges, [*edges[1:], end], strict=True):
        a = max([a, *(t + settle[t] for t in times if t <= a)])
        if a < b and not any(x < b and a < y for x, y in slowed):
            rows.append((a, b, dead_at(outages, a)))
    return rows


def bandwidths(failures: Failures, bandwidth_left: Theory) -> list[summary.Pool]:
    """Make one row per capacity that theory leaves, healthy stretches apart. A row needs at least
    20 base RTTs in all."""
    pooled: dict[tuple[float, bool], list[tuple[float, float]]] = {}
    for begin, end, dead in stretches(failures):
        pooled.setdefault((float(round(bandwidth_left(dead))), bool(dead)), []).append((begin, end))
    run, rows = failures.run, []
    for (theory, broken), spans in pooled.items():
        duration = sum(end - begin for begin, end in spans)
        if duration < SETTLE_RTTS * run.base_rtt_ns or theory <= 0:
            continue
        bits = sum(
            (rate_in(run.goodput, span) or 0.0) * (span[1] - span[0]) / 1e9 for span in spans
        )
        # the rate of each rank is the bus bandwidth
        busbw = bits * 1e9 / duration / len(run.record.ranks)
        rows.append(
            summary.Pool(
                broken=broken, ns=duration, busbw_bps=busbw, theory_bps=theory, share=busbw / theory
            )
        )
    return rows


def step_ratios(failures: Failures, bandwidth_left: Theory) -> list[float]:
    run, outages = failures.run, failures.outages
    kind, ranks, size = run.record.workload, len(run.record.ranks), run.record.message_bytes
    times = changes(outages)
    ratios = []
    by_step = run.whole_steps.groupby("step")
    for begin, end, longest in zip(
        by_step["start_ns"].min(), by_step["end_ns"].max(), run.step_times, strict=True
    ):
        if any(o.entry.slows and o.begin < end and begin < o.end for o in outages):
            continue
        least = min(
            bandwidth_left(dead_at(outages, t))
            for t in [begin, *(t for t in times if begin < t < end)]
        )
        ratios.append(longest / collective_step_ns(kind, ranks, size, least))
    return ratios


def fill(entry: summary.Run, failures: Failures) -> None:
    if entry.workload not in COLLECTIVES:
        return
    bandwidth_left = theory_of(failures.run)
    rows = entry.outside_busbw = bandwidths(failures, bandwidth_left)
    ratios = sorted(step_ratios(failures, bandwidth_left))
    rank = math.ceil(0.99 * len(ratios)) if len(ratios) >= FEWEST_FOR_P99 else len(ratios)
    entry.outside_busbw_share = min((row.share for row in rows if row.broken), default=None)
    entry.whole_busbw_share = min((row.share for row in rows if not row.broken), default=None)
    entry.step_p99_over_theory = ratios[rank - 1] if ratios else None
