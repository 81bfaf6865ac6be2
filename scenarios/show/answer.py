"""The answer to a run, which terminal and page begin with: what broke, what each transport carried,
and whether to trust it.

It is for people who know no figure yet: times and rates, no ratios. Of several runs, it has medians
over the trustworthy ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from scenarios.figures.costs import CostRow, costs
from scenarios.figures.fidelity import DOUBTFUL, INVALID
from scenarios.figures.stored import by_transport
from scenarios.figures.summary import NOT_TRUSTWORTHY
from scenarios.show.cost_table import groups_of
from scenarios.show.document import Cell, Words
from testbed.results.summary import Failover, Run, Summary
from testbed.terminal import duration, number
from testbed.world import SIMULATED

MOST = 4  # faults or jobs that an answer names [ours]
SENTENCES = 4  # of a transport each, or labels: what has room on a screen with its table [ours]
TRANSPORTS = 4  # of more, an answer to many settings has the first and both ends [ours]
VERDICTS = {"ok": "good", "failed": "bad", "not trustworthy": "doubt", "interrupted": "doubt"}


def answer(summary: Summary) -> Iterator[Words]:
    here, chosen = telling(summary.runs)
    groups = groups_of(chosen)
    n = max(
        (len(_counted(own)) for _, members in groups for own in by_transport(members).values()),
        default=0,
    )
    medians = f" Numbers are medians over {n} runs." if n > 1 else ""
    yield Words(f"{what_broke(summary.runs)}{medians}", "lead")
    if here:
        yield Words(here, "lead")
    for labels, members in groups:
        if labels:
            yield Words(f"{', '.join(labels)}:", "lead")
        rows = {row.transport: row for row in costs(members)}
        for transport, own in by_transport(members).items():
            yield Words([(transport, "strong"), *_sentence(own, rows.get(transport))], "lead")


def telling(runs: Sequence[Run]) -> tuple[str, list[Run]]:
    """Choose what has room on one screen: all runs, or one placement and setting, and of its many
    transports a few. Returns words that say which, or nothing."""
    groups = groups_of(runs)
    sentences = sum(len(by_transport(members)) for _, members in groups)
    if sentences + (len(groups) if len(groups) > 1 else 0) <= SENTENCES:
        return "", list(runs)
    rates = [_rates(members) for _, members in groups]
    several = any(len(own) > 1 for own in rates)
    at = max(
        range(len(groups)),
        key=lambda k: _spread(rates[k]) if several else -min(rates[k].values(), default=0.0),
    )
    (labels, members), own = groups[at], rates[at]
    here = []
    if len(groups) > 1:
        slowest = "the slowest" if any(rates) else "the first"
        why = "the one where transports differ most" if several else slowest
        here.append(f"{', '.join(labels)}, of {len(groups)} placements and settings {why}")
    if len(of := by_transport(members)) > TRANSPORTS:
        by_rate = sorted(of, key=lambda name: own.get(name, 0.0))
        few = {next(iter(of)), by_rate[0], by_rate[-1]}
        members = [run for run in members if run.transport in few]
        here.append(f"of {len(of)} transports the first, the fastest and the slowest")
    return f"Here: {'; '.join(here)}. The tables have all.", [
        replace(run, settings={}) for run in members
    ]


def _rates(members: Sequence[Run]) -> dict[str, float]:
    """Return what each transport reached, in bit/s or else in steps/s; those that reached
    nothing are left out."""

    def rate(run: Run) -> float | None:
        flows = [g.goodput_bps for g in run.groups.values() if g.goodput_bps is not None]
        steps = [run.typical_step_ns, *(job.typical_step_ns for job in run.jobs.values())]
        step = next(filter(None, steps), None)
        return run.busbw_bps or sum(flows) or (None if step is None else 1e9 / step)

    of = by_transport(members)
    found = {name: _median(_counted(own), rate) for name, own in of.items()}
    return {name: value for name, value in found.items() if value}


def _spread(rates: Mapping[str, float]) -> float:
    return max(rates.values()) / min(rates.values()) if rates else 0.0


def verdict(summary: Summary) -> Cell:
    words = [run.fidelity.verdict for run in summary.runs]
    worst = next(
        (
            f": {words.count(word)} of {len(words)} {word}"
            for word in (INVALID, DOUBTFUL)
            if word in words
        ),
        "",
    )
    unmet = sum(check.ok is False and not check.unusual for check in summary.checks)
    why = {
        NOT_TRUSTWORTHY: worst,
        "failed": f": {unmet} of {len(summary.checks)} checks failed" if unmet else "",
    }
    simulated = sum(run.world == SIMULATED for run in summary.runs)
    extent = ""
    if simulated == len(words) != 0:
        extent = f" ({SIMULATED}, in virtual time: no machine was measured)"
    elif simulated:
        extent = (
            f" ({simulated} of {len(words)} runs {SIMULATED}, in virtual time: no machine was "
            "measured in these)"
        )
    return [
        ("Verdict: ", ""),
        (summary.verdict, VERDICTS.get(summary.verdict, "")),
        (why.get(summary.verdict, "") + extent, ""),
    ]


# --- what broke -----------------------------------------------------------------------------------


def what_broke(runs: Sequence[Run]) -> str:
    faults: dict[str, list[Failover]] = {}
    for fault in (fault for run in runs for fault in run.failovers):
        faults.setdefault(fault.fault, []).append(fault)
    killed = dict.fromkeys(
        f"{'the controller' if k.rank is None else k.on} was killed"
        for run in runs
        for k in run.killed
    )
    said = [*(_fault(name, found) for name, found in faults.items()), *killed]
    if not said:
        return "Nothing was broken."
    return (
        "What broke: "
        f"{'; '.join(said[:MOST])}{f'; and {len(said) - MOST} more' if len(said) > MOST else ''}."
    )


def _fault(name: str, found: Sequence[Failover]) -> str:
    places = list(dict.fromkeys(f"{fault.kind} {fault.on}" for fault in found))
    where = " or ".join(places) if len(places) <= 2 else f"{found[0].kind}, in {len(places)} places"
    times = max(len(fault.outages_ns) for fault in found)
    after = [fault.after_ns for fault in found if fault.after_ns is not None]
    begins = (
        "at the start"
        if after and max(after) <= 0
        else f"{_span(after)} after the start"
        if after
        else ""
    )
    lasted = [fault.healed_ns - fault.at_ns for fault in found if fault.healed_ns is not None]
    until = f"for {_span(lasted)}" if len(lasted) == len(found) else "to the end"
    unnamed = name in (where, where.replace(" ", "-"))
    details = ", ".join(filter(None, ["" if unnamed else where, begins]))
    return " ".join(
        filter(
            None,
            [
                name if not unnamed else where,
                f"{times} times" * (times > 1),
                until,
                details and f"({details})",
            ],
        )
    )


def _span(times: Sequence[float]) -> str:
    least, most = duration(min(times)), duration(max(times))
    return least if least == most else f"{least} to {most}"


# --- what each transport carried ------------------------------------------------------------------


def _counted(own: Sequence[Run]) -> Sequence[Run]:
    """Return the trustworthy runs that were done; all if there are none."""
    return [run for run in own if run.outcome == "done" and run.verdict != NOT_TRUSTWORTHY] or own


def _median(rows: Sequence[Any], value: Callable[[Any], float | None]) -> float | None:
    values = [found for row in rows if (found := value(row)) is not None]
    return statistics.median(values) if values else None


def _sentence(own: Sequence[Run], row: CostRow | None) -> Iterator[tuple[str, str]]:
    counted = _counted(own)
    parts = [
        part for part in (_carried(counted, row), _steps(counted, row), _arrived(counted)) if part
    ]
    yield f": {'; '.join(parts) or 'no run got far enough to measure anything'}.", ""
    failed, wrong = sum(run.failed_steps for run in own), sum(run.wrong for run in own)
    unfinished = sum(run.outcome != "done" for run in own)
    if failed:
        yield f" {failed:,} steps failed.", "bad"
    if wrong:
        yield f" {wrong:,} sums or bytes are wrong.", "bad"
    if unfinished:
        yield f" {unfinished} of {len(own)} runs ended early.", "doubt"
    if doubtful := sum(run.verdict == NOT_TRUSTWORTHY for run in own):
        yield (
            f" {doubtful} of {len(own)} runs {'is' if doubtful == 1 else 'are'} not trustworthy.",
            "doubt",
        )


def gbits(bps: float | None) -> str:
    return number(None if bps is None else bps / 1e9, ",.0f" if bps and bps >= 99.5e9 else ",.1f")


def _carried(own: Sequence[Run], row: CostRow | None) -> str:
    if row is not None:
        rates = (
            ("before", row.before_bps),
            ("meanwhile", row.during_bps),
            ("after", row.after_bps),
        )
        said = [(gbits(bps), word) for word, bps in rates if bps is not None]
        if said:
            whose, unit = (
                "flows over broken paths got " if row.of_flows else "",
                iter([" Gb/s per host"]),
            )
            return whose + ", ".join(f"{rate}{next(unit, '')} {word}" for rate, word in said)
    groups = []
    for name, flows in next(
        ({n: g.flows for n, g in run.groups.items()} for run in own if run.groups), {}
    ).items():
        bps = _median(
            [run.groups[name] for run in own if name in run.groups], lambda group: group.goodput_bps
        )
        groups.append(
            f"{gbits(bps)} Gb/s"
            + (f" in {flows} flows" if flows > 1 else "")
            + (f" ({name})" if len(own[0].groups) > 1 else "")
        )
    if groups:
        return ", ".join(groups[:MOST]) + (
            f" and {len(groups) - MOST} more" if len(groups) > MOST else ""
        )
    bps, ideal = (
        _median(own, lambda run: run.busbw_bps),
        _median(own, lambda run: run.ideal_busbw_bps),
    )
    return (
        ""
        if bps is None
        else f"{gbits(bps)} of the {gbits(ideal)} Gb/s per host that the links could carry"
    )


def _steps(own: Sequence[Run], row: CostRow | None) -> str:
    def said(usual: float | None, worst: float | None) -> str:
        words = [
            f"a step usually took {duration(usual)}" if usual is not None else "",
            f"the worst {duration(worst)}" if worst is not None else "",
        ]
        return ", ".join(filter(None, words))

    jobs = []
    for name in next((list(run.jobs) for run in own if run.jobs), []):
        job = [run.jobs[name] for run in own if name in run.jobs]
        lost = _median(job, lambda job: job.gpu_lost_share)
        steps = said(
            _median(job, lambda job: job.typical_step_ns),
            _median(job, lambda job: job.step_time_ns.max),
        )
        jobs.append(
            f"{name}: "
            + ", ".join(
                filter(None, [steps, "" if lost is None else f"{lost:.0%} of GPU time lost"])
            )
        )
    if jobs:
        return "; ".join(jobs[:MOST]) + (
            f"; and {len(jobs) - MOST} more" if len(jobs) > MOST else ""
        )
    usual = row.healthy_step_ns if row is not None else None
    return said(
        _median(own, lambda run: run.typical_step_ns) if usual is None else usual,
        _median(own, lambda run: run.step_time_ns.max),
    )


def _arrived(own: Sequence[Run]) -> str:
    lossy = [fault for run in own if run.kind == "mrc" for fault in run.failovers if fault.lost]
    if not lossy:
        return ""
    late = [fault.delivered_ns - fault.at_ns for fault in lossy if fault.delivered_ns is not None]
    if len(late) < len(lossy):
        return "not all lost data had arrived at the end"
    return f"lost data had all arrived {duration(max(late))} after the fault"
