"""Draws bytes per cable from T0s to T1s: a spray spreads them, a hash piles them up."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import (
    colour_bar,
    headline,
    heat,
    mark_planes,
    per_seed,
    run_panels,
    run_title,
)
from testbed.results.summary import Run

_UPLINK = re.compile(r"p(\d+)-t0-(\d+)-u(\d+)")
MOST = 3.0  # top of the colour scale, in means of a panel


def uplinks(stored: Stored, run: Run) -> Any:
    """Return bytes per T0 (row) and uplink (column, plane by plane); None if all are 0."""
    rows, fabric = stored.rows("counters", run), stored.fabric(run)
    if not len(rows) or "admitted_bytes" not in rows:
        return None
    totals = np.zeros((fabric.t0_per_plane, fabric.planes * fabric.t1_per_plane))
    for port, n in zip(rows["port"], rows["admitted_bytes"], strict=True):
        if match := _UPLINK.fullmatch(port):
            plane, t0, t1 = map(int, match.groups())
            # uplinks count within a site
            totals[t0, plane * fabric.t1_per_plane + t1 % fabric.t1_per_plane] += float(n)
    return totals if totals.sum() > 0 else None


@per_seed(lambda stored, run: uplinks(stored, run) is not None)
def path_heat(stored: Stored, runs: list[Run]) -> Any:
    rows = [0.14 * min(8, stored.fabric(r).t0_per_plane) for r in runs]
    relative = {run.run: (sent := uplinks(stored, run)) / sent.mean() for run in runs}
    head = headline(
        "Most loaded uplink, in means",
        {run.transport: float(relative[run.run].max()) for run in runs},
        lambda share: f"{share:.2f}",
        f"Load of the T0s' uplinks, {runs[0].placement} ranks",
    )
    height = 1.15 + sum(rows) + 0.36 * len(runs)
    fig, shown = run_panels(
        stored, runs, head, height=height, sharex=False, gridspec_kw={"height_ratios": rows}
    )
    for ax, run in shown:
        fabric, own = stored.fabric(run), relative[run.run]
        picture = heat(ax, own, "cividis", MOST)
        mark_planes(ax, fabric.planes, fabric.t1_per_plane, "x", color="white", linewidth=1.5)
        ax.set_xlabel("")
        ax.set_yticks(ticks := sorted({0, fabric.t0_per_plane - 1}), [f"T0 {i}" for i in ticks])
        ax.tick_params(length=0, pad=1.5, labelsize=6.5)
        ax.spines[:].set_visible(False)
        run_title(ax, stored, run, f": {own.min():.2f} to {own.max():.2f} × mean")
    colour_bar(
        fig,
        picture,
        [ax for ax, _ in shown],
        "bytes that a T0 sends over a cable [mean of all cables]",
    )
    return fig
