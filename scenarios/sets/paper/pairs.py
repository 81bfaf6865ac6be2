"""What two hosts keep while links and paths between them fail (Fig 12 and 19).

Simulated: cluster B with 256 paths between the two, cluster D with 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Any

from scenarios.sets.paper.claims import Evidence, percent, values
from scenarios.sets.paper.one_path import used_after_loss
from testbed.results.summary import Run

SETTLED_RTTS = 20  # after which scenarios.figures.failures counts what flows keep
LOSS = "fault.0.probability"


def any_loss(e: Evidence, part: str) -> dict[str, Any]:
    runs = e.runs(part, "mrc")
    kept = {
        rate: e.median(part, "mrc", "kept_during", {LOSS: rate}) for rate in e.settings(part, LOSS)
    }
    least = min((value for value in kept.values() if value is not None), default=None)
    used = values(runs, used_after_loss)
    longest = max(used, default=None) if len(used) == len(runs) else None
    shown = ", ".join(f"{100 * rate:g} % loss: {percent(value, 1)}" for rate, value in kept.items())
    return {"least": least, "kept": shown, "longest": longest, "runs": len(runs)}


def phases(run: Run) -> list[tuple[float, float]]:
    """Return (goodput kept during a fault, what the live ones of a T0's four uplinks carry), shares
    of the time before."""
    spans = [
        (f.at_ns, f.healed_ns, f.links, f.kept_during)
        for f in run.failovers
        if f.healed_ns is not None and f.kept_during is not None
    ]
    shares = []
    for at, end, _, kept in spans:
        begin = at + SETTLED_RTTS * run.base_rtt_ns
        edges = sorted(
            {
                begin,
                end,
                *(t for from_ns, until, *_ in spans for t in (from_ns, until) if begin < t < end),
            }
        )
        left = 0.0
        for a, b in pairwise(edges):
            down = {
                link
                for from_ns, until, links, _ in spans
                if from_ns <= (a + b) / 2 < until
                for link in links
            }
            left += (b - a) * (4 - len(down)) / 4
        shares.append((kept, left / (end - begin)))
    return shares


def _median(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return median(found) if found else None


def uplinks(e: Evidence, part: str) -> dict[str, Any]:
    wide, narrow = (
        e.runs(part, "mrc", {"fabric": name}) for name in ("cluster-d", "cluster-d-100.toml")
    )
    least = _median(min((kept for kept, _ in phases(run)), default=None) for run in wide)
    pairs = [pair for run in narrow for pair in phases(run)]
    worst = _median(
        max((abs(kept / left - 1) for kept, left in phases(run)), default=None) for run in narrow
    )
    shown = ", ".join(
        f"{percent(kept)} ({percent(left)})"
        for kept, left in pairs[: len(pairs) // max(1, len(narrow))]
    )
    return {"least": least, "worst": worst, "faults": shown}
