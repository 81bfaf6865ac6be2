"""What a world showed: the figures of a case, over its seeds, from a results directory. Theory comes in the same shape.

Times are pooled over the seeds, so that a percentile has the samples it needs; all else is the median over them.
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
from scenarios.sets.paper.claims import Run, value_of

MEDIAN, TAIL, COUNT = "median", "tail", "count"
BOUNDS = {MEDIAN: 0.05, TAIL: 0.15, COUNT: 0.05}
"""How far two columns may part, by kind of figure (the issue's; a count is held to a median's)."""


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
"""In the order of the table. ``p50`` to ``p99`` are of steps, or of messages where there are no steps."""
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class Seen:
    """A figure. ``n``: samples that it is of. ``counts``: of each run, where it is a share of packets; ``values``: of each run, where it is
    one of a failure, of which a run has but one."""

    value: float
    n: int = 0
    counts: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Point:
    """A case at one setting: figure -> what was seen."""

    where: str  # the setting in words; "" without a sweep
    figures: dict[str, Seen]
    runs: tuple[Run, ...] = ()  # that ended well


def points(stored: Stored) -> list[Point]:
    """One per setting, in the scenario's order; of runs that ended well. Raises :class:`scenarios.figures.stored.ResultsError`."""
    made = []
    for variant in stored.variants:
        runs = [run for run in variant.runs if run["outcome"] == "done" and not run["wrong"]]
        where = variant.settings_words.strip().replace("\n", ", ")
        made.append(Point(where, figures_of(runs, times_of(variant, runs)) if runs else {}, tuple(runs)))
    return made


def times_of(stored: Stored, runs: Sequence[Run]) -> pd.Series[Any]:
    """Of all steps of all runs, or of all messages but each flow's first, as many as it has in flight: those are posted at once, before
    anything waits, and take less than any after them. ns.
    """
    found: list[pd.Series[Any]] = []
    first = int(stored.manifest["scenario"].get("workload", {}).get("outstanding", 0))
    for run in runs:
        if run["steps"]:
            found.append(stored.step_times(dict(run)))
        else:
            rows = stored.rows("messages", dict(run))
            rows = rows[rows["number"] >= first]
            found.append(rows["end_ns"] - rows["start_ns"])
    return pd.concat(found, ignore_index=True)


def figures_of(runs: Sequence[Run], times: pd.Series[Any]) -> dict[str, Seen]:
    """What these runs, which differ in their seeds alone, can say."""
    made: dict[str, Seen] = {}
    broken = any(run.get("failovers") for run in runs)
    if not broken:  # times with and without a cable are two things: no percentile is of both
        for id, q in PERCENTILES.items():
            value = percentile(times, q)
            if value is not None:
                made[id] = Seen(float(value), len(times))
    told: dict[str, Key] = _OF_FAILURES if broken else {"goodput": goodput}  # broken, it is of both things as well
    for id, figure in told.items():
        values = [value for value in (value_of(run, figure) for run in runs) if value is not None]
        if len(values) == len(runs):  # a median of what some runs lack would be of other runs than the rest
            made[id] = Seen(statistics.median(values), len(values), values=tuple(values) if broken else ())
    for id in ("marked", "trimmed", "lost"):
        counts = tuple(int(run["packets"][id]) for run in runs)
        share = statistics.median(100 * n / run["packets"]["sent"] for n, run in zip(counts, runs, strict=True))
        made[id] = Seen(share, sum(int(run["packets"]["sent"]) for run in runs), counts)
    return made


def goodput(run: Run) -> float | None:
    """Bus bandwidth of a collective, payload of all flows together; bits/s."""
    if run["steps"]:
        return value_of(run, "busbw_bps")
    rates = [group["goodput_bps"] for group in run.get("groups", {}).values()]
    return None if not rates or None in rates else float(sum(rates))


def since(key: str) -> Callable[[Run], float | None]:
    """From the first fault to what ``failovers`` says under ``key``, ns."""

    def took(run: Run) -> float | None:
        at, then = value_of(run, "failovers.0.at_ns"), value_of(run, f"failovers.0.{key}")
        return None if at is None or then is None else then - at

    return took


_OF_FAILURES: dict[str, Key] = {
    "healthy": "failure_cost.healthy_step_ns",
    "slowest": "step_time_ns.max",
    "left": since("last_on_dead_path_ns"),
    "found": since("detected_ns"),
    "cost": "failure_cost.extra_ns",
}
