"""Fig 4 and 12-14: how a sender treats single EVs that are dead from the start, lossy, or shared with another flow."""

from __future__ import annotations

import math

from scenarios.sets.paper.claims import Evidence, Found, Run, all_hold, at_least, at_most, found, number, or_never, ratio, value_of
from scenarios.sets.paper.failures import ride
from scenarios.sets.paper.pairs import any_loss
from testbed.terminal import duration


def losses_per_qp(run: Run) -> float | None:
    """Return the losses per queue pair of a ring, which has one sending queue pair per rank."""
    return ratio(run["untrimmed_loss"], run["ranks"])


def per_dead_path(run: Run) -> float | None:
    return ratio(run["untrimmed_loss"], run["dead_at_start"]["evs"])


def start_up(e: Evidence) -> dict[str, Found]:
    per_qp, per_path = e.median("main", "mrc", losses_per_qp), e.median("main", "mrc", per_dead_path)
    dead, missed, found_ns = (e.median("main", "mrc", f"dead_at_start.{key}") for key in ("evs", "missed", "found_ns"))
    found_rtts = e.median("main", "mrc", lambda run: (run["dead_at_start"]["found_ns"] or 0) / run["base_rtt_ns"] or None)
    result = "all found" if not missed else f"{number(missed, '.0f')} never found"
    return {
        "rides": ride(e, "main"),
        "few": found(None if per_qp is None else per_qp < 5, per_qp),
        "out-at-once": found(None if per_path is None else per_path < 6, per_path, dead=dead),
        "found": found(None if missed is None else missed == 0, found_rtts, result=result, found=found_ns),
    }


def throughput(e: Evidence) -> dict[str, Found]:
    kept = e.median("main", "mrc", "kept_during")
    return {"rides": ride(e, "main"), "rate-held": found(at_least(kept, 0.98), kept), **any_loss(e)}


def activity(e: Evidence) -> dict[str, Found]:
    used_ns = e.median("main", "mrc", used_after_loss)
    losses = e.median("main", "mrc", lambda run: first_lossy(run, "losses_before_inactive"))
    other_plane = e.median("main", "mrc", lambda run: first_lossy(run, "other_plane"))
    added = e.median("main", "mrc", lambda run: len(run["lossy_paths"][0]["replaced_by"]) if run.get("lossy_paths") else None)
    returned = e.median("main", "mrc", lambda run: run["flaps"][0]["back"] if run.get("flaps") else None)
    still = f"packets for {duration(used_ns)} more" if used_ns is None or math.isfinite(used_ns) else "packets to the end"
    return {
        "inactive": found(at_most(used_ns, 0), used_ns, losses=losses, then="no more packets" if used_ns == 0 else still),
        "backup": found(all_hold([at_least(added, 1), at_most(other_plane, 0)]), added, other_plane=other_plane),
        "comes-back": found(at_least(returned, 1), returned),
    }


def first_lossy(run: Run, key: str) -> float | None:
    rows = run.get("lossy_paths") or ()
    return None if not rows or rows[0].get(key) is None else float(rows[0][key])


def used_after_loss(run: Run) -> float | None:
    """Return how long the lossy path was used after its first loss was found, in ns; infinite if it was never given up."""
    return or_never(first_lossy(run, "used_after_loss_ns"), bool(first_lossy(run, "losses")))


def separation_time(run: Run) -> float | None:
    """Return the base RTTs until the free flow had left the shared EVs; infinite if it never did."""
    return or_never(value_of(run, "separations.0.separated_rtts"), bool(run.get("separations")))


def balance(e: Evidence) -> dict[str, Found]:
    least_share, left_share = (e.median("main", "mrc", key) for key in ("groups.flows.min_share", "separations.0.after"))
    separation_rtts, remaining_share = e.median("marks", "mrc", separation_time), e.median("marks", "mrc", "separations.0.after")
    return {
        "rides": ride(e, "main"),
        "rebalance": found(at_least(least_share, 0.9), least_share),
        "moves": found(at_most(left_share, 0.05), left_share),
        "avoids": found(at_most(separation_rtts, 50), separation_rtts, remaining=remaining_share),
    }
