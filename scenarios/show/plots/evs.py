"""Draws packets per EV over time: around a lossy path, and of a flow that leaves another's EVs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from scenarios.figures.flows import SEPARATED, SMOOTH_RTTS
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import (
    FLOWS,
    colour_bar,
    heat,
    margin_note,
    mark_planes,
    note,
    panels,
    per_run,
)
from testbed.results.summary import LossyPath, Run
from topologies.addressing import ev_fields
from topologies.paths import path_evs

COLUMNS = 160
LOSSY = "#D55E00"
MOST = 2.0  # top of the colour scale, in fair shares


def grid(packets: pd.DataFrame, evs: list[int], begin: float, width_ns: float, bins: int) -> Any:
    """Count packets per EV (row) and bin (column), in equal shares of the bin; NaN where nothing
    was sent."""
    row_of = {ev: i for i, ev in enumerate(evs)}
    counts = np.zeros((len(evs), bins))
    column = ((packets["t_ns"] + packets["bin_ns"] / 2 - begin) // width_ns).to_numpy(dtype="int64")
    for ev, index, n in zip(packets["ev"], column, packets["tx_packets"], strict=True):
        if ev in row_of and 0 <= index < bins:
            counts[row_of[ev], int(index)] += n
    total = counts.sum(axis=0)
    return np.divide(counts * len(evs), total, out=np.full_like(counts, np.nan), where=total > 0)


def _evs(n: int, which: str = "") -> str:
    return f"{n} {which}EV{'s' if n != 1 else ''}"


@per_run(lambda stored, run: run.separations and len(stored.rows("evs", run)))
def ev_shares(stored: Stored, run: Run) -> Any:
    separation = (run.separations or [])[0]
    packets = stored.rows("evs", run)
    begin, rtt = stored.begin_ns(run) or 0, run.base_rtt_ns
    bin_ns = float(packets["bin_ns"].max())
    width = bin_ns * max(1, round(SMOOTH_RTTS * rtt / bin_ns))
    names = [separation.flow, separation.from_]
    start = run.flows[names[1]].start_ns
    # begin of the bin in which the second flow begins: a column begins with it
    second = (begin + start) // bin_ns * bin_ns
    origin = second - -(-start // width) * width
    bins = int((packets["t_ns"].max() + bin_ns - origin) // width)
    x = ((np.arange(bins) + 0.5) * width + origin - begin) / 1e3
    ends = [(int(run.flows[n].src[1:]), int(run.flows[n].dst[1:])) for n in names]
    pair_packets = [packets[(packets["host"] == a) & (packets["peer"] == b)] for a, b in ends]
    evs = [sorted(set(m["ev"])) for m in pair_packets]
    shares = [grid(m, e, origin, width, bins) for m, e in zip(pair_packets, evs, strict=True)]
    shared = [i for i, ev in enumerate(evs[0]) if ev in separation.shared_evs]
    others = [i for i in range(len(evs[0])) if i not in shared]
    fig, axes = panels(3, 4.7, x=stored.since(run), gridspec_kw={"height_ratios": [1.1, 2.2, 0.6]})
    top = axes[0]
    kept, elsewhere = (shares[0][rows].mean(axis=0) for rows in (shared, others))
    top.plot(x, kept, color=FLOWS[0], label=f"on {names[1]}'s {_evs(len(shared))}")
    top.plot(
        x, elsewhere, color=FLOWS[0], linestyle="--", label=f"on {_evs(len(others), 'other ')}"
    )
    top.axhline(SEPARATED, color="black", linewidth=0.7, linestyle=":")
    margin_note(top, f"{SEPARATED:g}", SEPARATED, fontsize=6)
    highest = 1.1 * max(1.2, float(np.nanmax([kept, elsewhere])))
    top.set(ylim=(0, highest), yticks=[0, 0.5, 1] if highest < 2 else range(int(highest) + 1))
    top.set_ylabel(f"{names[0]}'s packets per EV\n[fair shares]")
    statement = f"does not leave {names[1]}'s EVs"
    if separation.separated_rtts is not None:
        statement = f"leaves {names[1]}'s EVs within {separation.separated_rtts:.0f} base RTTs"
    top.set_title(f"{names[0]} {statement}", pad=11)
    note(top, f"{names[1]} begins", (start / 1e3, highest))
    top.legend(
        loc="best",
        fontsize=6.5,
        handlelength=2.0,
        borderaxespad=0.2,
        frameon=True,
        framealpha=1,
        edgecolor="none",
    )
    for ax, name, share, flow_evs, (a, b) in zip(axes[1:], names, shares, evs, ends, strict=True):
        extent = (
            (origin - begin) / 1e3,
            (origin - begin + bins * width) / 1e3,
            len(flow_evs) - 0.5,
            -0.5,
        )
        picture = heat(ax, np.ma.masked_invalid(share), "RdBu_r", MOST, extent=extent)
        ax.set_facecolor("#DDDDDD")
        planes = [ev_fields(ev)[0] for ev in flow_evs]
        rows = [planes.index(p) for p in dict.fromkeys(planes)]
        if len(rows) < len(flow_evs):
            ax.set_yticks(
                [r + (len(flow_evs) / len(rows) - 1) / 2 for r in rows],
                [f"plane {planes[r]}" for r in rows],
                fontsize=6,
            )
        else:
            ax.set_yticks(
                [0, len(flow_evs) - 1], [f"plane {planes[0]}", f"plane {planes[-1]}"], fontsize=6
            )
        ax.tick_params(axis="y", length=0)
        ax.set_title(
            f"{name}: h{a} → h{b}, {_evs(len(flow_evs))}"
            + (f"  (◂ {names[1]}'s)" if name == names[0] else "")
        )
    for row in shared:
        note(
            axes[1],
            "◂",
            (1.0, row),
            (0, 0),
            xycoords=("axes fraction", "data"),
            fontsize=5,
            va="center",
        )
    for ax in axes:
        ax.axvline(start / 1e3, color="black", linewidth=0.8, linestyle="--")
        ax.set_xlim(0, (origin - begin + bins * width) / 1e3)
    label = (
        "packets on an EV [the flow's fair shares]\n"
        f"(grey: none sent; a column is {width / rtt:.0f} base RTTs)"
    )
    colour_bar(fig, picture, axes[1:], label)
    return fig


def _lossy(run: Run) -> LossyPath | None:
    return next((row for row in (run.lossy_paths or ()) if row.first_loss_ns is not None), None)


@per_run(lambda stored, run: _lossy(run) and len(stored.rows("evs", run)))
def ev_activity(stored: Stored, run: Run) -> Any:
    packets, fabric, lossy = stored.rows("evs", run), stored.fabric(run), _lossy(run)
    assert lossy is not None
    pair = int(lossy.host[1:]), int(lossy.peer[1:])
    pair_packets = packets[(packets["host"] == pair[0]) & (packets["peer"] == pair[1])]
    begin, bin_ns = stored.begin_ns(run) or 0, float(pair_packets["bin_ns"].max())
    span = float(pair_packets["t_ns"].max()) + bin_ns - begin
    width = bin_ns * max(1, round(span / COLUMNS / bin_ns))
    evs = list(path_evs(fabric, *pair))
    columns = math.ceil(span / width)
    shares = grid(pair_packets, evs, begin, width, columns)
    active = int(np.median((np.nan_to_num(shares) > 0).sum(axis=0))) or 1
    shares = np.where(shares > 0, shares * active / len(evs), np.nan)  # in shares of the EVs in use
    fig, (ax,) = panels(
        1, 3.45, x=f"{stored.since(run)}; a column is {width / run.base_rtt_ns:.0f} base RTTs"
    )
    extent = (0, columns * width / 1e3, len(evs) - 0.5, -0.5)
    picture = heat(ax, np.ma.masked_invalid(shares), "Blues", 2, extent=extent)
    ax.set_facecolor("white")
    mark_planes(ax, fabric.planes, len(evs) // fabric.planes, color="#999999", linewidth=0.6)
    margin_note(ax, "◂ lossy", evs.index(lossy.ev), color=LOSSY)
    for other in lossy.replaced_by:
        margin_note(ax, "◂ replaces it", evs.index(other))
    for outage in stored.outages(run):
        for when, label in (
            (outage.begin, f"loses {outage.probability:.0%}"),
            (outage.end, "clean"),
        ):
            if begin <= when <= begin + span:
                ax.axvline((when - begin) / 1e3, color=LOSSY, linewidth=0.9, linestyle="--")
                note(ax, label, ((when - begin) / 1e3, -0.5), (2, 3))
    plane, uplink = ev_fields(lossy.ev)
    seen = f"Path {uplink} of plane {plane} is lossy"
    if lossy.inactive_ns is not None:
        n = lossy.losses_before_inactive
        seen += f", and left after {n} loss{'es' if n != 1 else ''}"
    head = f"h{pair[0]} → h{pair[1]}, {run.transport} on {run.fabric}, seed {run.seed}"
    ax.set_title(f"{seen}\n{head}", pad=12)
    colour_bar(fig, picture, ax, f"packets on an EV [fair shares of {active} EVs] (white: none)")
    return fig
