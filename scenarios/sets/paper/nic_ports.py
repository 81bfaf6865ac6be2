"""Fig 9a and 9b: a host's NIC ports go down and come back under flows, one by one and four of eight together."""

from __future__ import annotations

from scenarios.sets.paper.claims import Evidence, or_never, percent, value_of
from testbed.results.summary import Run


def settled_down(run: Run) -> float | None:
    """Return the longest time from the loss of a port until goodput was steady at what the live ports carry, in base RTTs; infinite if it
    never was."""
    return or_never(value_of(run, "port_down_rtts"), _has(run, "down"))


def settled_up(run: Run) -> float | None:
    """Return the same from the return of a port."""
    return or_never(value_of(run, "port_back_rtts"), _has(run, "up"))


def _has(run: Run, phase: str) -> bool:
    return any(row.phase == phase for row in (run.ports or ()))


def ladder(e: Evidence, part: str) -> dict[str, str]:
    """Write the shares that the live ports carried, and those that they could."""
    shares = {
        (row.live, row.expected): row.share
        for run in e.runs(part, "mrc")
        for row in (run.ports or ())
        if row.phase == "down" and row.share is not None
    }
    return {
        "ladder": ", ".join(f"{live} ports: {percent(share, 1)}" for (live, _), share in sorted(shares.items(), reverse=True)),
        "expected": ", ".join(f"{live} ports: {percent(share, 1)}" for live, share in sorted(shares, reverse=True)),
    }
