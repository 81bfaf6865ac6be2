"""Writes the line below every figure: the fidelity of its runs, as scenarios.figures.fidelity judged it. Called by
scenarios.show.plots.style.save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scenarios.figures.fidelity import DOUBTFUL, INVALID, TRUSTWORTHY, verdict_of
from testbed.world import SIMULATED

COLOURS = {TRUSTWORTHY: "#707070", DOUBTFUL: "#B25000", INVALID: "#C00000"}


def worth(runs: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return (text, colour) for runs of summary.json; each run counts once."""
    distinct = {str(run["run"]): run for run in runs}.values()
    if not distinct:
        return "computed: no run is in this figure", COLOURS[TRUSTWORTHY]
    verdicts = [verdict_of(run) for run in distinct]
    count = f"{len(verdicts)} run{'s' if len(verdicts) != 1 else ''}"
    if n := sum(run.get("world") == SIMULATED for run in distinct):
        count += ", simulated" if n == len(verdicts) else f", {n} of them simulated"
    worst = next(verdict for verdict in (INVALID, DOUBTFUL, TRUSTWORTHY) if verdict in verdicts)
    if len(set(verdicts)) == 1:
        return f"fidelity: {worst} ({count})", COLOURS[worst]
    parts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in (INVALID, DOUBTFUL, TRUSTWORTHY) if verdict in verdicts)
    return f"fidelity: {parts} ({count})", COLOURS[worst]
