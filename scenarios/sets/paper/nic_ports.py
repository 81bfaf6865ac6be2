"""Fig 9a and 9b: a host's NIC ports go down and come back under flows."""

from __future__ import annotations

from scenarios.sets.paper.claims import Evidence, or_never, percent, value_of
from testbed.results.summary import PortPhase, Run


def settled_down(run: Run) -> float | None:
    """Return base RTTs from a port's loss until goodput was steady at what live ports carry, the
    longest; infinite if never."""
    return or_never(value_of(run, "port_down_rtts"), _has(run, "down"))


def settled_up(run: Run) -> float | None:
    return or_never(value_of(run, "port_back_rtts"), _has(run, "up"))


def _has(run: Run, phase: str) -> bool:
    return any(row.phase == phase for row in (run.ports or ()))


def ladder(e: Evidence, part: str) -> dict[str, str]:
    """Compare the shares that live ports carried and could carry, per number of ports, in the worst
    phase of all runs."""
    worst: dict[int, PortPhase] = {}
    for row in (
        row
        for run in e.runs(part, "mrc")
        for row in run.ports
        if row.phase == "down" and row.share is not None
    ):
        if row.live not in worst or (row.error or 0) > (worst[row.live].error or 0):
            worst[row.live] = row
    rows = [row for _, row in sorted(worst.items(), reverse=True)]
    return {
        "ladder": ", ".join(f"{row.live} ports: {percent(row.share, 1)}" for row in rows),
        "expected": ", ".join(f"{row.live} ports: {percent(row.expected, 1)}" for row in rows),
    }
