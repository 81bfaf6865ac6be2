"""Draws how long a path stays out of use each time that it is given up: a flapping link costs less each time."""

from __future__ import annotations

import json
from typing import Any

from scenarios.figures.flaps import flap_rows, given_up, path_of
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import area, fault_area, fault_bands, legend, line, look_of, panels, per_run

MOST = 10
"""The largest n in the upper panel, which shows the n-th time that a path is given up."""
SPREAD = 0.34
"""Width over which the paths of one n lie side by side, of the distance between two n."""


def rows_of(stored: Stored, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of scenarios.figures.flaps, from the stored events."""
    events = stored.rows("events", run)
    moves = events[events["kind"] == "ev"].sort_values("t_ns", kind="stable")
    keys = ("t_ns", "host", "peer", "ev", "from", "to")
    told = [dict(zip(("t", *keys[1:]), values, strict=True)) for values in moves[list(keys)].itertuples(index=False, name=None)]
    for move, detail in zip(told, moves["detail"], strict=True):
        move["qpn"] = json.loads(detail).get("qpn") if isinstance(detail, str) else None
    return flap_rows(stored.fabric(run), given_up(told), stored.outages(run))


@per_run("flap-penalty", lambda s, run: max((row["number"] for row in run.get("flaps", ())), default=0) > 1 and len(s.rows("events", run)))
def draw(stored: Stored, run: dict[str, Any]) -> Any:
    rows, begin = rows_of(stored, run), stored.begin_ns(run) or 0
    colour, marker = look_of(stored, run["transport"])
    all_numbers = sorted({row["number"] for row in rows})
    numbers = all_numbers[:MOST]
    end = begin + int(run["measured_ns"])
    paths = sorted({path_of(row) for row in rows})
    x = f"time since the first {'flow began' if 'flows' in run else 'measured step'} [µs]"
    fig, (top, bottom) = panels(2, 3.9, x=x, sharex=False, gridspec_kw={"height_ratios": [1.25, 1]})
    # Each path in a line of its own: those that are given up most often are those that were soon back, so one through the medians would
    # turn down at the end.
    for k, path in enumerate(paths):
        own = [row for row in rows if path_of(row) == path and row["number"] in numbers]
        shift = SPREAD * (k / max(1, len(paths) - 1) - 0.5)
        back = [(r["number"] + shift, (r["back_ns"] - r["out_ns"]) / 1e3) for r in own if r["back_ns"] is not None]
        still_out = [(r["number"] + shift, (end - r["out_ns"]) / 1e3) for r in own if r["back_ns"] is None]
        top.plot(*zip(*back, strict=True) if back else ((), ()), color=colour, linewidth=0.4, marker=marker, markersize=2.8, alpha=0.8)
        for at in still_out:
            top.plot(*at, marker="^", markersize=2.8, alpha=0.8, markerfacecolor="white", markeredgecolor=colour)
    top.set_xticks(numbers, [f"{n}.\n{sum(r['number'] == n for r in rows)}" for n in numbers])
    top.set(xlim=(0.5, numbers[-1] + 0.5), ylabel="out of use for [µs]")
    top.set_ylim(bottom=0)
    first = f"\n(the first {MOST} of {len(all_numbers)} times)" if len(all_numbers) > MOST else ""
    top.set_xlabel("n-th time that a path is given up (below: paths)" + first)
    top.set_title(f"{run['transport']} on {run['fabric']}, seed {run['seed']}: time that flapping paths stay out of use")
    for row in rows:
        until = end if row["back_ns"] is None else row["back_ns"]
        left = (row["out_ns"] - begin) / 1e3
        bottom.barh(paths.index(path_of(row)), (until - row["out_ns"]) / 1e3, left=left, height=0.7, color=colour, linewidth=0, zorder=2)
    fault_bands(bottom, stored.outages(run), begin, (end - begin) / 1e3)
    bottom.set(xlim=(0, (end - begin) / 1e3), ylim=(len(paths) - 0.4, -0.6), yticks=[], ylabel=f"{len(paths)} paths")
    handles = [line("one path", colour, "-", 0.4, marker=marker, markersize=3.5)]
    if any(row["back_ns"] is None for row in rows):
        handles.append(line("still out at the end", marker="^", markersize=3.5, markerfacecolor="white", markeredgecolor=colour))
    legend(fig, [*handles, area("out of use", colour), fault_area()], 3)
    return fig
