"""Fig 4 and 12-14: how a sender treats single EVs that are dead from the start, lossy, or shared with another flow."""

from __future__ import annotations

import math

from scenarios.sets.paper import plots
from scenarios.sets.paper.claims import (
    Claim,
    Evidence,
    Row,
    Run,
    all_hold,
    at_least,
    at_most,
    cannot,
    judged,
    number,
    or_never,
    percent,
    rtts,
    value_of,
)
from scenarios.sets.paper.failures import AT_ONCE, ride
from scenarios.sets.paper.figure import PaperFigure, Part
from scenarios.sets.paper.pairs import any_loss, pair
from testbed.simulated import SIMULATED
from testbed.terminal import duration

FEW = Claim(10, "fewer than 5 packets per queue pair are lost, even at first")
BELOW = Claim(10, "soon next to nothing is lost any more")
BACKUP = Claim(28, "a backup of its plane takes the lossy EV's place")
INACTIVE = Claim(28, "the lossy EV is inactive at once")
RATE_HELD = Claim(28, "line rate is held")
REBALANCE = Claim(29, "both flows stay near line rate")
MOVES = Claim(29, "the first flow moves to the other EV entirely")
AVOIDS = Claim(6, "a mark means that a path is avoided for now")


def losses_per_qp(run: Run) -> float | None:
    """Return the losses per queue pair of a ring, which has one sending queue pair per rank."""
    return run["untrimmed_loss"] / run["ranks"] if run["ranks"] else None


def per_dead_path(run: Run) -> float | None:
    dead = run["dead_at_start"]["evs"]
    return run["untrimmed_loss"] / dead if dead else None


def start_up(e: Evidence) -> list[Row]:
    per_qp, per_path = e.median("main", "mrc", losses_per_qp), e.median("main", "mrc", per_dead_path)
    dead, missed = e.median("main", "mrc", "dead_at_start.evs"), e.median("main", "mrc", "dead_at_start.missed")
    found_rtts = e.median("main", "mrc", lambda run: (run["dead_at_start"]["found_ns"] or 0) / run["base_rtt_ns"] or None)
    found_ns = e.median("main", "mrc", "dead_at_start.found_ns")
    why = (
        "one path in ten is dead here, so that each QP has 1 or 2 of its 16 dead, with a sixteenth of its window on each when it starts; "
        "the paper's QPs spread theirs over 128-256 EVs, and how many paths were dead is not told"
    )
    result = "all found" if not missed else f"{number(missed, '.0f')} never found"
    return [
        ride(e, "main", 10),
        judged(
            FEW, "below 5 packets per QP", f"{number(per_qp)} per QP", _is_below(per_qp, 5), value=per_qp, unit="packets per QP", why=why
        ),
        judged(
            AT_ONCE,
            "below 6 packets per dead path: a window's part and one more",
            f"{number(per_path)} per dead path, of {number(dead, '.0f')}",
            _is_below(per_path, 6),
            value=per_path,
            unit="packets per path",
            why="a window's part on each path is larger here",
        ),
        judged(
            BELOW,
            "every dead path found; none is used again while it is dead",
            f"{result} within {duration(found_ns)} of traffic, {rtts(found_rtts)}",
            None if missed is None else missed == 0,
            value=found_rtts,
            unit="base RTTs",
            why="a path that carried nothing was not noticed",
        ),
        cannot(
            Claim(10, "1 packet in 25 million"),
            "a run of minutes sends some ten thousand packets a host here, not 25 million: no rate that low can be counted",
        ),
    ]


def _is_below(value: float | None, bound: float) -> bool | None:
    return None if value is None else value < bound


def throughput(e: Evidence) -> list[Row]:
    kept = e.median("main", "mrc", "kept_during")
    asked = "at least 98 % of the goodput before"
    seen = f"{percent(kept, 1)} of the goodput before, of the flow that has less"
    return [
        ride(e, "main", 28),
        judged(RATE_HELD, asked, seen, at_least(kept, 0.98), value=kept, unit="of before", why="8 EVs are in use here: one is an eighth"),
        *any_loss(e),
    ]


def activity(e: Evidence) -> list[Row]:
    used_ns = e.median("main", "mrc", used_after_loss)
    losses = e.median("main", "mrc", lambda run: first_lossy(run, "losses_before_inactive"))
    other_plane = e.median("main", "mrc", lambda run: first_lossy(run, "other_plane"))
    added = e.median("main", "mrc", lambda run: len(run["lossy_paths"][0]["replaced_by"]) if run.get("lossy_paths") else None)
    still = f"packets for {duration(used_ns)} more" if used_ns is None or math.isfinite(used_ns) else "packets to the end"
    stop_text = f"{number(losses, '.0f')} losses before it is out of use, then {'no more packets' if used_ns == 0 else still}"
    backups = f"{number(added, '.0f')} EVs take over, {number(other_plane, '.0f')} of another plane"
    ok = all_hold([at_least(added, 1), at_most(other_plane, 0)])
    returned = e.median("main", "mrc", lambda run: run["flaps"][0]["back"] if run.get("flaps") else None)
    claim = Claim(7, "background probes bring an EV back")
    return [
        judged(
            INACTIVE,
            "no packet on it after its first loss was found",
            stop_text,
            at_most(used_ns, 0),
            value=used_ns,
            unit="ns",
            why="a packet was on its way out already",
        ),
        judged(BACKUP, "one EV or more of the same plane", backups, ok, value=added, unit="EVs", why="the plane had no idle EV left"),
        judged(
            claim,
            "the EV returns at least once in the run",
            f"{number(returned, '.0f')} EVs returned",
            at_least(returned, 1),
            value=returned,
            unit="EVs",
            why="with 20 % loss few rounds of probes come back clean, and each time lost asks for more of them",
        ),
    ]


def first_lossy(run: Run, key: str) -> float | None:
    rows = run.get("lossy_paths") or ()
    return None if not rows or rows[0].get(key) is None else float(rows[0][key])


def used_after_loss(run: Run) -> float | None:
    """Return how long the lossy path was used after its first loss was found, in ns; infinite if it was never given up."""
    return or_never(first_lossy(run, "used_after_loss_ns"), bool(first_lossy(run, "losses")))


def separation_time(run: Run) -> float | None:
    """Return the base RTTs until the free flow had left the shared EVs; infinite if it never did."""
    return or_never(value_of(run, "separations.0.separated_rtts"), bool(run.get("separations")))


def balance(e: Evidence) -> list[Row]:
    least_share, left_share = (e.median("main", "mrc", key) for key in ("groups.flows.min_share", "separations.0.after"))
    separation_rtts, remaining_share = e.median("marks", "mrc", separation_time), e.median("marks", "mrc", "separations.0.after")
    return [
        ride(e, "main", 29),
        judged(
            REBALANCE,
            "both flows keep 90 % of line rate",
            f"{percent(least_share)} at least",
            at_least(least_share, 0.9),
            value=least_share,
            unit="of line",
            ideal="100 %",
            why="the shared EV's cable is oversubscribed until one flow has left it",
        ),
        judged(
            MOVES,
            "at most 5 % of its packets on the first EV, from 40 base RTTs after the second flow began",
            percent(left_share, 1),
            at_most(left_share, 0.05),
            ideal="0 %",
            value=left_share,
            unit="of its packets",
            why="without marks enough in a row it stays",
        ),
        judged(
            AVOIDS,
            "the free flow puts less than 85 % of a fair share on the shared EVs within 50 base RTTs",
            f"{percent(remaining_share)} of a fair share; less than 85 % after: {rtts(separation_rtts)}",
            at_most(separation_rtts, 50),
            value=separation_rtts,
            unit="base RTTs",
            why="a mark makes a sender pass over an EV once: at most half of its share can go",
        ),
    ]


_QUICK_BALANCE = ("workload.flow.A.for=1.4ms", "workload.flow.B.start=480us", "workload.flow.B.for=920us")
_QUICK_LOSSY = ("workload.flow.0.for=960us", "workload.flow.1.for=960us", "fault.0.at=320us", "fault.0.for=480us")
_LOSSY = Part("main", "ev-loss-20", quick=_QUICK_LOSSY, home="12")
"""Fig 12 and 13 use the same runs."""

FIGURES = (
    PaperFigure(
        "4",
        "Losses at the start of a job on a fabric with dead paths",
        start_up,
        plots.start_up,
        (Part("main", "dead-at-start", quick=("workload.message_bytes=8MiB", "workload.steps=1")),),
    ),
    PaperFigure(
        "12",
        "Loss on one EV: throughput",
        throughput,
        plots.and_two_hosts(plots.flows),
        (_LOSSY, pair("pair-ev-loss")),
        "On demo 8 EVs are in use and 8 stand by. Two hosts of cluster B, simulated, have the paper's two paths in each of eight planes.",
    ),
    PaperFigure("13", "20 % loss on one EV: activity of EVs", activity, plots.ev_activity, (_LOSSY,)),
    PaperFigure(
        "14",
        "Load balancing between EVs",
        balance,
        plots.ev_shares,
        (Part("main", "ev-swap", world=SIMULATED), Part("marks", "ev-balance", quick=_QUICK_BALANCE)),
        "As in the paper one EV is in use and one stands by; the first flow begins on the EV of the second one (simulated). On demo the "
        "free flow has four EVs a plane and no backup.",
    ),
)
