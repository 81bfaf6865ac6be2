"""Compares what Clustermapper found in a run with what was broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.figures.outages import Failures
from testbed.results import log, summary

LATE_RTTS = 60
"""Base RTTs after a fault in which a verdict may still concern it: the last probes are yet to be
judged [ours]."""
_NEVER = 1 << 62


@dataclass
class _Fault:
    line: log.Fault
    end: float
    late: float

    def met_by(self, verdict: log.Mapper) -> bool:
        return self.line.t_ns <= verdict.t_ns <= self.end + self.late and not set(
            verdict.links
        ).isdisjoint(self.line.links)

    def after(self, times: Sequence[float]) -> float | None:
        return min(times) - self.line.t_ns if times else None


def figures(failures: Failures) -> summary.Mapper | None:
    run = failures.run
    if not run.record.clustermapper:
        return None
    verdicts = [line for line in run.of(log.Mapper) if line.host < 0 and line.state is not None]
    named_lines = [line for line in verdicts if line.state != "clear"]
    denials, allowances = (
        [line for line in run.of(kind) if line.host < 0] for kind in (log.Deny, log.Allow)
    )
    faults = _faults(failures)
    correct = [any(fault.met_by(line) for fault in faults) for line in named_lines]
    start = min((line.t_ns for line in run.of(log.Start)), default=_NEVER)
    rows = []
    for fault in faults:
        begin, matches = fault.line.t_ns, [line for line in named_lines if fault.met_by(line)]
        entries = {line.on for line in matches}
        denied, allowed = (
            [x.t_ns for x in lines if x.on in entries and x.t_ns >= begin]
            for lines in (denials, allowances)
        )
        clear = [
            line.t_ns
            for line in verdicts
            if line.state == "clear" and line.on in entries and line.t_ns >= fault.end
        ]
        rows.append(
            summary.MapperFault(
                fault=fault.line.name,
                on=fault.line.on,
                named=bool(matches),
                states=list(
                    dict.fromkeys(line.state for line in matches if line.state is not None)
                ),
                named_ns=fault.after([line.t_ns for line in matches]),
                denied_ns=fault.after(denied),
                clear_ns=fault.after(clear),
                allowed_ns=fault.after(allowed),
            )
        )
    return summary.Mapper(
        faults=rows,
        right=sum(correct),
        wrong=len(correct) - sum(correct),
        denials=len(denials),
        denied_at_start=sum(line.t_ns < start for line in denials),
        kept=sum(line.host < 0 for line in run.of(log.Kept)),
    )


def _faults(failures: Failures) -> list[_Fault]:
    late, faults = LATE_RTTS * failures.run.base_rtt_ns, []
    for line in failures.faults:
        if line.phase == "begin" and line.links:
            ends = [
                x.t_ns
                for x in failures.faults
                if x.phase in ("heal", "end") and x.name == line.name and x.t >= line.t
            ]
            faults.append(_Fault(line, min(ends, default=_NEVER), late))
    return faults
