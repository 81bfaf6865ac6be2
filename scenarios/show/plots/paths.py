"""Draws every path between two hosts over time, as the sender saw it, and how long paths stay out
of use."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from scenarios.figures.flaps import GivenUp, Move, flap_rows, given_up
from scenarios.figures.outages import Outage, hit_evs
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import (
    area,
    fault_area,
    fault_bands,
    legend,
    line,
    look_of,
    margin_note,
    mark_planes,
    note,
    panels,
    per_run,
)
from testbed.results.summary import Run
from testbed.terminal import duration
from topologies import Fabric
from topologies.paths import path_evs

COLOURS = {
    "GOOD": "#CFE3F1",
    "SKIP": "#F0E442",
    "ASSUMED_BAD": "#D55E00",
    "DENIED": "#000000",
    "DOWN": "#8C8C8C",
}
WORDS = {
    "GOOD": "in use",
    "SKIP": "skipped once",
    "ASSUMED_BAD": "assumed bad, only probed",
    "DENIED": "denied",
    "DOWN": "plane out of use",
}
"""DOWN is a plane's state, until data goes over it again."""
LABELLED = 4  # With more outages, none has its fault's name.
MOST = 10  # upper panel: a path's n-th time out of use
SPREAD = 0.34  # of the distance between two n


def pair_of(fabric: Fabric, events: pd.DataFrame, outages: list[Outage]) -> tuple[int, int] | None:
    """Of pairs hit by most outages, choose the one with most state changes."""
    changes = events[events["kind"].isin(("ev", "plane"))]
    if changes.empty:
        return None
    counts = changes.groupby(["host", "peer"]).size()
    hits = {
        pair: sum(bool(hit_evs(fabric, outage, int(pair[0]), int(pair[1]))) for outage in outages)
        for pair in counts.index
    }
    best = max(counts.index, key=lambda pair: (hits[pair], counts[pair], -pair[0]))
    return int(best[0]), int(best[1])


def intervals(changes: pd.DataFrame, ev: int, end: float) -> list[tuple[float, float, str]]:
    """Return (from, to, state), ns: GOOD until the first change; the plane's stretches out of use
    come last."""
    found = {}
    for kind, key, number, first in (
        ("ev", "ev", ev, "GOOD"),
        ("plane", "plane", ev >> 16, "USED"),
    ):
        own = changes[(changes["kind"] == kind) & (changes[key] == number)]
        times = [0.0, *map(float, own["t_ns"]), end]
        found[kind] = zip(times, times[1:], [first, *map(str, own["to"])], strict=False)
    return [*found["ev"], *((a, b, "DOWN") for a, b, state in found["plane"] if state != "USED")]


def seen(
    outages: list[Outage],
    hit: dict[Outage, set[int]],
    unused: dict[int, list[tuple[float, float]]],
    least_ns: float = 0.0,
) -> str:
    """Return a title's words. ``hit``: EVs that each outage kills; ``unused``: when each EV carried
    no data, ns; ``least_ns``: what can be seen of it."""
    left: list[float] = []
    stayed = 0
    for outage in (o for o in outages if o.kills):
        for ev in hit[outage]:
            after = [
                max(0.0, a - outage.begin)
                for a, b in unused.get(ev, ())
                if b > outage.begin and a < outage.end
            ]
            left += after[:1]
            stayed += not after
    if not left and not stayed:
        out = sum(any(b - a >= least_ns for a, b in times) for times in unused.values())
        return f"{out} of {len(unused)} paths were out of use" if out else "every path stays in use"
    if not left:
        return f"{stayed} dead path{'s' * (stayed > 1)} stayed in use"
    within = f"within {duration(max(left))}" if max(left) else "at once"
    some = f"{len(left)} of {len(left) + stayed} dead paths" if stayed else "dead paths are"
    return f"{some} left {within}"


@per_run(lambda stored, run: len(stored.rows("events", run)) and stored.begin_ns(run) is not None)
def paths(stored: Stored, run: Run) -> Any:
    begin, fabric, events, outages = (
        stored.begin_ns(run) or 0.0,
        stored.fabric(run),
        stored.rows("events", run),
        stored.outages(run),
    )
    if (pair := pair_of(fabric, events, outages)) is None:
        return None
    evs = path_evs(fabric, *pair)
    changes = events[(events["host"] == pair[0]) & (events["peer"] == pair[1])].sort_values(
        "t_ns", kind="stable"
    )
    end = float(begin + run.measured_ns)
    hit = {outage: set(hit_evs(fabric, outage, *pair)) for outage in outages}
    broken = set().union(*hit.values())
    height = min(6.5, 1.35 + max(0.055, min(0.14, 2.6 / len(evs))) * len(evs))
    fig, (ax,) = panels(1, height, x=stored.since(run))
    states: set[str] = {"GOOD"}
    unused: dict[int, list[tuple[float, float]]] = {}
    thick = 0.86 if len(evs) <= 32 else 1.0
    for row, ev in enumerate(evs):
        own = intervals(changes, ev, end)
        unused[ev] = sorted(
            (a, b) for a, b, state in own if state not in ("GOOD", "SKIP") and b > begin and a < end
        )
        for a, b, state in own:
            a, b = max(a, float(begin)), min(b, end)
            if b > a:
                states.add(state)
                colour = COLOURS.get(state, "#999999")
                ax.barh(
                    row,
                    (b - a) / 1e3,
                    left=(a - begin) / 1e3,
                    height=thick,
                    color=colour,
                    linewidth=0,
                )
    # rows of a plane: T0 uplink 0 on top
    mark_planes(ax, fabric.planes, len(evs) // fabric.planes, color="white", linewidth=2.0)
    ax.set(ylim=(len(evs) - 0.4, -0.6), xlim=(0, (end - begin) / 1e3), ylabel="one row per path")
    few = len(outages) <= LABELLED
    for outage in (o for o in outages if hit[o]):
        for when, label in ((outage.begin, outage.fault), (outage.end, "")):
            if begin <= when <= end:
                ax.axvline(
                    (when - begin) / 1e3,
                    color="black",
                    linewidth=0.9 if few else 0.5,
                    linestyle="--",
                )
                note(ax, label if few else "", ((when - begin) / 1e3, -0.6))
    for ev in sorted(broken) if len(broken) <= len(evs) // 2 else ():
        margin_note(ax, "◂ hit", evs.index(ev))
    head = f"{run.transport} on {run.fabric}, {run.placement} ranks{stored.seed_words(run.seed)}"
    ax.set_title(
        f"h{pair[0]} to h{pair[1]}: {seen(outages, hit, unused, run.base_rtt_ns)}\n{head}", pad=11
    )
    shown = [state for state in [*COLOURS, *sorted(states - set(COLOURS))] if state in states]
    return legend(
        fig, [area(WORDS.get(state, state), COLOURS.get(state, "#999999")) for state in shown], 4
    )


def _nth(n: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(n, f"{n}th")


def rows_of(stored: Stored, run: Run) -> list[GivenUp]:
    events = stored.rows("events", run)
    moves = events[events["kind"] == "ev"].sort_values("t_ns", kind="stable")
    told = [
        Move(
            t,
            (int(host), int(peer)),
            json.loads(detail).get("qpn") if isinstance(detail, str) else None,
            int(ev),
            was,
            to,
        )
        for t, host, peer, detail, ev, was, to in moves[
            ["t_ns", "host", "peer", "detail", "ev", "from", "to"]
        ].itertuples(index=False)
    ]
    return flap_rows(stored.fabric(run), given_up(told), stored.outages(run))


@per_run(
    lambda s, run: (
        max((row.number for row in run.flaps), default=0) > 1 and len(s.rows("events", run))
    )
)
def flap_penalty(stored: Stored, run: Run) -> Any:
    rows, begin = rows_of(stored, run), stored.begin_ns(run) or 0
    colour, marker = look_of(stored, run.transport)
    all_numbers = sorted({row.number for row in rows})
    numbers = all_numbers[:MOST]
    end = begin + int(run.measured_ns)
    paths = sorted({row.path for row in rows})
    fig, (top, bottom) = panels(
        2, 3.9, x=stored.since(run), sharex=False, gridspec_kw={"height_ratios": [1.25, 1]}
    )
    # Each path in a line of its own: those that are given up most often are those that were soon
    # back, so one through the medians would turn down at the end.
    for k, path in enumerate(paths):
        own = [row for row in rows if row.path == path and row.number in numbers]
        shift = SPREAD * (k / max(1, len(paths) - 1) - 0.5)
        back = [
            (r.number + shift, (r.back_ns - r.out_ns) / 1e3) for r in own if r.back_ns is not None
        ]
        still_out = [(r.number + shift, (end - r.out_ns) / 1e3) for r in own if r.back_ns is None]
        top.plot(
            *zip(*back, strict=True) if back else ((), ()),
            color=colour,
            linewidth=0.4,
            marker=marker,
            markersize=2.8,
            alpha=0.8,
        )
        for at in still_out:
            top.plot(
                *at,
                marker="^",
                markersize=2.8,
                alpha=0.8,
                markerfacecolor="white",
                markeredgecolor=colour,
            )
    top.set_xticks(numbers, [f"{n}.\n{sum(r.number == n for r in rows)}" for n in numbers])
    top.set(xlim=(0.5, numbers[-1] + 0.5), ylabel="out of use for [µs]")
    top.set_ylim(bottom=0)
    first = f"\n(the first {MOST} of {len(all_numbers)} times)" if len(all_numbers) > MOST else ""
    top.set_xlabel("n-th time that a path is given up (below: paths)" + first)
    ends = [(row.number, row.out_ns) for row in run.flaps if row.out_ns is not None]
    seen = "Time that flapping paths stay out of use"
    if len(ends) > 1:
        said = " and ".join(f"{duration(out)} the {_nth(n)} time" for n, out in (ends[0], ends[-1]))
        seen = f"Flapping paths stay out {said}"
    top.set_title(f"{seen}\n{run.transport} on {run.fabric}, seed {run.seed}")
    for row in rows:
        until = end if row.back_ns is None else row.back_ns
        left = (row.out_ns - begin) / 1e3
        bottom.barh(
            paths.index(row.path),
            (until - row.out_ns) / 1e3,
            left=left,
            height=0.7,
            color=colour,
            linewidth=0,
            zorder=2,
        )
    fault_bands(bottom, stored.outages(run), begin, (end - begin) / 1e3)
    bottom.set(
        xlim=(0, (end - begin) / 1e3),
        ylim=(len(paths) - 0.4, -0.6),
        yticks=[],
        ylabel=f"{len(paths)} paths",
    )
    handles = [line("one path", colour, "-", 0.4, marker=marker, markersize=3.5)]
    if any(row.back_ns is None for row in rows):
        handles.append(
            line(
                "still out at the end",
                marker="^",
                markersize=3.5,
                markerfacecolor="white",
                markeredgecolor=colour,
            )
        )
    return legend(fig, [*handles, area("out of use", colour), fault_area()], 3)
