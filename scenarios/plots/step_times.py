"""How long collectives took: the share of steps that were done within a time, per transport."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from scenarios.plots.stored import Stored
from scenarios.plots.style import colour_and_marker, figure, save, shown_ms, title
from scenarios.stats import QUANTILES, spread


def draw(stored: Stored, directory: Path) -> list[Path]:
    """One figure per placement; the seeds of a transport are pooled."""
    made: list[Path] = []
    for placement, _ in stored.groups():
        runs = stored.ordered(placement)
        pooled = {
            t: pd.concat([stored.step_times(r) for r in runs if r["transport"] == t]) for t in dict.fromkeys(r["transport"] for r in runs)
        }
        pooled = {t: times for t, times in pooled.items() if len(times)}
        if not pooled:
            continue
        ideal = next(r["ideal_step_ns"] for r in runs)
        from matplotlib.lines import Line2D

        with figure(1, 2.3 + 0.28 * len(pooled)) as (fig, ax):
            top = max(float(times.max()) for times in pooled.values())
            low = min(ideal, *(float(times.min()) for times in pooled.values()))
            log = top > 10 * low
            unit, name = (1e9, "s") if top >= 2e9 else (1e6, "ms")
            handles = []
            ax.axvline(ideal / unit, color="black", linewidth=0.8, linestyle=":")
            at = (ideal / unit, 1.0)
            ax.annotate("ideal", at, xytext=(-3, 3), ha="right", textcoords="offset points", fontsize=6.5, annotation_clip=False)
            for transport, times in pooled.items():
                colour, marker = colour_and_marker(transport)
                ordered = times.sort_values().to_numpy()
                n = len(ordered)
                share = [(i + 1) / n for i in range(n)]
                stats = spread(times)
                text = ", ".join(f"{q.replace('999', '99.9')} {shown_ms(stats[q])}" for q in (*QUANTILES, "max") if stats[q] is not None)
                ax.step([ordered[0] / unit, *(ordered / unit)], [0, *share], where="post", color=colour)
                marks = [(value, p) for q, p in (*QUANTILES.items(), ("max", 1.0)) if (value := stats[q]) is not None]
                ax.plot(
                    [m[0] / unit for m in marks],
                    [m[1] for m in marks],
                    linestyle="none",
                    marker=marker,
                    markersize=4.5,
                    color=colour,
                    clip_on=False,
                )
                handles.append(Line2D([], [], color=colour, marker=marker, markersize=4.5, label=f"{transport}, n = {n}: {text}"))
            if log:
                ax.set_xscale("log")
                plain_log(ax, low / unit, top / unit)
            else:
                ax.set_xlim(0, max(top, ideal) / unit * 1.06)
            ax.set_ylim(0, 1)
            ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
            ax.set_xlabel(f"time of one {title(runs[0]).lower()}, slowest rank [{name}]" + (", log scale" if log else ""))
            ax.set_ylabel("steps done within")
            ax.set_title(f"{title(runs[0])} step times, {placement} ranks", pad=11)
            ax.grid(axis="y", linewidth=0.3, color="#DDDDDD")
            fig.legend(handles=handles, loc="outside lower left", handlelength=2.0)
            made += save(fig, directory, f"step-times-{placement}")
    return made


def plain_log(ax: object, low: float, high: float) -> None:
    """Ticks a person reads: 0.5 1 2 5 10, not 10^0."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ticks = [m * 10.0**e for e in range(-6, 7) for m in (1, 2, 5) if low * 0.6 <= m * 10.0**e <= high * 1.5]
    ax.set_xlim(low * 0.8, high * 1.2)  # type: ignore[attr-defined]
    axis = ax.xaxis  # type: ignore[attr-defined]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
