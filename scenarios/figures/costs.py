"""Compares what failures cost transports: a row each, with medians over the seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.figures.stats import median_interval
from testbed.results.summary import Cost, Run
from testbed.results.values import known, number_at


@dataclass(frozen=True, kw_only=True)
class Extra:
    extra_ns: float | None
    extra_low_ns: float | None
    noise_ns: float | None
    n: int

    @property
    def noise(self) -> float | None:
        """Noise of the healthy pace, or the distance to the lower end of the interval over seeds if
        larger. It is never less than a gain, because a failure makes nothing quicker."""
        if self.extra_ns is None:
            return None
        low = self.extra_low_ns if self.n > 1 else None
        sizes = [
            self.noise_ns,
            None if low is None else self.extra_ns - low,
            -self.extra_ns if self.extra_ns < 0 else None,
        ]
        return max((size for size in sizes if size is not None), default=None)

    @property
    def within_noise(self) -> bool:
        return self.extra_ns is not None and self.extra_ns <= (self.noise or 0)


@dataclass(frozen=True, kw_only=True)
class CostRow(Extra):
    """Numbers are medians over the trustworthy runs for which they are known, or over all runs if
    no trustworthy run has an ``extra_ns``. Units as in :class:`testbed.results.summary.Cost`."""

    transport: str
    fabric: str
    world: str
    of_flows: bool
    job: str | None  # only with several jobs
    slowdown: float | None
    goodput_kept: float | None
    before_bps: float | None
    during_bps: float | None
    after_bps: float | None
    healthy_step_ns: float | None
    noise_share: float | None
    extra_steps: float | None
    extra_rtts: float | None
    extra_percent: float | None
    ideal_extra_ns: float | None
    healthy_bps: float | None
    undelivered_bytes: float | None
    back_ns: float | None  # None also if the flows of one run never recovered
    runs: int
    extra_high_ns: float | None
    unfinished: int
    healthy_steps: int | None
    healthy_from: str
    doubtful: int
    trusted: bool  # numbers leave out untrustworthy runs
    unknown: str | None


def costs(entries: Sequence[Run]) -> list[CostRow]:
    rows = []
    for transport in dict.fromkeys(e.transport for e in entries):
        group = [
            (e, e.failure_cost) for e in entries if e.transport == transport and e.failure_cost
        ]
        if not group:
            continue
        trusted = [pair for pair in group if pair[0].verdict != "not trustworthy"]
        counted = trusted if any(cost.extra_ns is not None for _, cost in trusted) else group
        run_costs = [cost for _, cost in counted]
        extras = [cost.extra_ns for cost in run_costs if cost.extra_ns is not None]
        numbers = {name: _median(run_costs, name) for name in _NUMBERS}
        of_flows = run_costs[0].flows is not None
        if of_flows and any(known(cost.back_ns) is None for cost in run_costs):
            numbers["back_ns"] = None
        low, high = median_interval(extras) or (numbers["extra_ns"], numbers["extra_ns"])
        reasons = dict.fromkeys(
            known(cost.unknown) or "it did not finish"
            for cost in run_costs
            if cost.extra_ns is None
        )
        first = group[0][0]
        rows.append(
            CostRow(
                transport=transport,
                fabric=first.fabric,
                world=first.world,
                of_flows=of_flows,
                job=next(iter(first.jobs)) if len(first.jobs) > 1 else None,
                n=len(extras),
                runs=len(group),
                extra_low_ns=low,
                extra_high_ns=high,
                unfinished=sum(not cost.finished for _, cost in group),
                healthy_steps=min(
                    (cost.healthy_steps for cost in run_costs if cost.healthy_steps), default=None
                ),
                healthy_from="after"
                if any(known(cost.healthy_from) == "after" for cost in run_costs)
                else "before",
                doubtful=len(group) - len(trusted),
                trusted=counted is trusted or len(group) == len(trusted),
                unknown=None if extras else "; ".join(reasons),
                **numbers,
            )
        )
    return rows


_NUMBERS = (
    "slowdown",
    "goodput_kept",
    "before_bps",
    "during_bps",
    "after_bps",
    "healthy_step_ns",
    "extra_ns",
    "noise_ns",
    "noise_share",
    "extra_steps",
    "extra_rtts",
    "extra_percent",
    "ideal_extra_ns",
    "healthy_bps",
    "undelivered_bytes",
    "back_ns",
)


def _median(run_costs: Sequence[Cost], name: str) -> float | None:
    values = [value for cost in run_costs if (value := number_at(cost, name)) is not None]
    return statistics.median(values) if values else None
