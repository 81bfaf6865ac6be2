"""The state of every path between two hosts over time, as the sender saw it: one row per path, grouped by plane."""

from __future__ import annotations

from typing import Any

import pandas as pd

from scenarios.figures.outages import Outage, hit_evs
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import area, legend, margin_note, mark_planes, note, panels, per_run
from topologies import Fabric
from topologies.paths import path_evs

COLOURS = {"GOOD": "#CFE3F1", "SKIP": "#F0E442", "ASSUMED_BAD": "#D55E00", "DENIED": "#000000"}
WORDS = {"GOOD": "in use", "SKIP": "skipped once", "ASSUMED_BAD": "assumed bad, only probed", "DENIED": "denied"}
MANY = 4
"""The most outages whose lines have labels: with more, no line has one."""
NAMED = 3
"""The most faults that the title names; it counts further ones."""


def pair_of(fabric: Fabric, events: pd.DataFrame, outages: list[Outage]) -> tuple[int, int] | None:
    """Choose the pair to show: among the pairs whose paths most outages hit, that with most state changes."""
    changes = events[events["kind"] == "ev"]
    if changes.empty:
        return None
    counts = changes.groupby(["host", "peer"]).size()
    hits = {pair: sum(bool(hit_evs(fabric, outage, int(pair[0]), int(pair[1]))) for outage in outages) for pair in counts.index}
    best = max(counts.index, key=lambda pair: (hits[pair], counts[pair], -pair[0]))
    return int(best[0]), int(best[1])


def intervals(changes: pd.DataFrame, end: float) -> list[tuple[float, float, str]]:
    """Return (from, to, state) of one path, times in ns; GOOD until the first change."""
    spans, start, state = [], 0.0, "GOOD"
    for t, new in zip(changes["t_ns"], changes["to"], strict=True):
        spans.append((start, float(t), state))
        start, state = float(t), str(new)
    spans.append((start, end, state))
    return spans


@per_run("paths", lambda stored, run: len(stored.rows("events", run)) and stored.begin_ns(run) is not None)
def draw(stored: Stored, run: dict[str, Any]) -> Any:
    begin, fabric, events, outages = stored.begin_ns(run) or 0.0, stored.fabric(run), stored.rows("events", run), stored.outages(run)
    if (pair := pair_of(fabric, events, outages)) is None:
        return None
    evs = path_evs(fabric, *pair)
    changes = events[(events["kind"] == "ev") & (events["host"] == pair[0]) & (events["peer"] == pair[1])].sort_values("t_ns")
    end = float(begin + run["measured_ns"])
    broken = {ev for outage in outages for ev in hit_evs(fabric, outage, *pair)}
    height = min(6.5, 1.35 + max(0.055, min(0.14, 2.6 / len(evs))) * len(evs))
    fig, (ax,) = panels(1, height, x=f"time since the first {'flow began' if 'flows' in run else 'measured step'} [µs]")
    states: set[str] = {"GOOD"}
    thick = 0.86 if len(evs) <= 32 else 1.0
    for row, ev in enumerate(evs):
        for a, b, state in intervals(changes[changes["ev"] == ev], end):
            a, b = max(a, float(begin)), min(b, end)
            if b > a:
                states.add(state)
                colour = COLOURS.get(state, "#999999")
                ax.barh(row, (b - a) / 1e3, left=(a - begin) / 1e3, height=thick, color=colour, linewidth=0)
    mark_planes(ax, fabric.planes, len(evs) // fabric.planes, color="white", linewidth=2.0)  # rows of a plane: T0 uplink 0 on top
    ax.set(ylim=(len(evs) - 0.4, -0.6), xlim=(0, (end - begin) / 1e3), ylabel="one row per path")
    few = len(outages) <= MANY
    for outage in (o for o in outages if hit_evs(fabric, o, *pair)):
        labels = ("down", "up") if outage.kills else ("begins", "ends")
        for when, label in zip((outage.begin, outage.end), labels, strict=True):
            if begin <= when <= end:
                ax.axvline((when - begin) / 1e3, color="black", linewidth=0.9 if few else 0.5, linestyle="--")
                note(ax, label if few else "", ((when - begin) / 1e3, -0.6))
    for ev in sorted(broken) if len(broken) <= len(evs) // 2 else ():
        margin_note(ax, "◂ hit", evs.index(ev))
    fault_names = list(dict.fromkeys(f"{o.fault} ({o.on})" for o in outages))
    suffix = f" and {len(fault_names) - NAMED} more" if len(fault_names) > NAMED else ""
    head = f"{run['transport']} on {run['fabric']}, {run['placement']} ranks{stored.seed_words(run['seed'])}"
    faults = f"\n{', '.join(fault_names[:NAMED])}{suffix}" if fault_names else ""
    ax.set_title(f"{head}\n{len(evs)} paths from h{pair[0]} to h{pair[1]}{faults}", pad=11)
    shown = [state for state in [*COLOURS, *sorted(states - set(COLOURS))] if state in states]
    legend(fig, [area(WORDS.get(state, state), COLOURS.get(state, "#999999")) for state in shown], 4)
    return fig
