"""Computes what failures cost a run; :class:`testbed.results.summary.Cost` says what each key
means.

Theory is the cost if throughput fell in proportion to the capacity that topologies.theory's linear
programme finds without the dead cables.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from scenarios.figures.capacity import theory_of
from scenarios.figures.flows import Window, all_on, rate_in
from scenarios.figures.measure import Run
from scenarios.figures.outages import ENDLESS, Failures, Outage, changes, dead_at
from testbed.results.summary import Cost
from topologies.theory import COLLECTIVES, traffic_bandwidth

BACK = 0.9
"""A flow has recovered when it has this share of what theory leaves it over :data:`BACK_RTTS`."""
BACK_RTTS = 20  # a shorter window holds too few packets [ours]
PART_RTTS = 10  # least length of a part of the time before a failure [ours]
FEWEST_HEALTHY = 5
"""Healthy steps that a cost needs. The range of five steps of one pace holds its median with 94 %,
of three with 75 %, of two with 50 % (1
- 2^(1-n), the order-statistic interval of a median) [ours]."""
# time, ns -> share of the healthy capacity that theory leaves then
Share = Callable[[float], float]


def figures(failures: Failures) -> Cost | None:
    outages = [o for o in failures.outages if o.begin < failures.run.window[1] and o.entry.heals]
    if not outages:
        return None
    return (
        flow_cost(failures, outages)
        if failures.run.named_flows
        else step_cost(failures.run, outages)
    )


def duration_at_pace(
    work_ns: float, begin: float, marks: Sequence[float], share: Share
) -> float | None:
    """Return how long ``work_ns`` takes from ``begin`` if the pace is ``share``, which changes at
    ``marks``; None: for ever."""
    remaining, now = work_ns, begin
    for mark in [*sorted(t for t in marks if t > begin), None]:
        pace = share(now)
        if pace > 0 and (mark is None or remaining <= (mark - now) * pace):
            return now - begin + remaining / pace
        if mark is None:
            return None
        remaining, now = remaining - (mark - now) * pace, mark
    return None


def broken_spans(outages: Sequence[Outage], end: float) -> list[Window]:
    spans: list[Window] = []
    for o in sorted(outages, key=lambda o: o.begin):
        if spans and o.begin <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], min(o.end, end))
        elif o.begin < end:
            spans.append((o.begin, min(o.end, end)))
    return spans


def rate_over(bins: pd.DataFrame, spans: Sequence[Window]) -> float | None:
    lasting = sum(b - a for a, b in spans)
    if not lasting or bins.empty:
        return None
    return (
        sum(
            (rate_in(bins, span) or 0.0) * (span[1] - span[0])
            for span in spans
            if span[0] < span[1]
        )
        / lasting
    )


def goodput_kept(bins: pd.DataFrame, healthy: Window, broken: Sequence[Window]) -> float | None:
    before, during = rate_over(bins, [healthy]), rate_over(bins, broken)
    return during / before if before and during is not None else None


def carried(bins: pd.DataFrame, hosts: int, *stretches: Sequence[Window]) -> list[float | None]:
    rates = [rate_over(bins, spans) for spans in stretches]
    return [None if rate is None else rate / hosts for rate in rates]


# --- collectives ----------------------------------------------------------------------------------


def periods(run: Run) -> tuple[list[float], list[float]]:
    """Return (end of each of ``whole_steps``, time from the end of the step before), ns, up to the
    first step that some rank did not finish.

    Before the first, the last warm-up step counts, else the first rank's begin. These times add up
    to the elapsed time. Step times need not: ranks may be a step apart, and one stall then
    lengthens two steps.
    """
    ends = run.whole_steps.groupby("step")["end_ns"].max()
    done = [float(end) for number, (step, end) in enumerate(ends.items()) if step == number]
    begin = run.warm_ns if run.warm_ns is not None else run.whole_steps["start_ns"].min()
    return done, [b - a for a, b in zip([float(begin), *done], done, strict=False)] if done else []


def step_cost(run: Run, outages: Sequence[Outage]) -> Cost:
    """Compute the cost for a collective, or for the first job. A healthy step is the median of the
    steps that ended before the first outage; if there are none, of the steps that began after the
    last outage.

    ``noise_share``: the largest deviation of a healthy step, or of any quicker step, over the
    median; ``noise_ns``: that deviation times the steps since the outage. A failure makes no step
    quicker: a step quicker than all healthy ones shows that the pace was not settled. So no gain is
    ever larger than the noise. ``extra_ns`` is None if the run did not finish, ``goodput_kept`` of
    several jobs, which take turns. Only collectives have ``ideal_extra_ns``, because a job
    computes, too.
    """
    done, durations = periods(run)
    first, last = min(o.begin for o in outages), max(o.end for o in outages)
    before = [duration for end, duration in zip(done, durations, strict=True) if end < first]
    after = [
        duration for end, duration in zip(done, durations, strict=True) if end - duration >= last
    ]
    healthy_times = before or after
    first_hit = len(before)
    finished = run.record.outcome == "done" and len(done) == run.record.steps
    healthy = statistics.median(healthy_times) if healthy_times else None
    cost = Cost(
        steps=len(done),
        finished=finished,
        healthy_from="before" if before else "after" if after else None,
        healthy_steps=len(healthy_times),
        healthy_step_ns=healthy,
        extra_ns=None,
        extra_steps=None,
        extra_rtts=None,
        extra_percent=None,
        noise_ns=None,
        noise_share=None,
        slowdown=None,
        goodput_kept=None,
        worst_step_ns=float(run.step_times.max()) if len(run.step_times) else None,
        ideal_extra_ns=None,
        unknown=_unknown(finished, len(done) - first_hit, len(healthy_times)),
    )
    if healthy is not None and len(run.jobs) <= 1:
        begun = [(done[0] - durations[0], done[first_hit - 1])] if before else []
        mended = [end for end in done if end >= last]
        left = [(mended[0], mended[-1])] if len(mended) > 1 else []
        rates = carried(
            run.goodput, len(run.record.ranks), begun, broken_spans(outages, run.window[1]), left
        )
        cost.before_bps, cost.during_bps, cost.after_bps = rates
    if healthy is not None and len(healthy_times) >= FEWEST_HEALTHY and len(run.jobs) <= 1:
        ends = [
            end
            for end, duration in zip(done, durations, strict=True)
            if (end < first if before else end - duration >= last)
        ]
        span = (
            (done[0] - durations[0], ends[-1]) if before else (ends[0] - healthy_times[0], ends[-1])
        )
        cost.goodput_kept = goodput_kept(run.goodput, span, broken_spans(outages, run.window[1]))
    if healthy is None or not finished or first_hit == len(done):
        return cost
    hit_steps, begin = len(done) - first_hit, done[first_hit] - durations[first_hit]
    if cost.unknown is None:
        extra = cost.extra_ns = done[-1] - begin - hit_steps * healthy
        deviation = max(max(healthy_times) - healthy, healthy - min(durations))
        cost.noise_ns, cost.noise_share = deviation * hit_steps, deviation / healthy
        cost.slowdown = max(durations[first_hit:]) / healthy
        cost.extra_steps, cost.extra_rtts = extra / healthy, extra / run.base_rtt_ns
        cost.extra_percent = 100 * extra / (len(done) * healthy)
    if run.record.workload in COLLECTIVES and not any(o.entry.slows for o in outages):
        theory = theory_of(run)
        ideal = duration_at_pace(
            hit_steps * healthy,
            begin,
            changes(outages),
            lambda t: theory(dead_at(outages, t)) / theory(frozenset()),
        )
        cost.ideal_extra_ns = None if ideal is None else ideal - hit_steps * healthy
    return cost


def _unknown(finished: bool, steps_since: int, healthy_steps: int) -> str | None:
    if not finished:
        return "it did not finish"
    if not steps_since:
        return "no step was hit"
    return (
        f"{healthy_steps} of {FEWEST_HEALTHY} healthy steps"
        if healthy_steps < FEWEST_HEALTHY
        else None
    )


# --- flows ----------------------------------------------------------------------------------------


def flow_cost(failures: Failures, outages: Sequence[Outage]) -> Cost | None:
    """Compute the cost for the flows that end at a fixed time and have a path that some outage
    hits; None without such flows, or if one of them has no goodput before the first outage.

    ``back_ns``: from the first outage until the slowest flow had :data:`BACK` of what theory left
    it, over :data:`BACK_RTTS`. ``noise_share``: the largest deviation from the mean goodput before,
    over :data:`FEWEST_HEALTHY` equal parts of that time (None if a part is shorter than
    :data:`PART_RTTS`); ``noise_ns``: that times the time since the outage.
    """
    run = failures.run
    window = all_on(run)
    first = min((o.begin for o in outages), default=ENDLESS)
    if window is None or not window[0] < first < window[1]:
        return None
    flows = failures.flows_hit(outages)
    share = flow_theory(run, outages)
    healthy = lost = ideal = 0.0
    recoveries: list[float | None] = []
    for flow in flows:
        bins = run.flows[run.flows["flow"] == flow.name]
        before = rate_in(bins, (window[0], first)) or 0.0
        if not before:
            return None
        healthy += before
        lost += (
            before * (window[1] - first) / 8e9
            - (rate_in(bins, (first, window[1])) or 0.0) * (window[1] - first) / 8e9
        )
        recoveries.append(
            back_ns(bins, before, first, window[1], BACK_RTTS * run.base_rtt_ns, share)
        )
    if not flows:
        return None
    edges = [first, *(t for t in changes(outages) if first < t < window[1]), window[1]]
    ideal = sum((1 - share(a)) * (b - a) for a, b in pairwise(edges))
    has_theory = not any(o.entry.slows for o in outages)
    extra = lost * 8e9 / healthy
    pooled = run.flows[run.flows["flow"].isin([flow.name for flow in flows])]
    part = (first - window[0]) / FEWEST_HEALTHY
    parts = [(window[0] + i * part, window[0] + (i + 1) * part) for i in range(FEWEST_HEALTHY)]
    noise = (
        max(abs((rate_in(pooled, span) or 0.0) / healthy - 1) for span in parts)
        if part >= PART_RTTS * run.base_rtt_ns
        else None
    )
    recovery = None if None in recoveries else max(b for b in recoveries if b is not None)
    last, broken = max(o.end for o in outages), broken_spans(outages, window[1])
    left = [(last, window[1])] if window[1] - last >= BACK_RTTS * run.base_rtt_ns else []
    before_bps, during_bps, after_bps = carried(
        pooled, len({flow.dst for flow in flows}), [(window[0], first)], broken, left
    )
    return Cost(
        flows=len(flows),
        finished=run.record.outcome == "done",
        healthy_bps=healthy,
        undelivered_bytes=round(lost),
        extra_ns=extra,
        extra_rtts=extra / run.base_rtt_ns,
        extra_percent=100 * extra / (window[1] - first),
        noise_ns=None if noise is None else noise * (window[1] - first),
        noise_share=noise,
        goodput_kept=goodput_kept(pooled, (window[0], first), broken),
        before_bps=before_bps,
        during_bps=during_bps,
        after_bps=after_bps,
        back_ns=recovery if has_theory else None,
        back_rtts=recovery / run.base_rtt_ns if has_theory and recovery is not None else None,
        ideal_extra_ns=ideal if has_theory else None,
    )


def flow_theory(run: Run, outages: Sequence[Outage]) -> Share:
    hosts = run.record.ranks
    traffic: dict[tuple[int, int], float] = {}
    for flow in run.named_flows:
        pair = hosts[flow.src], hosts[flow.dst]
        traffic[pair] = traffic.get(pair, 0.0) + 1.0
    cache: dict[frozenset[str], float] = {frozenset(): traffic_bandwidth(run.fabric, traffic)}

    def share(t: float) -> float:
        dead = dead_at(outages, t)
        if dead not in cache:
            cache[dead] = traffic_bandwidth(run.fabric, traffic, sorted(dead))
        return cache[dead] / cache[frozenset()]

    return share


def back_ns(
    bins: pd.DataFrame, before_bps: float, first: float, end: float, width: float, share: Share
) -> float | None:
    """Return when a window of ``width`` first had :data:`BACK` of what theory leaves in it, ns
    after ``first``."""
    step = width / 10
    for begin in np.arange(first, end - width + step / 1000, step):
        share_left = sum(share(begin + i * step) for i in range(10)) / 10
        if (rate_in(bins, (begin, begin + width)) or 0.0) >= BACK * before_bps * share_left:
            return float(begin - first)
    return None
