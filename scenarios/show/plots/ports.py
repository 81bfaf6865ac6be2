"""Draws the payload per plane of a host whose NIC ports change, beside what its live ports can
carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import (
    PLANES,
    area,
    fault_area,
    fault_bands,
    legend,
    line,
    panels,
    per_run,
)
from testbed.results.summary import Run

POINTS = 160  # about as many as a column of text can show


def stacked(bins: pd.DataFrame, column: str, edges: Any, planes: int, line_bps: float) -> Any:
    """Return % of the host's line per plane (row) and bin (ns)."""
    width = edges[1] - edges[0]
    plane_bytes = np.zeros((planes, len(edges) - 1))
    for plane in range(planes):
        plane_bins = bins[bins["plane"] == plane]
        plane_bytes[plane], _ = np.histogram(
            plane_bins["t_ns"] + plane_bins["bin_ns"] / 2, bins=edges, weights=plane_bins[column]
        )
    return 100 * plane_bytes * 8e9 / width / line_bps


def expected_line(
    run: Run, host: str, begin: float, end: float, planes: int
) -> tuple[list[float], list[float]]:
    """Return corners (µs, % of line) of the share of live ports, all until the first change."""
    phases = sorted({(row.at_ns, row.live) for row in run.ports if row.host == host})
    x, y = [0.0], [100.0]
    for at, live in phases:
        x += [(at - begin) / 1e3] * 2
        y += [y[-1], 100 * live / planes]
    return [*x, (end - begin) / 1e3], [*y, y[-1]]


@per_run(lambda stored, run: run.ports and len(stored.rows("goodput", run)))
def ports(stored: Stored, run: Run) -> Any:
    fabric, begin = stored.fabric(run), stored.begin_ns(run) or 0
    hosts = list(dict.fromkeys(row.host for row in run.ports))
    host = hosts[0]  # the first whose ports change
    bins = stored.rows("goodput", run)
    bins = bins[bins["host"] == int(host[1:])]
    bin_ns = float(bins["bin_ns"].max())
    end = max(row.until_ns for row in run.ports)
    width = bin_ns * max(1, round((end - begin) / POINTS / bin_ns))
    edges = np.arange(begin, end + 1, width)
    payload_line = fabric.payload_rate(run.kind)
    x = (edges[:-1] + width / 2 - begin) / 1e3
    last = (end - begin) / 1e3
    colours = [PLANES[plane % len(PLANES)] for plane in range(fabric.planes)]
    suffix = f"; one of {len(hosts)} hosts whose ports change" if len(hosts) > 1 else ""
    head = f"{run.transport} on {run.fabric}, seed {run.seed}{suffix}"
    sent = [
        (row.live, row.share)
        for row in run.ports
        if row.host == host and row.direction == "sent" and row.share is not None
    ]
    if sent and min(sent)[0] < fabric.planes:
        live, share = min(sent)
        at = f"on {live} of {fabric.planes} planes"
        head = f"{host} sends {100 * share:.0f} % of its line {at}\n{head}"
    fig, axes = panels(
        2, 3.5, head=head, x=stored.since(run), y="payload, % of the host's line", sharey=True
    )
    for ax, column, label in zip(
        axes, ("tx_bytes", "rx_bytes"), ("sends, without retransmissions", "receives"), strict=True
    ):
        fault_bands(ax, stored.outages(run), begin, last)
        shares = stacked(bins, column, edges, fabric.planes, payload_line)
        ax.stackplot(x, shares, colors=colours, linewidth=0.3, edgecolor="white", zorder=2)
        ax.plot(
            *expected_line(run, host, begin, end, fabric.planes),
            color="black",
            linewidth=0.9,
            linestyle="--",
            zorder=3,
        )
        ax.set_title(f"{host} {label}")
        ax.set(xlim=(0, last), ylim=(0, 112), yticks=[0, 25, 50, 75, 100])
    handles = [area(f"plane {plane}", colour) for plane, colour in enumerate(colours)]
    handles += [line("ideal, ports that are up", "black", "--", 0.9), fault_area()]
    return legend(fig, handles, 4 if fabric.planes > 4 else 3)
