"""Computes effects of failures: how soon senders left dead paths, what was lost there, and which
paths were given up without a cause."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from scenarios.figures.flows import all_on, rate_in
from scenarios.figures.leaving import departures, worst_of
from scenarios.figures.measure import Run
from scenarios.figures.outages import ENDLESS, LATE_RTTS, NO_LOSS, Failures, Outage, Pair, kind_of
from testbed.results import log, summary

SETTLE_RTTS = 20


def shares_kept(
    failures: Failures, outages: Sequence[Outage]
) -> tuple[float | None, float | None, float | None]:
    """Return the least share of earlier goodput of any flow hit: during the fault, late in it and
    after it."""
    run, window = failures.run, all_on(failures.run)
    begin, end = min(o.begin for o in outages), max(o.end for o in outages)
    if not run.named_flows or window is None or not window[0] < begin < window[1]:
        return None, None, None
    settle = SETTLE_RTTS * run.base_rtt_ns
    first = min((o.begin for o in failures.outages if o.begin > window[0]), default=begin)
    last = min(end, window[1])
    shares: tuple[list[float], list[float], list[float]] = [], [], []
    for flow in failures.flows_hit(outages):
        bins = run.flows[run.flows["flow"] == flow.name]
        before = rate_in(bins, (window[0], first))
        spans = (begin + settle, last), ((begin + last) // 2, last), (end + settle, window[1])
        for values, (a, b) in zip(shares, spans, strict=True):
            if before and a < b and (rate := rate_in(bins, (a, b))) is not None:
                values.append(rate / before)
    during, late, after = (min(values, default=None) for values in shares)
    return during, late, after


def delivered_ns(failures: Failures, lost: Sequence[log.Loss]) -> float | None:
    """Return when the sender knew that the last of these packets had arrived, ns; None if one never
    did."""
    return worst_of([failures.redelivered(line) for line in lost])


def failovers(failures: Failures) -> list[summary.Failover]:
    """Make a row per fault: the last data packet on a killed path, losses and cost. Only the time
    until the repair counts."""
    run = failures.run
    started = run.window[0] if run.record.t0_ns is None else run.record.t0_ns
    rows = []
    for fault in (f for f in failures.faults if f.phase == "begin"):
        outages = [o for o in failures.outages if o.fault == fault.name and o.begin >= fault.t_ns]
        if not outages:
            continue
        heals = [
            f.t_ns
            for f in failures.faults
            if f.phase == "heal" and f.name == fault.name and f.t > fault.t
        ]
        end = min(heals, default=ENDLESS)
        outages = [o for o in outages if o.begin <= end]
        until = end
        # then until what was sent before is missed
        if any(failures.dead_until(o) < o.end for o in outages):
            until = min(
                end, max(failures.dead_until(o) for o in outages) + LATE_RTTS * run.base_rtt_ns
            )
        dead: dict[Pair, frozenset[int]] = defaultdict(frozenset)
        for outage in outages:
            for pair, evs in failures.dead(outage).items():
                dead[pair] |= evs
        begin = fault.t_ns
        # A reroute names the path that it left as "old".
        left = [
            v
            for v in failures.verdicts
            if begin <= v.t_ns <= until and v.ev in dead.get(v.pair, ())
        ]
        moved = [
            r
            for r in failures.reroutes
            if begin <= r.t_ns <= until
            and r.old in dead.get((r.host, -1 if r.peer is None else r.peer), ())
        ]
        lost = [
            x for x in failures.losses if begin <= x.t_ns <= until and x.ev in dead.get(x.pair, ())
        ]
        last_data = [line.last_data_ns for line in left] + [line.last_data_ns for line in moved]
        leaving = departures(failures, outages)
        worst = max(leaving, key=lambda departure: departure.losses, default=None)
        during, late, after = shares_kept(failures, outages)
        rows.append(
            summary.Failover(
                fault=fault.name,
                kind=fault.fault,
                on=fault.on,
                links=list(outages[0].links),
                to=outages[0].to,
                probability=outages[0].probability,
                direction=outages[0].direction,
                at_ns=begin,
                after_ns=begin - started,
                healed_ns=None if end == ENDLESS else end,
                outages_ns=[(o.begin, None if o.end == ENDLESS else o.end) for o in outages],
                last_on_dead_path_ns=max((t for t in last_data if t), default=None),
                detected_ns=max(
                    [line.t_ns for line in left] + [line.t_ns for line in moved], default=None
                ),
                lost=len(lost),
                delivered_ns=delivered_ns(failures, lost),
                cost_ns=cost_ns(run, begin),
                left_queue_pairs=len(leaving),
                srtt_ns=statistics.median(d.srtt_ns for d in leaving) if leaving else None,
                rotation_ns=max(
                    (d.rotation_ns for d in leaving if d.rotation_ns is not None), default=None
                ),
                last_on_dead_rtts=worst_of([d.rtts for d in leaving]),
                last_on_dead_over_rotation=worst_of([d.over_rotation for d in leaving]),
                losses_per_ev=None if worst is None else worst.losses,
                losses_per_ev_bound=None if worst is None else worst.bound,
                ev_loss_excess=worst_of([d.excess for d in leaving]),
                kept_during=during,
                kept_late=late,
                kept_after=after,
            )
        )
    return rows


def cost_ns(run: Run, at: float) -> float | None:
    """Return the time, ns, by which the slowest step that ended at or after ``at`` exceeds the
    median undisturbed step."""
    times = run.step_times
    if times.empty:
        return None
    by_step = run.whole_steps.groupby("step")
    ends = by_step["end_ns"].max()
    before, after = times[ends < at], times[ends >= at]
    if after.empty:
        return None
    begins = [line.t_ns for line in run.of(log.Fault)]
    undisturbed = (
        before if len(before) else times[by_step["start_ns"].min() > max(begins, default=0)]
    )
    return float(after.max() - (undisturbed.median() if len(undisturbed) else times.min()))


# --- verdicts without a cause, and paths dead from the start --------------------------------------


def false_bad(failures: Failures) -> list[log.PathChange]:
    """Find verdicts that no fault explains: at that time, shortly before, or while the lost packet
    was on its way."""
    margin = LATE_RTTS * failures.run.base_rtt_ns
    sent: dict[tuple[Pair, int | None, int], list[tuple[float, float]]] = {}
    for line in failures.losses:
        if line.sent_ps:
            sent.setdefault((line.pair, line.qpn, line.ev), []).append((line.t_ns, line.sent_ns))

    def explained(v: log.PathChange) -> bool:
        # The verdict on a lightly used path comes late: what counts is when the packet was sent.
        sent_times = [
            s for t, s in sent.get((v.pair, v.qpn, v.ev), ()) if v.t_ns - 5 * margin <= t <= v.t_ns
        ]
        return any(
            v.ev in failures.hits(o, v.pair)
            and (
                o.begin <= v.t_ns <= o.end + margin
                or any(o.begin - margin <= s <= o.end for s in sent_times)
            )
            for o in failures.outages
        )

    return [v for v in failures.verdicts if not explained(v)]


def nacks_lost(run: Run) -> int | None:
    """Return NACKs sent but received by none. A trim whose NACK is lost looks like a loss."""
    counters = [c for c in run.agent_counters.values() if "nacks_tx" in c]
    return sum(c["nacks_tx"] - c["nacks_rx"] for c in counters) if counters else None


def dead_at_start(failures: Failures) -> summary.DeadAtStart:
    """Find paths that were dead before any data. Detection times count from when a path's sender
    began, because ranks begin one after the other."""
    start = failures.traffic_start()
    outages = [outage for outage in failures.outages if outage.kills and outage.begin <= start]
    dead = {
        (pair, ev)
        for outage in outages
        for pair, evs in failures.dead(outage).items()
        if pair in failures.pairs
        for ev in evs
    }
    detected: dict[tuple[Pair, int], float] = {}
    given_up: dict[tuple[Pair, int | None, int], float] = {}
    for v in failures.verdicts:  # the first verdict of any queue pair counts
        if (v.pair, v.ev) in dead:
            detected.setdefault((v.pair, v.ev), v.t_ns - failures.traffic_start(v.host))
            given_up.setdefault((v.pair, v.qpn, v.ev), v.t_ns)
    lost = [
        line
        for line in failures.losses
        if (line.pair, line.ev) in dead and line.rule not in NO_LOSS
    ]
    leaving = departures(failures, outages, since=-ENDLESS)
    return summary.DeadAtStart(
        evs=len(dead),
        found=len(detected),
        missed=len(dead) - len(detected),
        found_ns=max(detected.values(), default=None),
        lost=len(lost),
        lost_again=sum(
            line.sent_ns > given_up.get((line.pair, line.qpn, line.ev), ENDLESS) for line in lost
        ),
        ev_loss_excess=worst_of([departure.excess for departure in leaving]),
    )


def killed(failures: Failures) -> list[summary.Killed]:
    record, rows = failures.run.record, []
    for line in failures.faults:
        if kind_of(line.fault).heals or line.phase != "begin":
            continue
        host = line.on[1:]
        rank = record.ranks.index(int(host)) if line.on.startswith("h") and host.isdigit() else None
        named = rank is not None and re.search(rf"\brank {rank}\b", record.reason) is not None
        rows.append(
            summary.Killed(
                on=line.on, rank=rank, ended_ns=record.window_ns[1] - line.t_ns, named=named
            )
        )
    return rows


def causes_of(verdicts: Sequence[log.PathChange]) -> dict[str, int]:
    return dict(sorted(Counter(str(v.cause) for v in verdicts).items()))
