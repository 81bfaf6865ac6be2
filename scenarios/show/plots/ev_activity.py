"""Packets per EV over time around a lossy path: when the sender leaves it, which EVs replace it, and when it returns."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.figures.stored import Stored
from scenarios.show.plots.ev_shares import grid
from scenarios.show.plots.style import figure, margin_note, save
from topologies.addressing import ev_fields
from topologies.paths import path_evs

COLUMNS = 160
TALL = 2.2
"""Height of the rows of EVs, inches."""


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per run with a lossy path that data took."""
    files: list[Path] = []
    for run in stored.shown_runs:
        lossy = [row for row in run.get("lossy_paths", ()) if row["first_loss_ns"] is not None]
        if lossy and len(stored.rows("evs", run)):
            files += _figure(stored, directory, run, lossy[0])
    return files


def _figure(stored: Stored, directory: Path, run: dict[str, Any], lossy: dict[str, Any]) -> list[Path]:
    packets, fabric = stored.rows("evs", run), stored.fabric(run)
    pair = int(lossy["host"][1:]), int(lossy["peer"][1:])
    pair_packets = packets[(packets["host"] == pair[0]) & (packets["peer"] == pair[1])]
    begin, bin_ns = stored.begin_ns(run) or 0, float(pair_packets["bin_ns"].max())
    span = float(pair_packets["t_ns"].max()) + bin_ns - begin
    width = bin_ns * max(1, round(span / COLUMNS / bin_ns))
    evs = list(path_evs(fabric, *pair))
    columns = math.ceil(span / width)
    shares = grid(pair_packets, evs, begin, width, columns)
    active = int(np.median((np.nan_to_num(shares) > 0).sum(axis=0))) or 1
    shares = np.where(shares > 0, shares * active / len(evs), np.nan)  # in shares of the EVs in use
    with figure(1, TALL + 1.25) as (fig, ax):
        picture = ax.imshow(
            np.ma.masked_invalid(shares), aspect="auto", interpolation="nearest", cmap="Blues", vmin=0, vmax=2,
            extent=(0, columns * width / 1e3, len(evs) - 0.5, -0.5),
        )  # fmt: skip
        ax.set_facecolor("white")
        for plane in range(1, fabric.planes):
            ax.axhline(plane * len(evs) / fabric.planes - 0.5, color="#999999", linewidth=0.6)
        per_plane = len(evs) // fabric.planes
        ax.set_yticks([p * per_plane + (per_plane - 1) / 2 for p in range(fabric.planes)], [f"plane {p}" for p in range(fabric.planes)])
        ax.tick_params(axis="y", length=0)
        margin_note(ax, "◂ lossy", evs.index(lossy["ev"]), color="#D55E00")
        for other in lossy["replaced_by"]:
            margin_note(ax, "◂ replaces it", evs.index(other))
        for outage in stored.outages(run):
            for when, label in ((outage.begin, f"loses {outage.probability:.0%}"), (outage.end, "clean")):
                if begin <= when <= begin + span:
                    ax.axvline((when - begin) / 1e3, color="#D55E00", linewidth=0.9, linestyle="--")
                    at = ((when - begin) / 1e3, -0.5)
                    ax.annotate(label, at, xytext=(2, 3), textcoords="offset points", fontsize=6.5, annotation_clip=False)
        plane, uplink = ev_fields(lossy["ev"])
        head = f"{run['transport']} on {run['fabric']}, seed {run['seed']}: h{pair[0]} → h{pair[1]}"
        ax.set_title(f"{head}\npath {uplink} of plane {plane} is lossy", pad=12)
        ax.set_xlabel(f"time since the first flow began [µs]; a column is {width / run['base_rtt_ns']:.0f} base RTTs")
        bar = fig.colorbar(picture, ax=ax, location="bottom", shrink=0.7, aspect=38, pad=0.02, extend="max")
        bar.set_label(f"packets on an EV [fair shares of {active} EVs] (white: none)", fontsize=6.5)
        bar.ax.tick_params(labelsize=6.5)
        return save(fig, directory, f"ev-activity-{run['run']}", [run])
