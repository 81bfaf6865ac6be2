"""Draws how long a path stays out of use each time that it is given up: a flapping link costs less each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scenarios.figures.flaps import flap_rows, given_up, path_of
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import colour_and_marker, fault_bands, figure, save

MOST = 10
"""The largest n in the upper panel, which shows the n-th time that a path is given up."""
SPREAD = 0.34
"""Width over which the paths of one n lie side by side, of the distance between two n."""


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per run in which some path was given up more than once."""
    files: list[Path] = []
    for run in stored.shown_runs:
        if max((row["number"] for row in run.get("flaps", ())), default=0) > 1 and len(stored.rows("events", run)):
            files += _figure(stored, directory, run)
    return files


def rows_of(stored: Stored, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of scenarios.figures.flaps, from the stored events."""
    events = stored.rows("events", run)
    moves = events[events["kind"] == "ev"].sort_values("t_ns", kind="stable")
    keys = ("t_ns", "host", "peer", "ev", "from", "to")
    lines = [dict(zip(("t", *keys[1:]), values, strict=True)) for values in moves[list(keys)].itertuples(index=False, name=None)]
    for line, detail in zip(lines, moves["detail"], strict=True):
        line["qpn"] = json.loads(detail).get("qpn") if isinstance(detail, str) else None
    return flap_rows(stored.fabric(run), given_up(lines), stored.outages(run))


def _figure(stored: Stored, directory: Path, run: dict[str, Any]) -> list[Path]:
    from matplotlib.lines import Line2D

    rows, begin = rows_of(stored, run), stored.begin_ns(run) or 0
    colour, marker = colour_and_marker(run["transport"])
    all_numbers = sorted({row["number"] for row in rows})
    numbers = all_numbers[:MOST]
    end = begin + int(run["measured_ns"])
    paths = sorted({path_of(row) for row in rows})
    with figure(2, 3.9, gridspec_kw={"height_ratios": [1.25, 1]}) as (fig, axes):
        top, bottom = axes
        # Each path in a line of its own: those that are given up most often are those that were soon back, so one through the medians would
        # turn down at the end.
        for k, path in enumerate(paths):
            own = [row for row in rows if path_of(row) == path and row["number"] in numbers]
            shift = SPREAD * (k / max(1, len(paths) - 1) - 0.5)
            back = [(r["number"] + shift, (r["back_ns"] - r["out_ns"]) / 1e3) for r in own if r["back_ns"] is not None]
            still_out = [(r["number"] + shift, (end - r["out_ns"]) / 1e3) for r in own if r["back_ns"] is None]
            top.plot(*zip(*back, strict=True) if back else ((), ()), color=colour, linewidth=0.4, marker=marker, markersize=2.8, alpha=0.8)
            for x, y in still_out:
                top.plot(x, y, marker="^", markersize=2.8, alpha=0.8, markerfacecolor="white", markeredgecolor=colour)
        top.set_xticks(numbers, [f"{n}.\n{sum(r['number'] == n for r in rows)}" for n in numbers])
        top.set_xlim(0.5, numbers[-1] + 0.5)
        top.set_ylim(bottom=0)
        top.set_ylabel("out of use for [µs]")
        first = f"\n(the first {MOST} of {len(all_numbers)} times)" if len(all_numbers) > MOST else ""
        top.set_xlabel("n-th time that a path is given up (below: paths)" + first)
        top.set_title(f"{run['transport']} on {run['fabric']}, seed {run['seed']}: time that flapping paths stay out of use", pad=5)
        for k, path in enumerate(paths):
            for row in (r for r in rows if path_of(r) == path):
                until = end if row["back_ns"] is None else row["back_ns"]
                left = (row["out_ns"] - begin) / 1e3
                bottom.barh(k, (until - row["out_ns"]) / 1e3, left=left, height=0.7, color=colour, linewidth=0, zorder=2)
        fault_bands(bottom, stored.outages(run), begin, (end - begin) / 1e3)
        bottom.set_xlim(0, (end - begin) / 1e3)
        bottom.set_ylim(len(paths) - 0.4, -0.6)
        bottom.set_yticks([])
        bottom.set_ylabel(f"{len(paths)} paths")
        bottom.set_xlabel(f"time since the first {'flow began' if 'flows' in run else 'measured step'} [µs]")
        from matplotlib.patches import Patch

        handles: list[Any] = [Line2D([], [], color=colour, marker=marker, linewidth=0.4, markersize=3.5, label="one path")]
        if any(row["back_ns"] is None for row in rows):
            handles.append(
                Line2D(
                    [],
                    [],
                    marker="^",
                    linestyle="none",
                    markersize=3.5,
                    markerfacecolor="white",
                    markeredgecolor=colour,
                    label="still out at the end",
                )
            )
        handles += [Patch(color=colour, label="out of use"), Patch(color="#B0B0B0", alpha=0.35, label="fault")]
        fig.legend(handles=handles, loc="outside lower center", ncols=3, columnspacing=1.2, handlelength=1.4)
        return save(fig, directory, f"flap-penalty-{run['run']}", [run])
