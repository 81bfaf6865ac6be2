"""The state of every path between two hosts over time, as the sender saw it: one row per path, grouped by plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scenarios.figures.outages import Outage, hit_evs
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import figure, margin_note, save
from topologies import Fabric
from topologies.addressing import ev_fields
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


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per run that logged EV states."""
    files: list[Path] = []
    for run in stored.shown_runs:
        events = stored.events[stored.events["run"] == run["run"]] if len(stored.events) else stored.events
        begin = stored.begin_ns(run)
        fabric = stored.fabric(run)
        pair = pair_of(fabric, events, stored.outages(run)) if len(events) and begin is not None else None
        if pair is None or begin is None:
            continue
        files += draw_run(stored, directory, run, events, fabric, pair, begin)
    return files


def draw_run(
    stored: Stored, directory: Path, run: dict[str, Any], events: pd.DataFrame, fabric: Fabric, pair: tuple[int, int], begin: float
) -> list[Path]:
    evs = path_evs(fabric, *pair)
    changes = events[(events["kind"] == "ev") & (events["host"] == pair[0]) & (events["peer"] == pair[1])].sort_values("t_ns")
    end = float(begin + run["measured_ns"])
    outages = stored.outages(run)
    broken = {ev for outage in outages for ev in hit_evs(fabric, outage, *pair)}
    height = min(6.5, 1.35 + max(0.055, min(0.14, 2.6 / len(evs))) * len(evs))
    with figure(1, height) as (fig, ax):
        states: set[str] = {"GOOD"}
        for row, ev in enumerate(evs):
            for a, b, state in intervals(changes[changes["ev"] == ev], end):
                a, b = max(a, float(begin)), min(b, end)
                if b <= a:
                    continue
                states.add(state)
                ax.barh(
                    row,
                    (b - a) / 1e3,
                    left=(a - begin) / 1e3,
                    height=0.86 if len(evs) <= 32 else 1.0,
                    color=COLOURS.get(state, "#999999"),
                    linewidth=0,
                )
        per_plane = len(evs) // fabric.planes  # rows of a plane: T0 uplink 0 on top
        for plane in range(1, fabric.planes):
            ax.axhline(plane * per_plane - 0.5, color="white", linewidth=2.0)
        ax.set_yticks([p * per_plane + (per_plane - 1) / 2 for p in range(fabric.planes)], [f"plane {p}" for p in range(fabric.planes)])
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(evs) - 0.4, -0.6)
        ax.set_xlim(0, (end - begin) / 1e3)
        for outage in (o for o in outages if hit_evs(fabric, o, *pair)):
            labels = ("down", "up") if outage.kills else ("begins", "ends")
            for when, label in zip((outage.begin, outage.end), labels, strict=True):
                if begin <= when <= end:
                    ax.axvline((when - begin) / 1e3, color="black", linewidth=0.9 if len(outages) <= MANY else 0.5, linestyle="--")
                    at = ((when - begin) / 1e3, -0.6)
                    if len(outages) <= MANY:
                        ax.annotate(label, at, xytext=(2, 2), textcoords="offset points", fontsize=6.5, annotation_clip=False)
        for ev in sorted(broken) if len(broken) <= len(evs) // 2 else ():
            plane, uplink = ev_fields(ev)
            margin_note(ax, "◂ hit", evs.index(ev))
        ax.set_xlabel(f"time since the first {'flow began' if 'flows' in run else 'measured step'} [µs]")
        fault_names = list(dict.fromkeys(f"{o.fault} ({o.on})" for o in outages))
        suffix = f" and {len(fault_names) - NAMED} more" if len(fault_names) > NAMED else ""
        head = f"{run['transport']} on {run['fabric']}, {run['placement']} ranks{stored.seed_words(run['seed'])}"
        faults = f"\n{', '.join(fault_names[:NAMED])}{suffix}" if fault_names else ""
        ax.set_title(f"{head}\n{len(evs)} paths from h{pair[0]} to h{pair[1]}{faults}", pad=11)
        ax.set_ylabel("one row per path")
        from matplotlib.patches import Patch

        fig.legend(
            handles=[
                Patch(color=COLOURS.get(s, "#999999"), label=WORDS.get(s, s))
                for s in [*COLOURS, *sorted(states - set(COLOURS))]
                if s in states
            ],
            loc="outside lower center",
            ncols=4,
            columnspacing=1.0,
            handlelength=1.2,
        )
        return save(fig, directory, f"paths-{run['run']}", [run])
