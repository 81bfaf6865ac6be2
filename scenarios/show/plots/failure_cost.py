"""What the failures cost each transport: time lost beyond its own healthy pace, every seed, beside what the lost capacity explains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.figures.cost import costs
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import colour_and_marker, figure, save


def draw(stored: Stored, directory: Path) -> list[Path]:
    """One figure per placement in which something broke and some cost is known."""
    made: list[Path] = []
    for placement, _ in stored.groups():
        runs = stored.ordered(placement)
        rows = [row for row in costs(runs) if row["extra_ns"] is not None]
        if rows:
            made += _figure(stored, directory, runs, rows, placement)
    return made


def _figure(stored: Stored, directory: Path, runs: list[dict[str, Any]], rows: list[dict[str, Any]], placement: str) -> list[Path]:
    from matplotlib.lines import Line2D

    flows = rows[0]["kind"] == "flows"
    with figure(1, 1.25 + 0.3 * len(rows)) as (fig, ax):
        told = False
        for y, row in enumerate(rows):
            colour, marker = colour_and_marker(row["transport"])
            extras = [r["failure_cost"]["extra_ns"] for r in runs if r["transport"] == row["transport"] and r.get("failure_cost")]
            extras = [extra / 1e9 for extra in extras if extra is not None]
            ax.plot([0, row["extra_ns"] / 1e9], [y, y], color=colour, linewidth=4, solid_capstyle="butt", alpha=0.45, zorder=2)
            ax.plot(extras, [y] * len(extras), linestyle="none", marker=marker, markersize=4.5, color=colour, zorder=3, clip_on=False)
            if row["ideal_extra_ns"] is not None:
                told = True
                ax.plot([row["ideal_extra_ns"] / 1e9] * 2, [y - 0.32, y + 0.32], color="black", linewidth=1.4, zorder=4)
        names = [row["transport"] + ("" if row["fabric"] == rows[0]["fabric"] else f"\non {row['fabric']}") for row in rows]
        ax.set_yticks(range(len(rows)), [f"{name}, n = {row['n']}" for name, row in zip(names, rows, strict=True)])
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.axvline(0, color="black", linewidth=0.6)
        ax.margins(x=0.06)
        ax.locator_params(axis="x", nbins=6)
        ax.grid(axis="x", linewidth=0.3, color="#DDDDDD")
        ax.set_xlabel("goodput not delivered, as time [s]" if flows else "time lost over all steps [s]")
        ax.set_title(f"What the failure cost, {placement} ranks{stored.settings_words}", pad=6)
        handles = [Line2D([], [], color="#666666", marker="o", linestyle="none", markersize=4, label="a seed (bar: median)")]
        if told:
            handles.append(Line2D([], [], color="black", marker="|", linestyle="none", markersize=8, markeredgewidth=1.4, label="theory"))
        fig.legend(handles=handles, loc="outside lower left", ncols=2, handlelength=1.2)
        return save(fig, directory, f"failure-cost-{placement}{stored.tag}", runs)
