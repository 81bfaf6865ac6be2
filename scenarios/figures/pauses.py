"""Computes how often switches paused those who sent to them (PFC), for how long, and how far from the congestion that reached.

Called by scenarios.figures.summary. Pure. docs/results.md says what each key means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scenarios.figures.books import port_rows
from scenarios.figures.measure import Run
from topologies.units import NS

TIERS = {"nic": "NIC ports", "up": "T0 uplinks", "down": "T1 downlinks"}
"""Ports that a switch behind them may pause, from the senders on; a T0's ports to hosts never are: hosts take everything at once."""


def tier_of(row: Mapping[str, Any]) -> str | None:
    """Return the key in :data:`TIERS` of a counters row's port."""
    if row["kind"] == "nic":
        return "nic" if row["node"].startswith("h") else None
    return "up" if "-t0-" in row["node"] else "down"


def figures(run: Run) -> dict[str, Any]:
    """Return the key ``pfc`` of a run's entry in summary.json; {} without PFC, or without counters."""
    rows = [(tier_of(row), row) for row in port_rows(run.record)] if run.fabric.pfc else []
    if not rows:
        return {}
    tiers = {
        tier: {
            "ports": sum(of == tier for of, _ in rows),
            "paused": sum(row["pauses"] > 0 for of, row in rows if of == tier),
            "pauses": sum(row["pauses"] for of, row in rows if of == tier),
            "paused_ns": sum(row["paused_ns"] for of, row in rows if of == tier),
        }
        for tier in TIERS
    }
    return {
        "pfc": {
            "pauses": sum(of["pauses"] for of in tiers.values()),
            "paused_ns": sum(of["paused_ns"] for of in tiers.values()),
            "longest_pause_ns": max(row["longest_pause_ns"] for _, row in rows),
            "tiers": tiers,
            **_reaction(run, [row for _, row in rows]),
        }
    }


def late_ns(run: Run) -> float:
    """Compute by how much a pause took effect later than ``Fabric.pfc_ps``, at most, ns; 0 if none was late, or it was not measured."""
    rows = port_rows(run.record) if run.fabric.pfc else []
    return max(0, max((row.get("longest_pause_reaction_ns", 0) for row in rows), default=0) - run.fabric.pfc_ps / NS)


def _reaction(run: Run, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compute how long it took from the frame that crossed XOFF until the port's queue was stopped, where that is measured, and when it is
    due."""
    count = sum(row["pauses"] for row in rows)
    if not count or "pause_reaction_ns" not in rows[0]:
        return {}
    mean = sum(row["pause_reaction_ns"] for row in rows) / count
    longest = max(row["longest_pause_reaction_ns"] for row in rows)
    return {"reaction_ns": {"mean": mean, "longest": longest, "effect": run.fabric.pfc_ps / NS}}
