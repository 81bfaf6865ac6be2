"""Step times of collectives: the share of steps done within a time, and below it the tail, the share that took longer, on a log scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scenarios.figures.stats import QUANTILES, spread
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import colour_and_marker, figure, save, title
from testbed.terminal import seconds

FEWEST_FOR_TAIL = 20
"""Steps that some transport must have for a tail: fewer show no more than the upper panel [ours]."""
MARKERS = 5
"""Markers along a curve, so that it can be told without its colour."""


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per placement; the seeds of a transport are pooled."""
    files: list[Path] = []
    for placement, _ in stored.groups():
        runs = stored.ordered(placement) if len(stored.steps) else []
        pooled = {
            t: pd.concat([stored.step_times(r) for r in runs if r["transport"] == t]) for t in dict.fromkeys(r["transport"] for r in runs)
        }
        pooled = {t: times for t, times in pooled.items() if len(times)}
        if pooled:
            files += _figure(stored, directory, runs, pooled, placement)
    return files


def _figure(stored: Stored, directory: Path, runs: list[dict[str, Any]], pooled: dict[str, pd.Series[Any]], placement: str) -> list[Path]:
    from matplotlib.lines import Line2D

    ideal = next(r["ideal_step_ns"] for r in runs)
    most = max(map(len, pooled.values()))
    tail = most >= FEWEST_FOR_TAIL
    top = max(float(times.max()) for times in pooled.values())
    low = min(ideal, *(float(times.min()) for times in pooled.values()))
    log = top > 10 * low
    unit, name = (1e9, "s") if top >= 2e9 else (1e6, "ms")
    height = 2.1 + 0.26 * len(pooled)
    with figure(2 if tail else 1, height + (1.5 if tail else 0), sharex=True, squeeze=False) as (fig, axes):
        ax = axes[0, 0]
        handles = []
        for panel in axes[:, 0]:
            panel.axvline(ideal / unit, color="black", linewidth=0.8, linestyle=":")
        at = (ideal / unit, 1.0)
        ax.annotate("ideal", at, xytext=(-3, 3), ha="right", textcoords="offset points", fontsize=6.5, annotation_clip=False)
        for k, (transport, times) in enumerate(pooled.items()):
            colour, marker = colour_and_marker(transport)
            ordered = times.sort_values().to_numpy() / unit
            n = len(ordered)
            stats = spread(times)
            text = ", ".join(f"{q.replace('999', '99.9')} {seconds(stats[q])}" for q in (*QUANTILES, "max") if stats[q] is not None)
            style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4, "clip_on": False, "drawstyle": "steps-post"}
            style["markevery"] = [min(n, round((i + 0.5 + k / len(pooled)) * n / MARKERS)) for i in range(MARKERS - 1)] + [n]
            ax.plot([ordered[0], *ordered], [i / n for i in range(n + 1)], **style)
            if tail:  # n - i steps are longer than the i-th shortest of n; the curve ends at the longest
                axes[1, 0].plot([ordered[0], *ordered], [(n - i) / n for i in range(n)] + [1 / n], **style)
            handles.append(Line2D([], [], color=colour, marker=marker, markersize=4.5, label=f"{transport}, n = {n}: {text}"))
        if log:
            ax.set_xscale("log")
            plain_log(ax, low / unit, top / unit)
        else:
            ax.set_xlim(0, max(top, ideal) / unit * 1.06)
        ax.set_ylim(0, 1)
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        ax.set_ylabel("share of steps done")
        ax.grid(axis="y", linewidth=0.3, color="#DDDDDD")
        if tail:
            shares = [s for s in (1.0, 0.1, 0.01, 1e-3, 1e-4) if s >= 0.5 / most]
            axes[1, 0].set_yscale("log")
            axes[1, 0].set_ylim(0.7 / most, 1)
            axes[1, 0].set_yticks(shares, [f"{100 * s:g} %" for s in shares])
            axes[1, 0].minorticks_off()
            axes[1, 0].set_ylabel("share that took longer")
            axes[1, 0].grid(axis="y", linewidth=0.3, color="#DDDDDD")
        axes[-1, 0].set_xlabel(f"time of one {title(runs[0]).lower()}, slowest rank [{name}]" + (", log scale" if log else ""))
        seeds = len({r["seed"] for r in runs})
        pools = f"\n{seeds} seeds pooled" if seeds > 1 else ""
        ax.set_title(f"{title(runs[0])} step times, {placement} ranks{pools}{stored.settings_words}", pad=11)
        fig.legend(handles=handles, loc="outside lower left", handlelength=2.0)
        return save(fig, directory, f"step-times-{placement}{stored.tag}", runs)


def plain_log(ax: object, low: float, high: float) -> None:
    """Set ticks in plain numbers: 0.5 1 2 5 10, not 10^0."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ticks = [m * 10.0**e for e in range(-6, 7) for m in (1, 2, 5) if low * 0.6 <= m * 10.0**e <= high * 1.5]
    ax.set_xlim(low * 0.8, high * 1.2)  # type: ignore[attr-defined]
    axis = ax.xaxis  # type: ignore[attr-defined]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
