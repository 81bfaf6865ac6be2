"""First transmissions per plane while some port was down, in equal shares: whether the planes that are up carry the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import FLOWS, figure, save

LIMIT = 1.0
"""Deviation from an equal share at which a line is drawn, percent [ours]."""
FEWEST = 1000
"""A plane whose equal share has fewer packets is drawn pale: they are too few to resolve 1 %."""
MOST = 4
"""The most senders shown."""


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per run in which NIC ports changed and enough was sent."""
    return [path for run in stored.shown_runs if run.get("plane_deviation") is not None for path in _figure(directory, run)]


def deviations(row: dict[str, Any]) -> list[tuple[int, float, bool]]:
    """Return (plane, deviation from an equal share in %, whether there are enough packets) of the planes with an equal share above 0."""
    loads = enumerate(zip(row["packets"], row["equal"], strict=True))
    return [(plane, 100 * (sent / fair - 1), fair >= FEWEST) for plane, (sent, fair) in loads if fair > 0]


def _figure(directory: Path, run: dict[str, Any]) -> list[Path]:
    rows = [row for row in run["plane_loads"] if row["deviation"] is not None][:MOST]
    planes = max(len(row["equal"]) for row in rows)
    width = 0.8 / len(rows)
    with figure(1, 2.0 + 0.17 * len(rows)) as (fig, ax):
        handles, most = [], 1.5 * LIMIT
        for k, row in enumerate(rows):
            colour = FLOWS[k % len(FLOWS)]
            total = sum(row["packets"])
            for plane, deviation, enough in deviations(row):
                at = plane + (k - (len(rows) - 1) / 2) * width
                # A stem and a dot, because a bar of height zero, the best result, would be invisible.
                ax.plot([at, at], [0, deviation], color=colour, linewidth=1.2, alpha=1.0 if enough else 0.35, zorder=2)
                (dot,) = ax.plot(
                    at,
                    deviation,
                    marker="os^D"[k % 4],
                    color=colour,
                    markersize=4,
                    linestyle="none",
                    alpha=1.0 if enough else 0.35,
                    zorder=3,
                )
                most = max(most, 1.15 * abs(deviation)) if enough else most
            handles.append((dot, f"{row['sender']} sends {total:,} packets; ports of {row['host']} change"))
        ax.axhline(0, color="black", linewidth=0.7)
        for side in (-LIMIT, LIMIT):
            ax.axhline(side, color="black", linewidth=0.7, linestyle=":")
            ax.annotate(
                f"{side:+g} %",
                (1.0, side),
                xycoords=("axes fraction", "data"),
                xytext=(-2, 2),
                textcoords="offset points",
                fontsize=6.5,
                ha="right",
            )
        ax.set_xlim(-0.6, planes - 0.4)
        ax.set_ylim(-most, most)
        ax.set_xticks(range(planes), [f"plane {p}" if planes <= 4 else str(p) for p in range(planes)])
        ax.set_xlabel("" if planes <= 4 else "plane")
        ax.set_ylabel("packets, % off a fair share")
        ax.set_title(
            f"{run['transport']} on {run['fabric']}, seed {run['seed']}: load of\nthe planes that are up while a NIC port is down", pad=6
        )
        fig.legend([h for h, _ in handles], [t for _, t in handles], loc="outside lower left", handlelength=1.2)
        return save(fig, directory, f"plane-shares-{run['run']}", [run])
