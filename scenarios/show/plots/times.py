"""Draws times of steps and transfers: the share done within a time, and below it the tail on a log
scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scenarios.figures.stats import QUANTILES, spread
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import (
    headline,
    legend,
    line,
    look_of,
    note,
    panels,
    per_placement,
    title,
)
from testbed.results.summary import Run
from testbed.terminal import duration

Curve = tuple[str, str]  # transport, job
FEWEST_FOR_TAIL = 20  # values of a transport: fewer show no more than the upper panel [ours]
FEWEST_SEEDS = 3  # [ours]
LONGEST_LABEL = 48  # in characters
MARKERS = 5  # along a curve: they tell curves apart without colours
DASHES = ("-", "--", ":", "-.")  # of a transport's jobs
POINTS = 500  # evenly in the upper panel, and as many in the tail; fewer values are all drawn


@per_placement(lambda stored, run: len(stored.steps))
def step_times(stored: Stored, runs: list[Run]) -> Any:
    x = (
        "time of one "
        f"{'training step' if runs[0].workload == 'job' else title(runs[0]).lower()}, slowest "
        "rank"
    )
    ideal = next((r.ideal_step_ns for r in runs if r.ideal_step_ns is not None), None)
    return _times(stored, runs, "steps", x, stored.step_times, ideal)


@per_placement(lambda stored, run: len(stored.steps))
def transfer_times(stored: Stored, runs: list[Run]) -> Any:
    return _times(stored, runs, "transfers", "time of one transfer", stored.transfer_times)


@per_placement(lambda stored, run: run.typical_step_ns)
def seeds(stored: Stored, runs: list[Run]) -> Any:
    """Draw how far seeds' typical steps are from the median: how well one run predicts the next."""
    apart = apart_of(runs)
    if not apart or max(map(len, apart.values())) < FEWEST_SEEDS:
        return None
    head = headline(
        "Seeds lie apart by",
        {name: max(values) - min(values) for name, values in apart.items()},
        lambda percent: f"{percent:.1f} %",
        f"Typical steps of seeds{stored.settings_words}",
    )
    fig, (ax,) = panels(
        1, 1.3 + 0.3 * len(apart), head=head, x="off the median of the transport, %"
    )
    for place, (name, values) in enumerate(reversed(apart.items())):
        colour, marker = look_of(stored, name)
        ax.plot(
            values,
            [place] * len(values),
            linestyle="",
            marker=marker,
            markersize=5,
            alpha=0.7,
            color=colour,
        )
    names = [
        f"{name}, {len(values)} seeds: {min(values):+.1f} to {max(values):+.1f} %"
        for name, values in reversed(apart.items())
    ]
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.axvline(0, color="#777777", linewidth=0.8)
    return fig


def apart_of(runs: Sequence[Run]) -> dict[str, list[float]]:
    steps: dict[str, list[float]] = {}
    for run in runs:
        if run.outcome == "done" and run.typical_step_ns:
            steps.setdefault(run.transport, []).append(run.typical_step_ns)
    return {
        name: [100 * (value / float(np.median(values)) - 1) for value in sorted(values)]
        for name, values in steps.items()
    }


def curve(n: int) -> Any:
    """Return ranks, 0 to ``n``, of drawn points; rank 0 is the curve's begin."""
    body, tail = np.linspace(1, n, POINTS), n + 1 - np.geomspace(1, n, POINTS)
    return np.unique(np.concatenate([[0], body, tail]).astype(int))


def _label(name: str, ordered: Any) -> str:
    stats = spread(pd.Series(ordered))
    known = zip((*QUANTILES, "max"), (stats.p50, stats.p99, stats.p999, stats.max), strict=True)
    text = ", ".join(
        f"{q.replace('999', '99.9')} {duration(time)}" for q, time in known if time is not None
    )
    head = f"{name}, n = {len(ordered):,}:"
    return f"{head} {text}" if len(head) + len(text) < LONGEST_LABEL else f"{head}\n{text}"


def _times(
    stored: Stored,
    runs: Sequence[Run],
    many: str,
    label: str,
    of: Callable[[Run], dict[str, pd.Series[Any]]],
    ideal: float | None = None,
) -> Any:
    """Pool a transport's seeds. ``of`` returns a run's times by job ("" without jobs), ns;
    ``ideal``: without losses and queues."""
    series: dict[Curve, list[pd.Series[Any]]] = {}
    for run in runs:
        for job, values in of(run).items():
            series.setdefault((run.transport, job), []).append(values)
    pooled = {
        curve: pd.concat(each).sort_values().to_numpy()
        for curve, each in series.items()
        if any(map(len, each))
    }
    if not pooled:
        return None
    most = max(map(len, pooled.values()))
    tail = most >= FEWEST_FOR_TAIL
    top = max(float(ordered[-1]) for ordered in pooled.values())
    low = min(
        [float(ordered[0]) for ordered in pooled.values()] + ([] if ideal is None else [ideal])
    )
    log = top > 10 * low
    unit, name = (1e6, "ms") if top >= 2e7 else (1e3, "µs")
    jobs = list(dict.fromkeys(job for _, job in pooled))
    labels = [
        _label(f"{transport}, job {job}" if len(jobs) > 1 else transport, ordered)
        for (transport, job), ordered in pooled.items()
    ]
    height = (
        2.1
        + 0.26 * len(pooled)
        + 0.12 * sum(label.count("\n") for label in labels)
        + (1.5 if tail else 0)
    )
    fig, axes = panels(
        2 if tail else 1, height, x=f"{label} [{name}]" + (", log scale" if log else "")
    )
    ax = axes[0]
    if ideal is not None:
        for panel in axes:
            panel.axvline(ideal / unit, color="black", linewidth=0.8, linestyle=":")
        note(ax, "ideal", (ideal / unit, 1.0), (-3, 3), ha="right")
    handles = []
    for k, ((transport, job), ordered) in enumerate(pooled.items()):
        colour, marker = look_of(stored, transport)
        n = len(ordered)
        ranks = curve(n)
        x = ordered[np.maximum(ranks - 1, 0)] / unit
        marked = [
            min(n, round((i + 0.5 + k / len(pooled)) * n / MARKERS)) for i in range(MARKERS - 1)
        ] + [n]
        style: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "linestyle": DASHES[jobs.index(job) % len(DASHES)],
            "linewidth": 1.3,
        }
        at = np.searchsorted(ranks, marked).tolist()
        steps = {
            **style,
            "markersize": 4,
            "clip_on": False,
            "drawstyle": "steps-post",
            "markevery": at,
        }
        ax.plot(x, ranks / n, **steps)
        # n - i values are longer than the i-th shortest of n; the curve ends at the longest
        if tail:
            axes[1].plot(x, np.maximum(n - ranks, 1) / n, **steps)
        handles.append(line(labels[k], markersize=4.5, **style))
    if log:
        ax.set_xscale("log")
        plain_log(ax, low / unit, top / unit)
    else:
        ax.set_xlim(0, max(top, ideal or 0) / unit * 1.06)
    ax.set_ylim(0, 1)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    ax.set_ylabel(f"share of {many} done")
    if tail:
        shares = [s for s in (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6) if s >= 0.5 / most]
        axes[1].set_yscale("log")
        axes[1].set_yticks(shares, [f"{100 * s:g} %" for s in shares])
        axes[1].minorticks_off()
        axes[1].set(ylim=(0.7 / most, 1), ylabel="share that took longer")
    for panel in axes:
        panel.grid(axis="y")
    seeds = len({r.seed for r in runs})
    where = (
        f"{runs[0].placement} ranks"
        + (f", {seeds} seeds pooled" if seeds > 1 else "")
        + stored.settings_words
    )
    what = many.removesuffix("s")
    slowest: dict[str, float | None] = {}
    for (transport, _), ordered in pooled.items():
        slowest[transport] = max(slowest.get(transport) or 0.0, float(ordered[-1]))
    head = headline(f"Slowest {what}", slowest, duration, f"{title(runs[0])} {what} times, {where}")
    ax.set_title(head, pad=11)
    return legend(fig, handles, 1)


def plain_log(ax: Any, low: float, high: float) -> None:
    """Set ticks in plain numbers: 0.5 1 2 5 10, not 10^0."""
    digits = (1, 2, 5) if high < 1000 * low else (1,)  # their labels would run into each other
    ticks = [
        m * 10.0**e for e in range(-6, 7) for m in digits if low * 0.6 <= m * 10.0**e <= high * 1.5
    ]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_xlim(low * 0.8, high * 1.2)  # after the ticks, which widen it
    ax.minorticks_off()
