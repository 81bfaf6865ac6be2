"""The cost of failures for each transport: extra time beyond its own healthy pace, with noise and all seeds, beside theory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.figures.cost import costs, noise, within_noise
from scenarios.figures.stored import Stored
from scenarios.show.cost_table import extra_time
from scenarios.show.plots.style import colour_and_marker, figure, save

BAND = "#DDDDDD"


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per placement in which something broke and some cost is known."""
    paths: list[Path] = []
    for placement, _ in stored.groups():
        runs = stored.ordered(placement)
        rows = [row for row in costs(runs) if row["extra_ns"] is not None]
        if rows:
            paths += _figure(stored, directory, runs, rows, placement)
    return paths


def _figure(stored: Stored, directory: Path, runs: list[dict[str, Any]], rows: list[dict[str, Any]], placement: str) -> list[Path]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    flows = rows[0]["kind"] == "flows"
    with figure(1, 1.35 + 0.36 * len(rows)) as (fig, ax):
        for y, row in enumerate(rows):
            colour, marker = colour_and_marker(row["transport"])
            extras = [r["failure_cost"]["extra_ns"] for r in runs if r["transport"] == row["transport"] and r.get("failure_cost")]
            extras = [extra / 1e3 for extra in extras if extra is not None]
            size, is_noise = (noise(row) or 0.0) / 1e3, within_noise(row)
            ax.barh(y, 2 * size, 0.62, left=-size, color=BAND, linewidth=0, zorder=1)
            if not is_noise:  # within noise there is neither a loss nor a gain to draw
                ax.plot([0, row["extra_ns"] / 1e3], [y, y], color=colour, linewidth=4, solid_capstyle="butt", alpha=0.45, zorder=2)
            style = {"color": colour, "markerfacecolor": "white" if is_noise else colour, "markersize": 4.5, "zorder": 3, "clip_on": False}
            ax.plot(extras, [y] * len(extras), linestyle="none", marker=marker, **style)
            if row["ideal_extra_ns"] is not None:
                ax.plot([row["ideal_extra_ns"] / 1e3] * 2, [y - 0.32, y + 0.32], color="black", linewidth=1.4, zorder=4)
        names = [row["transport"] + ("" if row["fabric"] == rows[0]["fabric"] else f" on {row['fabric']}") for row in rows]
        labels = [f"{name}, n = {row['n']}\n{extra_time(row)}" for name, row in zip(names, rows, strict=True)]
        ax.set_yticks(range(len(rows)), labels, fontsize=6.5)
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.axvline(0, color="black", linewidth=0.6)
        ax.margins(x=0.06)
        ax.locator_params(axis="x", nbins=5)
        ax.grid(axis="x", linewidth=0.3, color="#DDDDDD")
        ax.set_xlabel("goodput not delivered, as time [µs]" if flows else "extra time over all steps [µs]")
        ax.set_title(f"Extra time through the failure, {placement} ranks{stored.settings_words}", pad=6)
        dot: dict[str, Any] = {"color": "#666666", "marker": "o", "linestyle": "none", "markersize": 4}
        handles: list[Any] = [Line2D([], [], **dot, label="a seed (bar: median)")]
        if any(map(within_noise, rows)):
            handles.append(Line2D([], [], **dot, markerfacecolor="white", label="within noise"))
        if any(map(noise, rows)):
            handles.append(Patch(color=BAND, label="noise"))
        if any(row["ideal_extra_ns"] is not None for row in rows):
            handles.append(Line2D([], [], color="black", marker="|", linestyle="none", markersize=8, markeredgewidth=1.4, label="theory"))
        fig.legend(handles=handles, loc="outside lower left", ncols=2, handlelength=1.2)
        return save(fig, directory, f"failure-cost-{placement}{stored.tag}", runs)
