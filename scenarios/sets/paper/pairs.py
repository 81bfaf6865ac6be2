"""What two hosts keep while links, switches and paths between them fail, on fabrics with the paper's proportions (Fig 9 to 13, and 19).

Simulated: cluster B with 256 paths between the two, cluster D with 4. The parts are called "pair"; the modules of the figures take the
statements on them from here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from scenarios.sets.paper.claims import Evidence, Found, Run, all_hold, at_least, at_most, found, percent, values

PAIR = "pair"
KEEPS, WITHIN = 0.98, 0.03
"""Least share of the goodput before, where no capacity is lost; and how far it may be from the share that is left otherwise [ours]."""
SETTLED_RTTS = 20
"""Base RTTs after a fault from which on scenarios.figures.failures counts what flows keep."""
LOSS = "fault.0.probability"


def keeps(e: Evidence, back: bool = True) -> Found:
    """Judge goodput from 20 base RTTs after the first fault on, and if ``back`` after the last one, where no capacity is missing."""
    during, after = e.median(PAIR, "mrc", "kept_during"), e.median(PAIR, "mrc", "kept_after")
    return found(all_hold([at_least(during, KEEPS), *([at_least(after, KEEPS)] if back else [])]), during, after=after)


def t0(e: Evidence) -> Found:
    during, after = e.median(PAIR, "mrc", "kept_during"), e.median(PAIR, "mrc", "kept_after")
    off = None if during is None else abs(during / (7 / 8) - 1)
    return found(all_hold([at_most(off, WITHIN), at_least(after, 1 - WITHIN)]), during, after=after)


def any_loss(e: Evidence) -> dict[str, Found]:
    """Judge every rate of loss of the sweep."""
    runs = e.runs(PAIR, "mrc")
    kept = {rate: e.median(PAIR, "mrc", "kept_during", {LOSS: rate}) for rate in e.settings(PAIR, LOSS)}
    least = min((value for value in kept.values() if value is not None), default=None)
    used = values(runs, "lossy_paths.0.used_after_loss_ns")
    longest = max(used, default=None) if len(used) == len(runs) else None
    shown = ", ".join(f"{100 * rate:g} % loss: {percent(value, 1)}" for rate, value in kept.items())
    return {"any-rate": found(at_least(least, KEEPS), least, kept=shown), "left": found(at_most(longest, 0), longest, runs=len(runs))}


def phases(run: Run) -> list[tuple[float, float]]:
    """(goodput kept during a fault, what the live ones of a T0's four uplinks carry meanwhile), both as shares of the time before."""
    faults = [f for f in run["failovers"] if f.get("healed_ns") is not None and f.get("kept_during") is not None]
    shares = []
    for fault in faults:
        begin, end = fault["at_ns"] + SETTLED_RTTS * run["base_rtt_ns"], fault["healed_ns"]
        edges = sorted({begin, end, *(t for f in faults for t in (f["at_ns"], f["healed_ns"]) if begin < t < end)})
        left = sum((b - a) * (4 - _down(faults, (a + b) / 2)) / 4 for a, b in pairwise(edges))
        shares.append((fault["kept_during"], left / (end - begin)))
    return shares


def _down(faults: list[Any], at: float) -> int:
    return len({link for fault in faults if fault["at_ns"] <= at < fault["healed_ns"] for link in fault["links"]})


def uplinks(e: Evidence) -> dict[str, Found]:
    wide, narrow = (e.runs(PAIR, "mrc", {"fabric": name}) for name in ("cluster-d", "cluster-d-100.toml"))
    least = min((kept for run in wide for kept, _ in phases(run)), default=None)
    pairs = [pair for run in narrow for pair in phases(run)]
    worst = max((abs(kept / left - 1) for kept, left in pairs), default=None)
    shown = ", ".join(f"{percent(kept)} ({percent(left)})" for kept, left in pairs[: len(pairs) // max(1, len(narrow))])
    return {"no-effect": found(at_least(least, 0.95), least), "follows": found(at_most(worst, 0.05), worst, faults=shown)}
