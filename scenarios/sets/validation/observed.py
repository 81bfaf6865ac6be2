"""Reads a case's figures in one world from a results directory.

Times are pooled over the seeds, so that a percentile has enough samples. Every other figure is the
median over the seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from scenarios.figures.stats import percentile
from scenarios.figures.stored import Stored
from scenarios.sets.paper.claims import Figure as Key
from scenarios.sets.paper.claims import value_of
from testbed.results.summary import Run

MEDIAN, TAIL, COUNT = "median", "tail", "count"
BOUNDS = {MEDIAN: 0.05, TAIL: 0.15, COUNT: 0.05}  # by kind of figure


@dataclass(frozen=True)
class Figure:
    """``unit``: "ns", "bit/s" or "%" (of all packets sent)."""

    id: str
    title: str
    unit: str
    kind: str


FIGURES = {
    f.id: f
    for f in (
        Figure("p50", "time, median", "ns", MEDIAN),
        Figure("p90", "time, 90th percentile", "ns", TAIL),
        Figure("p99", "time, 99th percentile", "ns", TAIL),
        Figure("healthy", "healthy step", "ns", MEDIAN),
        Figure("slowest", "slowest step", "ns", TAIL),
        Figure("left", "last packet on a dead path", "ns", MEDIAN),
        Figure("found", "dead paths given up", "ns", MEDIAN),
        Figure("cost", "extra time through the failure", "ns", MEDIAN),
        Figure("goodput", "goodput", "bit/s", MEDIAN),
        Figure("marked", "packets marked", "%", COUNT),
        Figure("trimmed", "packets trimmed", "%", COUNT),
        Figure("lost", "packets lost", "%", COUNT),
    )
}
"""In the order of the table. ``p50`` to ``p99`` are times of steps, else of messages."""
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class Seen:
    """``n``: number of samples. ``counts``: of each run, for a share of packets. ``values``: of
    each run, for a figure that a run has once."""

    value: float
    n: int = 0
    counts: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Point:
    where: str  # the setting in words; "" without a sweep
    figures: dict[str, Seen]
    runs: tuple[Run, ...] = ()  # those that ended well


def points(stored: Stored) -> list[Point]:
    """Return one point per setting from runs that ended well. Raises
    :class:`scenarios.figures.stored.ResultsError`."""
    result = []
    for variant in stored.variants:
        runs = [run for run in variant.runs if run.outcome == "done" and not run.wrong]
        setting = variant.settings_words.strip().replace("\n", ", ")
        result.append(
            Point(setting, figures_of(runs, times_of(variant, runs)) if runs else {}, tuple(runs))
        )
    return result


def times_of(stored: Stored, runs: Sequence[Run]) -> pd.Series[Any]:
    """Return times of all steps, or messages, ns. As many first messages as a flow has in flight
    are dropped: posted before any queue builds up, they are fast."""
    series: list[pd.Series[Any]] = []
    first = stored.manifest.scenario.workload.outstanding
    for run in runs:
        if run.steps:
            series.extend(stored.step_times(run).values())
        else:
            rows = stored.rows("messages", run)
            rows = rows[rows["number"] >= first]
            series.append(rows["end_ns"] - rows["start_ns"])
    return pd.concat(series, ignore_index=True)


def figures_of(runs: Sequence[Run], times: pd.Series[Any]) -> dict[str, Seen]:
    result: dict[str, Seen] = {}
    has_failure = any(run.failovers for run in runs)
    if not has_failure:  # times with and without a cable must not be mixed in a percentile
        for id, q in PERCENTILES.items():
            value = percentile(times, q)
            if value is not None:
                result[id] = Seen(float(value), len(times))
    # a failure mixes goodput, too
    single_figures: dict[str, Key] = FAILURE_FIGURES if has_failure else {"goodput": goodput}
    for id, figure in single_figures.items():
        values = [value for value in (value_of(run, figure) for run in runs) if value is not None]
        # if runs lack the figure, its median would be of other runs than those of other figures
        if len(values) == len(runs):
            result[id] = Seen(
                statistics.median(values), len(values), values=tuple(values) if has_failure else ()
            )
    for id in ("marked", "trimmed", "lost"):
        counts = tuple(int(getattr(run.packets, id)) for run in runs)
        share = statistics.median(
            100 * n / run.packets.sent for n, run in zip(counts, runs, strict=True)
        )
        result[id] = Seen(share, sum(int(run.packets.sent) for run in runs), counts)
    return result


def goodput(run: Run) -> float | None:
    """Return a collective's bus bandwidth, or all flows' payload, bits/s."""
    if run.steps:
        return value_of(run, "busbw_bps")
    rates = [group.goodput_bps for group in run.groups.values() if group.goodput_bps is not None]
    return sum(rates) if rates and len(rates) == len(run.groups) else None


def since(key: str) -> Callable[[Run], float | None]:
    """Make a figure: time from the first fault to ``key`` in ``failovers``, ns."""

    def duration_ns(run: Run) -> float | None:
        fault_ns, event_ns = value_of(run, "failovers.0.at_ns"), value_of(run, f"failovers.0.{key}")
        return None if fault_ns is None or event_ns is None else event_ns - fault_ns

    return duration_ns


FAILURE_FIGURES: dict[str, Key] = {
    "healthy": "failure_cost.healthy_step_ns",
    "slowest": "step_time_ns.max",
    "left": since("last_on_dead_path_ns"),
    "found": since("detected_ns"),
    "cost": "failure_cost.extra_ns",
}
