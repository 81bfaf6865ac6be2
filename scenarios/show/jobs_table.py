"""The table of jobs: a line per transport and job, medians over the seeds. Used by the terminal and report.html; reads summaries only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scenarios.show.medians_table import Column, Line, figure, labels, lines

NOTE = (
    "GPU time lost: the ranks' time in measured steps that was not computing. Estimate: each call at theory's rate, as if it had the "
    "fabric for itself, and half an RTT for each of its rounds; slices overlap, so that a step may take less. Slowdown: the typical step "
    "beside other jobs, over that of the job alone."
)


def _job(line: Line) -> dict[str, Any]:
    """Return the job in one of the line's runs, for what is the same in all."""
    return next(run["jobs"][line["group"]] for run in line["runs"])


def _us(key: str) -> Callable[[Line], str]:
    return lambda line: f"{_job(line)[key] / 1e3:,.1f}"


def rows_and_columns(runs: Sequence[dict[str, Any]]) -> tuple[list[Line], list[Column]]:
    """Make rows and columns, both empty if no run has jobs."""
    runs = [run for run in runs if run.get("jobs")]
    columns: list[Column] = [
        labels(runs),
        ("job", lambda line: f"{line['group']}\n{_job(line)['ranks']} ranks"),
        ("n", lambda line: str(line["figures"]["typical_step_ns"]["n"] if "typical_step_ns" in line["figures"] else 0)),
        ("steps", figure("steps", ",.0f")),
        ("median\nµs", figure("typical_step_ns", ",.1f", 1e3)),
        ("slowest\nµs", figure("step_time_ns.max", ",.1f", 1e3)),
        ("com-\nputing\nµs", _us("compute_ns")),
        ("esti-\nmate\nµs", _us("estimate_ns")),
        ("GPU\ntime lost", figure("gpu_lost_share", ".0%")),
    ]
    if any(job["slowdown"] is not None for run in runs for job in run["jobs"].values()):
        columns += [("alone\nµs", figure("alone_step_ns", ",.1f", 1e3)), ("slow-\ndown", figure("slowdown", ".3f"))]
    return (lines(runs, "jobs"), columns) if runs else ([], [])
