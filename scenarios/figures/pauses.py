"""Computes how often and how long switches paused senders (PFC), and how far from the
congestion."""

from __future__ import annotations

from scenarios.figures.books import PortRow
from scenarios.figures.measure import Run
from testbed.results.summary import Pauses, Reaction, Tier
from topologies.units import NS

TIERS = {"nic": "NIC ports", "up": "T0 uplinks", "down": "T1 downlinks"}
"""Ports that may be paused. T0 ports to hosts never are: hosts take everything at once."""


def tier_of(row: PortRow) -> str | None:
    if row.written["kind"] == "nic":
        return "nic" if row.of_host else None
    return "up" if "-t0-" in row.node else "down"


def figures(run: Run) -> Pauses | None:
    rows = run.ports if run.fabric.pfc else []
    if not rows:
        return None
    by_tier = {tier: [row for row in rows if tier_of(row) == tier] for tier in TIERS}
    tiers = {
        tier: Tier(
            ports=len(of),
            paused=sum(row["pauses"] > 0 for row in of),
            pauses=sum(row["pauses"] for row in of),
            paused_ns=sum(_ns(row, "paused_ps") for row in of),
        )
        for tier, of in by_tier.items()
    }
    count, reaction = sum(row["pauses"] for row in rows), None
    if count and "pause_reaction_ps" in rows[0]:
        longest = max(_ns(row, "longest_pause_reaction_ps") for row in rows)
        mean = sum(_ns(row, "pause_reaction_ps") for row in rows) / count
        reaction = Reaction(mean=mean, longest=longest, effect=run.fabric.pfc_ps / NS)
    return Pauses(
        pauses=sum(of.pauses for of in tiers.values()),
        paused_ns=sum(of.paused_ns for of in tiers.values()),
        longest_pause_ns=max(_ns(row, "longest_pause_ps") for row in rows),
        tiers=tiers,
        reaction_ns=reaction,
    )


def late_ns(run: Run) -> float:
    """Return the most by which a pause took longer than ``Fabric.pfc_ps``, ns; 0 if not
    measured."""
    rows = run.ports if run.fabric.pfc else []
    return max(
        0,
        max((_ns(row, "longest_pause_reaction_ps") for row in rows), default=0)
        - run.fabric.pfc_ps / NS,
    )


def _ns(row: PortRow, name: str) -> float:
    return row[name] / NS
