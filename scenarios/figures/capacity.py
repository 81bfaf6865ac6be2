"""How near a collective comes to what theory allows with whatever is broken at the time. docs/results.md says what each key means.

Called by scenarios.figures.failures. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scenarios.figures.flows import rate_in
from scenarios.figures.measure import Run
from scenarios.figures.outages import Outage, changes, dead_at
from topologies.theory import COLLECTIVES, bus_bandwidth, collective_step_ns

SETTLE_RTTS = 20
"""After a change nothing is asked for so many base RTTs (the issue's figure)."""
REGROW_RTTS = 60
"""After capacity came back: NSCC's windows grow by a packet or two per RTT at these rates, and nothing tells them sooner [ours]."""
FEWEST_FOR_P99 = 1000

Theory = Callable[[frozenset[str]], float]


def theory_of(run: Run) -> Theory:
    """Dead cables -> bus bandwidth that is left, bits/s; each set is solved once."""
    known: dict[frozenset[str], float] = {}

    def left(dead: frozenset[str]) -> float:
        if dead not in known:
            known[dead] = bus_bandwidth(run.fabric, run.record["workload"], run.record["ranks"], sorted(dead))
        return known[dead]

    return left


def stretches(run: Run, found: list[Outage]) -> list[tuple[int, int, frozenset[str]]]:
    """(begin, end, dead cables): the measured window without the base RTTs after each change, more of them after one for the better."""
    begin, end = run.window
    at = changes(found)
    strange = [(o.begin, o.end) for o in found if o.entry.slows]  # theory does not know of them
    edges = sorted({begin, *(t for t in at if begin < t < end)})
    settle = {t: (SETTLE_RTTS if dead_at(found, t) - dead_at(found, t - 1) else REGROW_RTTS) * run.fabric.base_rtt_ns for t in at}
    out = []
    for a, b in zip(edges, [*edges[1:], end], strict=True):
        a = max([a, *(t + settle[t] for t in at if t <= a)])
        if a < b and not any(x < b and a < y for x, y in strange):
            out.append((a, b, dead_at(found, a)))
    return out


def bandwidths(run: Run, found: list[Outage], left: Theory) -> list[dict[str, Any]]:
    """One row per capacity that theory leaves, apart while something is dead and while all is whole: bus bandwidth over all its stretches
    beside it. At least 20 base RTTs in all, or no row.
    """
    pooled: dict[tuple[float, bool], list[tuple[int, int]]] = {}
    for begin, end, dead in stretches(run, found):
        pooled.setdefault((float(round(left(dead))), bool(dead)), []).append((begin, end))
    ranks = len(run.record["ranks"])
    rows = []
    for (theory, broken), spans in pooled.items():
        took = sum(end - begin for begin, end in spans)
        if took < SETTLE_RTTS * run.fabric.base_rtt_ns or theory <= 0:
            continue
        bits = sum((rate_in(run.goodput, span) or 0.0) * (span[1] - span[0]) / 1e9 for span in spans)
        got = bits * 1e9 / took / ranks  # what each rank gets is the bus bandwidth
        rows.append({"broken": broken, "ns": took, "busbw_bps": got, "theory_bps": theory, "share": got / theory})
    return rows


def step_ratios(run: Run, found: list[Outage], left: Theory) -> list[float]:
    """Per step that all ranks finished: its time over that of a step at the least capacity that there was in the meantime."""
    frame = run.steps[~run.steps["warmup"].astype(bool)]
    kind, ranks, size = run.record["workload"], len(run.record["ranks"]), int(run.record["message_bytes"])
    at = changes(found)
    out = []
    for step, took in run.step_times.items():
        mine = frame[frame["step"] == step]
        begin, end = int(mine["start_ns"].min()), int(mine["end_ns"].max())
        if any(o.entry.slows and o.begin < end and begin < o.end for o in found):
            continue
        least = min(left(dead_at(found, t)) for t in [begin, *(t for t in at if begin < t < end)])
        out.append(float(took) / collective_step_ns(kind, ranks, size, least))
    return out


def figures(run: Run, found: list[Outage]) -> dict[str, Any]:
    """What a collective's run adds to its entry in summary.json; nothing for other runs."""
    if run.record["workload"] not in COLLECTIVES:
        return {}
    left = theory_of(run)
    rows = bandwidths(run, found, left)
    ratios = sorted(step_ratios(run, found, left))
    rank = math.ceil(0.99 * len(ratios)) if len(ratios) >= FEWEST_FOR_P99 else len(ratios)
    return {
        "outside_busbw": rows,
        "outside_busbw_share": min((row["share"] for row in rows if row["broken"]), default=None),
        "whole_busbw_share": min((row["share"] for row in rows if not row["broken"]), default=None),
        "step_p99_over_theory": ratios[rank - 1] if ratios else None,
    }
