"""Fig 9a and 9b: a host's NIC ports go down and come back under flows, one by one and four of eight together."""

from __future__ import annotations

from functools import partial

from scenarios.sets.paper.claims import Evidence, Found, Run, at_most, found, or_never, percent, value_of
from scenarios.sets.paper.failures import ride


def ports(e: Evidence) -> dict[str, Found]:
    deviation = e.median("main", "mrc", "plane_deviation")
    return {
        **four_of_eight(e),
        **{f"pair-{id}": result for id, result in four_of_eight(e, "pair").items()},
        "planes-equal": found(at_most(deviation, 0.01), deviation),
        "remaps": found(None, _slowest(e, "main", "down")),
    }


def settled(run: Run, phase: str) -> float | None:
    """Return the longest time until goodput was steady at what the live ports carry, over the phases of a kind ("down" or "up"), in base
    RTTs; infinite if one never was."""
    key = {"down": "port_down_rtts", "up": "port_back_rtts"}[phase]
    return or_never(value_of(run, key), any(row["phase"] == phase for row in run.get("ports", ())))


def _slowest(e: Evidence, part: str, phase: str) -> float | None:
    return e.median(part, "mrc", partial(settled, phase=phase))


def four_of_eight(e: Evidence, part: str = "main") -> dict[str, Found]:
    error, back = e.median(part, "mrc", "port_down_error"), _slowest(e, part, "up")
    shares = {
        (row["live"], row["expected"]): row["share"]
        for run in e.runs(part, "mrc")
        for row in run.get("ports", ())
        if row["phase"] == "down" and row["share"] is not None
    }
    ladder = ", ".join(f"{live} ports: {percent(share, 1)}" for (live, _), share in sorted(shares.items(), reverse=True))
    expected = ", ".join(f"{live} ports: {percent(share, 1)}" for live, share in sorted(shares, reverse=True))
    return {
        "rides": ride(e, part),
        "follows": found(at_most(error, 0.03), error, ladder=ladder, expected=expected),
        "back": found(at_most(back, 50), back, down=_slowest(e, part, "down")),
    }
