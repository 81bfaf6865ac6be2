"""Fig 5-8 and 9c-11: how much performance a job keeps while links and switches fail. Shipped scenarios, and two of a job."""

from __future__ import annotations

from functools import partial

from scenarios.run.resume import FINISHED
from scenarios.sets.paper import pairs
from scenarios.sets.paper.claims import Evidence, Found, Run, all_hold, at_least, at_most, found, percent
from scenarios.sets.paper.pairs import PAIR

FEW_TENS_US = 50.0
"""The bound that stands for "a few tens of microseconds" [ours]."""
OF_THEORY, WHOLE, OVER = 0.95, 0.92, 0.05
"""Share of what theory leaves, from 20 base RTTs after each loss of capacity; share of the whole fabric, from 60 after each return; time
lost beyond theory [ours]."""


def on_dead_us(run: Run) -> float | None:
    """Return the time from a path's failure to the last packet on it, the longest of the run, in us."""
    durations_us = [
        f["last_on_dead_rtts"] * f["srtt_ns"] / 1e3
        for f in run.get("failovers", ())
        if f.get("last_on_dead_rtts") is not None and f.get("srtt_ns")
    ]
    return max(durations_us, default=None)


def beyond_theory(run: Run) -> float | None:
    """Return the time lost to failures beyond the cost of the lost capacity, as a share of the healthy time of all steps."""
    cost = run.get("failure_cost") or {}
    if cost.get("extra_ns") is None or cost.get("ideal_extra_ns") is None or not cost.get("healthy_step_ns"):
        return None
    return float((cost["extra_ns"] - cost["ideal_extra_ns"]) / (cost["steps"] * cost["healthy_step_ns"]))


def lost_share(run: Run) -> float | None:
    """Return the time lost to failures, as a share of the healthy time of all steps."""
    cost = run.get("failure_cost") or {}
    return None if cost.get("extra_percent") is None else float(cost["extra_percent"]) / 100


# --- judgements of several figures ---------------------------------------------------------------------------------


def ride(e: Evidence, part: str) -> Found:
    """Judge whether any run that was not interrupted has a wrong result, a failed step or a queue pair in error."""
    runs = [run for run in e.runs(part, "mrc", ended=False) if run["outcome"] in FINISHED]
    if not runs:
        return Found(None, 0.0)
    bad = sum(run["wrong"] + run.get("failed_steps", 0) + run.get("qp_errors", 0) + (run["outcome"] != "done") for run in runs)
    steps = sum(run.get("steps") or 0 for run in runs)
    return found(bad == 0, float(bad), workload=f"{steps} steps" if steps else f"{len(runs)} runs of flows")


def bypass(e: Evidence) -> Found:
    value = e.median("main", "mrc", on_dead_us)
    return found(at_most(value, FEW_TENS_US), value, rtts=e.median("main", "mrc", "last_on_dead_rtts"))


def leaves(e: Evidence) -> dict[str, Found]:
    """Judge how soon dead paths are left, and how much is lost on them."""
    excess = e.median("main", "mrc", "ev_loss_excess")
    lost = e.median("main", "mrc", lambda run: max((f["losses_per_ev"] for f in run["failovers"] if f["losses_per_ev"]), default=None))
    return {"out-at-once": found(at_most(excess, 1), excess, lost=lost), "bypassed": bypass(e)}


def least_left(run: Run) -> float | None:
    """Return the share of the bus bandwidth that theory leaves at the worst time."""
    return min((row["theory_bps"] / run["ideal_busbw_bps"] for row in run.get("outside_busbw", ())), default=None)


def keeps(e: Evidence) -> Found:
    """Compare the bus bandwidth with theory during outages and after them."""
    broken, after = e.median("main", "mrc", "outside_busbw_share"), e.median("main", "mrc", "whole_busbw_share")
    left = e.median("main", "mrc", least_left)
    ok = all_hold([at_least(broken, OF_THEORY), at_least(after, WHOLE)])
    return found(ok, broken, after=after, left="" if left is None else f"{percent(left)} of the bus bandwidth")


def negligible(e: Evidence, part: str, placement: str | None = None) -> Found:
    """Judge what failures cost a job beyond the lost capacity."""
    beyond, lost = (e.median(part, "mrc", figure, placement=placement) for figure in (beyond_theory, lost_share))
    explained = None if lost is None or beyond is None else lost - beyond
    return found(at_most(beyond, OVER), beyond, lost=lost, explained=explained)


# --- the figures ---------------------------------------------------------------------------------------------------


def flaps_under_a_job(e: Evidence) -> dict[str, Found]:
    def lower(run: Run) -> float | None:
        healthy, slowest = (run.get("failure_cost") or {}).get("healthy_step_ns"), run["step_time_ns"]["max"]
        return None if not healthy or not slowest else float(1 - healthy / slowest)

    quarter, whole = e.median("optic", "mrc", lower), e.median("optic", "mrc", "whole_busbw_share")
    return {
        "cables-ride": ride(e, "t0-t1"),
        "packed": negligible(e, "t0-t1", "packed"),
        "interleaved": negligible(e, "t0-t1", "interleaved"),
        "repair-rides": ride(e, "technician"),
        "repaired": negligible(e, "technician"),
        "optic-rides": ride(e, "optic"),
        "quarter": found(all_hold([at_least(quarter, 0.15), at_most(quarter, 0.35)]), quarter),
        "no-more": negligible(e, "optic"),
        "full-again": found(at_least(whole, WHOLE), whole),
    }


def silent_t1(e: Evidence) -> dict[str, Found]:
    lost = e.median("main", "mrc", lambda run: run["failovers"][0]["lost"] / run["ranks"] if run["failovers"] else None)
    rides = ride(e, "main")
    return {
        "rides": rides,
        "left-in-use": rides,
        "unaffected": keeps(e),
        "four-ride": ride(e, "reboots"),
        "four": negligible(e, "reboots"),
        "lost": found(None, lost),
        **leaves(e),
    }


def _dead(e: Evidence, pair_keeps: Found, kept: str) -> dict[str, Found]:
    """Judge two hosts and a job while something is gone. ``kept``: the statement on what the job keeps."""
    return {"pair-rides": ride(e, PAIR), "pair-keeps": pair_keeps, "rides": ride(e, "main"), kept: keeps(e)}


def sequential(e: Evidence) -> dict[str, Found]:
    return {**_dead(e, pairs.keeps(e, back=False), "minimal"), **leaves(e)}


def out_rtts(run: Run, index: int) -> float | None:
    """Return how long EVs stayed out of use the first (0) or last (-1) time they were given up: median, in base RTTs."""
    out_ns = [row["out_ns"] for row in run.get("flaps", ()) if row["out_ns"] is not None]
    return out_ns[index] / run["base_rtt_ns"] if out_ns else None


def flapping(e: Evidence) -> dict[str, Found]:
    slowest = e.median("main", "mrc", "step_p99_over_theory")
    returned = e.median("main", "mrc", lambda run: run["flaps"][0]["back"] / run["flaps"][0]["n"] if run.get("flaps") else None)
    first, last = (e.median("main", "mrc", partial(out_rtts, index=index)) for index in (0, -1))
    return {
        "pair-rides": ride(e, PAIR),
        "pair-keeps": pairs.keeps(e),
        "rides": ride(e, "main"),
        "negligible": found(at_most(slowest, 1.25), slowest),
        "comes-back": found(at_least(returned, 0.5), returned, first=first, last=last),
        **leaves(e),
    }


def dead_t0(e: Evidence) -> dict[str, Found]:
    return {**_dead(e, pairs.t0(e), "one-plane"), "bypassed": bypass(e)}


def dead_t1(e: Evidence) -> dict[str, Found]:
    return {**_dead(e, pairs.keeps(e), "no-lasting"), **leaves(e)}
