"""First transmissions per plane while some port was down, in equal shares: whether the planes that are up carry the same."""

from __future__ import annotations

from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import FLOWS, beside, legend, line, mark_planes, note, panels, per_run

LIMIT = 1.0
"""Deviation from an equal share at which a line is drawn, percent [ours]."""
FEWEST = 1000
"""A plane whose equal share has fewer packets is drawn pale: they are too few to resolve 1 %."""
MOST = 4
"""The most senders shown."""


def deviations(row: dict[str, Any]) -> list[tuple[int, float, bool]]:
    """Return (plane, deviation from an equal share in %, whether there are enough packets) of the planes with an equal share above 0."""
    loads = enumerate(zip(row["packets"], row["equal"], strict=True))
    return [(plane, 100 * (sent / fair - 1), fair >= FEWEST) for plane, (sent, fair) in loads if fair > 0]


@per_run("plane-shares", lambda stored, run: run.get("plane_deviation") is not None)
def draw(stored: Stored, run: dict[str, Any]) -> Any:
    rows = [row for row in run["plane_loads"] if row["deviation"] is not None][:MOST]
    planes = max(len(row["equal"]) for row in rows)
    fig, (ax,) = panels(1, 2.0 + 0.17 * len(rows))
    handles, most = [], 1.5 * LIMIT
    for k, row in enumerate(rows):
        style: dict[str, Any] = {"color": FLOWS[k % len(FLOWS)], "marker": "os^D"[k % 4]}
        for plane, deviation, enough in deviations(row):
            # A stem and a dot, because a bar of height zero, the best result, would be invisible.
            at = plane + beside(k, len(rows))
            ax.plot([at, at], [0, deviation], **style, markevery=[1], markersize=4, linewidth=1.2, alpha=1.0 if enough else 0.35, zorder=2)
            most = max(most, 1.15 * abs(deviation)) if enough else most
        handles.append(line(f"{row['sender']} sends {sum(row['packets']):,} packets; ports of {row['host']} change", **style))
    ax.axhline(0, color="black", linewidth=0.7)
    for side in (-LIMIT, LIMIT):
        ax.axhline(side, color="black", linewidth=0.7, linestyle=":")
        note(ax, f"{side:+g} %", (1.0, side), (-2, 2), xycoords=("axes fraction", "data"), ha="right")
    mark_planes(ax, planes, axis="x", linewidth=0)
    ax.set(xlim=(-0.6, planes - 0.4), ylim=(-most, most), ylabel="packets, % off a fair share")
    ax.set_title(f"{run['transport']} on {run['fabric']}, seed {run['seed']}: load of\nthe planes that are up while a NIC port is down")
    legend(fig, handles, 1)
    return fig
