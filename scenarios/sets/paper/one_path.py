"""Fig 4 and 12-14: how a sender treats single EVs: dead from the start, lossy, or shared with
another flow."""

from __future__ import annotations

import math

from scenarios.sets.paper.claims import Evidence, number, or_never, ratio, value_of
from testbed.results.summary import Run
from testbed.terminal import duration


def losses_per_qp(run: Run) -> float | None:
    return ratio(run.untrimmed_loss, run.ranks)


def per_dead_path(run: Run) -> float | None:
    return ratio(run.untrimmed_loss, run.dead_at_start.evs)


def found_rtts(run: Run) -> float | None:
    return (run.dead_at_start.found_ns or 0) / run.base_rtt_ns or None


def dead_paths(e: Evidence, part: str) -> dict[str, str]:
    missed = e.median(part, "mrc", "dead_at_start.missed")
    return {"result": f"{number(missed, '.0f')} never found" if missed else "all found"}


def used_after_loss(run: Run) -> float | None:
    """Return infinity if the lossy path was never given up."""
    return or_never(
        value_of(run, "lossy_paths.0.used_after_loss_ns"),
        bool(value_of(run, "lossy_paths.0.losses")),
    )


def afterwards(e: Evidence, part: str) -> dict[str, str]:
    used_ns = e.median(part, "mrc", used_after_loss)
    still = (
        f"packets for {duration(used_ns)} more"
        if used_ns is None or math.isfinite(used_ns)
        else "packets to the end"
    )
    return {"then": "no more packets" if used_ns == 0 else still}


def backups(run: Run) -> float | None:
    return len(run.lossy_paths[0].replaced_by) if run.lossy_paths else None


def evs_back(run: Run) -> float | None:
    return run.flaps[0].back if run.flaps else None


def separation_time(run: Run) -> float | None:
    """Return infinity if the free flow never left the shared EVs."""
    return or_never(value_of(run, "separations.0.separated_rtts"), bool(run.separations))
