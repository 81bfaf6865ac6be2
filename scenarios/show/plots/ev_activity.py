"""Packets per EV over time around a lossy path: when the sender leaves it, which EVs replace it, and when it returns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scenarios.figures.stored import Stored
from scenarios.show.plots.ev_shares import grid
from scenarios.show.plots.style import colour_bar, heat, margin_note, mark_planes, note, panels, per_run
from topologies.addressing import ev_fields
from topologies.paths import path_evs

COLUMNS = 160
LOSSY = "#D55E00"


def _lossy(run: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first lossy path of a run that data took."""
    return next((row for row in run.get("lossy_paths", ()) if row["first_loss_ns"] is not None), None)


@per_run("ev-activity", lambda stored, run: _lossy(run) and len(stored.rows("evs", run)))
def draw(stored: Stored, run: dict[str, Any]) -> Any:
    packets, fabric, lossy = stored.rows("evs", run), stored.fabric(run), _lossy(run) or {}
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
    fig, (ax,) = panels(1, 3.45, x=f"time since the first flow began [µs]; a column is {width / run['base_rtt_ns']:.0f} base RTTs")
    extent = (0, columns * width / 1e3, len(evs) - 0.5, -0.5)
    picture = heat(ax, np.ma.masked_invalid(shares), "Blues", 2, extent=extent)
    ax.set_facecolor("white")
    mark_planes(ax, fabric.planes, len(evs) // fabric.planes, color="#999999", linewidth=0.6)
    margin_note(ax, "◂ lossy", evs.index(lossy["ev"]), color=LOSSY)
    for other in lossy["replaced_by"]:
        margin_note(ax, "◂ replaces it", evs.index(other))
    for outage in stored.outages(run):
        for when, label in ((outage.begin, f"loses {outage.probability:.0%}"), (outage.end, "clean")):
            if begin <= when <= begin + span:
                ax.axvline((when - begin) / 1e3, color=LOSSY, linewidth=0.9, linestyle="--")
                note(ax, label, ((when - begin) / 1e3, -0.5), (2, 3))
    plane, uplink = ev_fields(lossy["ev"])
    head = f"{run['transport']} on {run['fabric']}, seed {run['seed']}: h{pair[0]} → h{pair[1]}"
    ax.set_title(f"{head}\npath {uplink} of plane {plane} is lossy", pad=12)
    colour_bar(fig, picture, ax, f"packets on an EV [fair shares of {active} EVs] (white: none)")
    return fig
