"""Draws the cost of failures, with noise and all seeds, beside theory."""

from __future__ import annotations

from typing import Any

from scenarios.figures.costs import costs
from scenarios.figures.stored import Stored
from scenarios.show.cost_table import extra_time
from scenarios.show.plots.style import (
    GREY,
    area,
    headline,
    legend,
    line,
    look_of,
    panels,
    per_placement,
)
from testbed.results.summary import Run
from testbed.terminal import duration

BAND = "#DDDDDD"


@per_placement()
def failure_cost(stored: Stored, runs: list[Run]) -> Any:
    rows = [row for row in costs(runs) if row.extra_ns is not None]
    if not rows:
        return None
    x = (
        "goodput not delivered, as time [µs]"
        if rows[0].of_flows
        else "extra time over all steps [µs]"
    )
    head = headline(
        "Extra time through the failure",
        {row.transport: 0.0 if row.within_noise else row.extra_ns for row in rows},
        lambda extra: duration(extra) if extra else "within noise",
        f"{runs[0].placement} ranks{stored.settings_words}",
    )
    fig, (ax,) = panels(1, 1.35 + 0.36 * len(rows), head=head, x=x)
    for y, row in enumerate(rows):
        colour, marker = look_of(stored, row.transport)
        extras = [
            r.failure_cost.extra_ns for r in runs if r.transport == row.transport and r.failure_cost
        ]
        extras = [extra / 1e3 for extra in extras if extra is not None]
        size, is_noise = (row.noise or 0.0) / 1e3, row.within_noise
        ax.barh(y, 2 * size, 0.62, left=-size, color=BAND, linewidth=0, zorder=1)
        if not is_noise:  # within noise there is neither a loss nor a gain to draw
            ax.plot(
                [0, (row.extra_ns or 0.0) / 1e3],
                [y, y],
                color=colour,
                linewidth=4,
                solid_capstyle="butt",
                alpha=0.45,
                zorder=2,
            )
        style = {
            "color": colour,
            "markerfacecolor": "white" if is_noise else colour,
            "markersize": 4.5,
            "zorder": 3,
            "clip_on": False,
        }
        ax.plot(extras, [y] * len(extras), linestyle="none", marker=marker, **style)
        if row.ideal_extra_ns is not None:
            ax.plot(
                [row.ideal_extra_ns / 1e3] * 2,
                [y - 0.32, y + 0.32],
                color="black",
                linewidth=1.4,
                zorder=4,
            )
    names = [
        row.transport + ("" if row.fabric == rows[0].fabric else f" on {row.fabric}")
        for row in rows
    ]
    labels = [
        f"{name}, n = {row.n}\n{extra_time(row)}" for name, row in zip(names, rows, strict=True)
    ]
    ax.set_yticks(range(len(rows)), labels, fontsize=6.5)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.axvline(0, color="black", linewidth=0.6)
    ax.margins(x=0.06)
    ax.locator_params(axis="x", nbins=5)
    ax.grid(axis="x")
    handles = [line("a seed (bar: median)", GREY, marker="o")]
    if any(row.within_noise for row in rows):
        handles.append(line("within noise", GREY, marker="o", markerfacecolor="white"))
    if any(row.noise for row in rows):
        handles.append(area("noise", BAND))
    if any(row.ideal_extra_ns is not None for row in rows):
        handles.append(line("theory", marker="|", markersize=8, markeredgewidth=1.4))
    return legend(fig, handles)
