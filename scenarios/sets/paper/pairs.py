"""What two hosts keep while links, switches and paths between them fail, on fabrics with the paper's proportions (Fig 9 to 13, and 19).

Simulated: cluster B with 256 paths between the two, cluster D with 4. The modules of the figures take their statements from here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from scenarios.sets.paper import plots
from scenarios.sets.paper.claims import Claim, Evidence, Row, Run, all_hold, at_least, at_most, judged, number, percent, values
from scenarios.sets.paper.figure import PaperFigure, Part
from testbed.simulated import SIMULATED

PAIR = "pair"
"""Name of the parts whose figures these statements read."""
KEEPS, WITHIN = 0.98, 0.03
"""Least share of the goodput before, where no capacity is lost; and how far it may be from the share that is left otherwise [ours]."""
SETTLED_RTTS = 20
"""Base RTTs after a fault from which on scenarios.figures.failures counts what flows keep."""
CABLES = Claim(24, "two hosts of cluster B: minimal impact on bandwidth")
OPTIC = Claim(25, "two hosts of cluster B: negligible impact")
ONE_OF_EIGHT = Claim(26, "two hosts of cluster B: one plane of eight fewer")
T1 = Claim(27, "two hosts of cluster B: no lasting loss of throughput")
ANY_RATE = Claim(28, "two paths in each of eight planes: line rate is held, whatever the rate of loss")
LEFT = Claim(28, "two paths in each of eight planes: the lossy EV is inactive at once")
NO_EFFECT = Claim(34, "links of 400 Gb/s: no effect")
FOLLOWS = Claim(34, "links of 100 Gb/s: throughput follows what is left, down and up")


def pair(scenario: str, *quick: str) -> Part:
    """The part of a figure that runs a scenario of two hosts."""
    return Part(PAIR, f"{scenario}.toml", quick=quick, world=SIMULATED)


def keeps(e: Evidence, claim: Claim, back: bool, why: str) -> Row:
    """Judge goodput from 20 base RTTs after the first fault on, and if ``back`` after the last one, where no capacity is missing."""
    during, after = e.median(PAIR, "mrc", "kept_during"), e.median(PAIR, "mrc", "kept_after")
    seen = f"{percent(during, 1)} of the goodput before" + (f", {percent(after, 1)} once all is back" if back else "")
    ok = all_hold([at_least(during, KEEPS), *([at_least(after, KEEPS)] if back else [])])
    asked = f"both directions keep {percent(KEEPS)} of the goodput before"
    return judged(claim, asked, seen, ok, ideal="100 %", value=during, unit="of before", why=why)


def cables(e: Evidence) -> Row:
    return keeps(e, CABLES, False, "each failure costs a round trip on a part of the window, and here one comes every 20 base RTTs")


def optic(e: Evidence) -> Row:
    return keeps(e, OPTIC, True, "eight of 32 paths of a plane go at once")


def t1(e: Evidence) -> Row:
    return keeps(e, T1, True, "one of 32 paths of a plane goes")


def t0(e: Evidence) -> Row:
    during, after = e.median(PAIR, "mrc", "kept_during"), e.median(PAIR, "mrc", "kept_after")
    off = None if during is None else abs(during / (7 / 8) - 1)
    asked = f"7/8 of the goodput before, within {percent(WITHIN)}, and all of it afterwards"
    seen = f"{percent(during, 1)}, afterwards {percent(after, 1)}"
    ok = all_hold([at_most(off, WITHIN), at_least(after, 1 - WITHIN)])
    return judged(ONE_OF_EIGHT, asked, seen, ok, ideal="87.5 %, 100 %", value=during, unit="of before", why="windows regrow slowly")


def any_loss(e: Evidence) -> list[Row]:
    """At every rate of loss of the sweep."""
    runs = e.runs(PAIR, "mrc")
    kept = {rate: e.median(PAIR, "mrc", "kept_during", {LOSS: rate}) for rate in e.settings(PAIR, LOSS)}
    least = min((value for value in kept.values() if value is not None), default=None)
    used = values(runs, "lossy_paths.0.used_after_loss_ns")
    longest = max(used, default=None) if len(used) == len(runs) else None
    shown = ", ".join(f"{100 * rate:g} % loss: {percent(value, 1)}" for rate, value in kept.items())
    return [
        judged(
            ANY_RATE,
            f"{percent(KEEPS)} of the goodput before, at every rate",
            shown,
            at_least(least, KEEPS),
            ideal="100 %",
            value=least,
            unit="of before",
            why="the other path of the plane could not take all that the plane carries",
        ),
        judged(
            LEFT,
            "no packet on it after its first loss was found, in any run",
            f"{number(longest, '.0f')} ns in the worst of {len(runs)} runs",
            at_most(longest, 0),
            value=longest,
            unit="ns",
            why="a packet was on its way out already, or the path was never given up",
        ),
    ]


LOSS = "fault.0.probability"


def phases(run: Run) -> list[tuple[float, float]]:
    """(goodput kept during a fault, what the live ones of a T0's four uplinks carry meanwhile), both as shares of the time before."""
    faults = [f for f in run["failovers"] if f.get("healed_ns") is not None and f.get("kept_during") is not None]
    found = []
    for fault in faults:
        begin, end = fault["at_ns"] + SETTLED_RTTS * run["base_rtt_ns"], fault["healed_ns"]
        edges = sorted({begin, end, *(t for f in faults for t in (f["at_ns"], f["healed_ns"]) if begin < t < end)})
        left = sum((b - a) * (4 - _down(faults, (a + b) / 2)) / 4 for a, b in pairwise(edges))
        found.append((fault["kept_during"], left / (end - begin)))
    return found


def _down(faults: list[Any], at: float) -> int:
    return len({link for fault in faults if fault["at_ns"] <= at < fault["healed_ns"] for link in fault["links"]})


def uplinks(e: Evidence) -> list[Row]:
    wide, narrow = (e.runs(PAIR, "mrc", {"fabric": name}) for name in ("cluster-d", "cluster-d-100.toml"))
    least = min((kept for run in wide for kept, _ in phases(run)), default=None)
    pairs = [pair for run in narrow for pair in phases(run)]
    worst = max((abs(kept / left - 1) for kept, left in pairs), default=None)
    shown = ", ".join(f"{percent(kept)} ({percent(left)})" for kept, left in pairs[: len(pairs) // max(1, len(narrow))])
    return [
        judged(
            NO_EFFECT,
            "95 % of the goodput before, with one link left of four",
            f"{percent(least, 1)} during the worst fault",
            at_least(least, 0.95),
            ideal="100 %",
            value=least,
            unit="of before",
            why="a path is a quarter of all here, with a quarter of the window in flight on it when it dies",
        ),
        judged(
            FOLLOWS,
            "during each fault within 5 % of what the live links carry meanwhile",
            f"{percent(worst, 1)} off at most; first seed: {shown}",
            at_most(worst, 0.05),
            value=worst,
            unit="largest deviation",
            why="windows regrow by a packet or two per RTT when a link returns",
        ),
    ]


FIGURES = (
    PaperFigure(
        "19",
        "T0-T1 links of cluster D fail one after the other",
        uplinks,
        plots.two_hosts,
        (pair("pair-uplinks"),),
        "Simulated. The paper's 5 s between two failures are 600 us here: 8,000 times shorter, 60 base RTTs.",
    ),
)
