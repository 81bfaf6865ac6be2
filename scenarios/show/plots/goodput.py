"""Draws goodput of a collective over time, faults shaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from scenarios.figures.costs import costs
from scenarios.figures.outages import changes, dead_at
from scenarios.figures.stored import Stored
from scenarios.show.answer import gbits
from scenarios.show.plots.style import (
    fault_area,
    fault_bands,
    headline,
    legend,
    line,
    look_of,
    per_seed,
    run_panels,
    run_title,
    title,
)
from testbed.results.summary import Run
from topologies.theory import bus_bandwidth, place_ranks

BINS = 120  # about as many as a column of text can show


def shown_ns(stored: Stored, beside: Run) -> float:
    """Return how much of the runs to show, ns: all, or with faults up to the last repair plus its
    fault's duration (at least 50 base RTTs). Else a slow transport would squeeze the time that
    matters into a corner."""
    runs = stored.ordered(beside.placement, beside.seed)
    longest = max(r.measured_ns for r in runs)
    ends = []
    for run in runs:
        begin = stored.begin_ns(run)
        for fault in run.failovers:
            if begin is None or fault.healed_ns is None:
                return longest
            ends.append(
                fault.healed_ns - begin + max(50 * run.base_rtt_ns, fault.healed_ns - fault.at_ns)
            )
    return min(longest, max(ends)) if ends else longest


def series(stored: Stored, run: Run, span: float) -> tuple[Any, Any] | None:
    """Return (µs since the first measured step, payload of all hosts in % of ideal), at centres of
    bins."""
    begin, bins = stored.begin_ns(run), stored.rows("goodput", run)
    if begin is None or bins.empty or not run.ideal_busbw_bps:
        return None
    bin_ns = float(bins["bin_ns"].max())
    end = begin + min(run.measured_ns, span)
    width = bin_ns * max(1, round(span / BINS / bin_ns))
    edges = np.arange(begin, end + 1, width)
    if len(edges) < 3:
        return None
    received, _ = np.histogram(bins["t_ns"] + bin_ns / 2, bins=edges, weights=bins["rx_bytes"])
    ideal = run.ideal_busbw_bps / 8 * run.ranks * width / 1e9
    return (edges[:-1] + width / 2 - begin) / 1e3, 100 * received / ideal


def capacity(
    stored: Stored, run: Run, ideal: float, begin: float, last: float
) -> tuple[list[float], list[float]]:
    """Return corners (µs, % of ideal) of what theory leaves."""
    outages, fabric = stored.outages(run), stored.fabric(run)
    times = [begin, *(t for t in changes(outages) if begin < t < begin + last * 1e3)]
    hosts, cache = place_ranks(fabric, run.placement), dict[frozenset[str], float]()
    x: list[float] = []
    y: list[float] = []
    for a, b in zip(times, [*times[1:], begin + last * 1e3], strict=True):
        dead = dead_at(outages, a)
        if dead not in cache:
            cache[dead] = 100 * bus_bandwidth(fabric, run.workload, hosts, sorted(dead)) / ideal
        x += [(a - begin) / 1e3, (b - begin) / 1e3]
        y += [cache[dead]] * 2
    return x, y


@per_seed(lambda stored, run: series(stored, run, shown_ns(stored, run)) is not None)
def goodput(stored: Stored, runs: list[Run]) -> Any:
    span = shown_ns(stored, runs[0])
    curves = [curve for run in runs if (curve := series(stored, run, span)) is not None]
    rates: dict[str, float | None] = {row.transport: row.during_bps for row in costs(runs)}
    when = "with links down"
    if not any(rates.values()):
        rates, when = {run.transport: run.busbw_bps for run in runs}, "over all steps"
    head = headline(
        f"Gb/s per host {when}",
        rates,
        gbits,
        f"{title(runs[0])} goodput, {runs[0].placement} ranks",
    )
    fig, shown = run_panels(
        stored,
        runs,
        head,
        height=1.3 + 1.05 * len(runs),
        y="payload received, % of ideal",
        sharey=True,
    )
    last = max(float(x[-1]) for x, _ in curves)
    broken = any(
        outage.begin - (stored.begin_ns(run) or 0) < last * 1e3
        for _, run in shown
        for outage in stored.outages(run)
    )
    for (ax, run), (x, y) in zip(shown, curves, strict=True):
        begin = stored.begin_ns(run) or 0
        fault_bands(ax, stored.outages(run), begin, last * 1.02, 118)
        if broken:
            ax.plot(
                *capacity(stored, run, run.ideal_busbw_bps or 1.0, begin, last * 1.02),
                color="black",
                linewidth=0.8,
                linestyle="--",
            )
        ax.axhline(100, color="black", linewidth=0.8, linestyle=":")
        ax.plot(x, y, color=look_of(stored, run.transport)[0], linewidth=1.1)
        cut = (
            f", first {span / 1e3:,.0f} of {run.measured_ns / 1e3:,.0f} µs"
            if run.measured_ns > 1.05 * span
            else ""
        )
        run_title(ax, stored, run, cut)
        ax.set(xlim=(0, last * 1.02), ylim=(0, 126), yticks=[0, 50, 100])
    lines = [line("ideal, all links", "black", ":")]
    if broken:
        lines += [line("ideal, links that are up", "black", "--"), fault_area()]
    return legend(fig, lines, 3)
