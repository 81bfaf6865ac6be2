"""The payload that a host whose NIC ports change sends and receives over time, per plane, beside what its live ports can carry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import FAULT, PLANES, fault_bands, figure, save

POINTS = 160
"""Points over time: about as many as a column of text can show."""


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per run of flows in which NIC ports changed, for the first such host."""
    runs = [run for run in stored.shown_runs if run.get("ports") and len(stored.rows("goodput", run))]
    return [path for run in runs for path in _figure(stored, directory, run)]


def stacked(bins: pd.DataFrame, column: str, edges: Any, planes: int, line_bps: float) -> Any:
    """Return % of the host's line per plane (row) and bin of ``edges`` (ns)."""
    width = edges[1] - edges[0]
    plane_bytes = np.zeros((planes, len(edges) - 1))
    for plane in range(planes):
        plane_bins = bins[bins["plane"] == plane]
        plane_bytes[plane], _ = np.histogram(plane_bins["t_ns"] + plane_bins["bin_ns"] / 2, bins=edges, weights=plane_bins[column])
    return 100 * plane_bytes * 8e9 / width / line_bps


def expected_line(run: dict[str, Any], host: str, begin: float, end: float, planes: int) -> tuple[list[float], list[float]]:
    """Return (µs, % of line) of the corners of a step line: the share of the host's ports that are live, all until the first change."""
    phases = sorted({(row["at_ns"], row["live"]) for row in run["ports"] if row["host"] == host})
    x, y = [0.0], [100.0]
    for at, live in phases:
        x += [(at - begin) / 1e3] * 2
        y += [y[-1], 100 * live / planes]
    return [*x, (end - begin) / 1e3], [*y, y[-1]]


def _figure(stored: Stored, directory: Path, run: dict[str, Any]) -> list[Path]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    fabric, begin = stored.fabric(run), stored.begin_ns(run) or 0
    hosts = list(dict.fromkeys(row["host"] for row in run["ports"]))
    host = hosts[0]
    bins = stored.rows("goodput", run)
    bins = bins[bins["host"] == int(host[1:])]
    bin_ns = float(bins["bin_ns"].max())
    end = max(row["until_ns"] for row in run["ports"])
    width = bin_ns * max(1, round((end - begin) / POINTS / bin_ns))
    edges = np.arange(begin, end + 1, width)
    line = fabric.host_rate * fabric.payload_share
    x = (edges[:-1] + width / 2 - begin) / 1e3
    last = (end - begin) / 1e3
    with figure(2, 3.5, sharex=True, sharey=True) as (fig, axes):
        for ax, column, label in zip(axes, ("tx_bytes", "rx_bytes"), ("sends, without retransmissions", "receives"), strict=True):
            fault_bands(ax, stored.outages(run), begin, last)
            shares = stacked(bins, column, edges, fabric.planes, line)
            colours = [PLANES[plane % len(PLANES)] for plane in range(fabric.planes)]
            ax.stackplot(x, shares, colors=colours, linewidth=0.3, edgecolor="white", zorder=2)
            ax.plot(*expected_line(run, host, begin, end, fabric.planes), color="black", linewidth=0.9, linestyle="--", zorder=3)
            ax.set_title(f"{host} {label}", pad=3)
            ax.set_ylim(0, 112)
            ax.set_yticks([0, 25, 50, 75, 100])
            ax.set_xlim(0, last)
        axes[-1].set_xlabel("time since the first flow began [µs]")
        fig.supylabel("payload, % of the host's line", fontsize=7.5)
        handles: list[Any] = [Patch(color=PLANES[p % len(PLANES)], label=f"plane {p}") for p in range(fabric.planes)]
        handles += [
            Line2D([], [], color="black", linewidth=0.9, linestyle="--", label="ideal, ports that are up"),
            Patch(color=FAULT, alpha=0.35, label="fault"),
        ]
        fig.legend(handles=handles, loc="outside lower center", ncols=4 if fabric.planes > 4 else 3, columnspacing=1.2, handlelength=1.4)
        suffix = f"; one of {len(hosts)} hosts whose ports change" if len(hosts) > 1 else ""
        head = f"{run['transport']} on {run['fabric']}, seed {run['seed']}{suffix}"
        fig.suptitle(head, fontsize=8, fontweight="bold", x=0.01, ha="left")
        return save(fig, directory, f"ports-{run['run']}", [run])
