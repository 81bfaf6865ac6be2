"""The table of jobs: one line per job and run. Used by the terminal and report.html; reads summaries only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
NOTE = (
    "GPU time lost: the ranks' time in measured steps that was not computing. Estimate: each call at theory's rate, as if it had the "
    "fabric for itself. Slowdown: the typical step beside other jobs, over that of the job alone."
)


def _us(key: str) -> Callable[[Row], str]:
    return lambda row: "–" if row[key] is None else f"{row[key] / 1e3:,.1f}"


def _slowest(row: Row) -> str:
    slowest = row["step_time_ns"]["max"]
    return "–" if slowest is None else f"{slowest / 1e3:,.1f}"


COLUMNS: list[tuple[str, Callable[[Row], str]]] = [
    ("job", lambda job: f"{job['name']}, {job['ranks']} ranks, {job['transport']}"),
    ("steps", lambda job: str(job["steps"])),
    ("median\nµs", _us("typical_step_ns")),
    ("slowest\nµs", _slowest),
    ("computing\nµs", _us("compute_ns")),
    ("estimate\nµs", _us("estimate_ns")),
    ("GPU time\nlost", lambda job: "–" if job["gpu_lost_share"] is None else f"{job['gpu_lost_share']:.0%}"),
    ("alone\nµs", _us("alone_step_ns")),
    ("slow-\ndown", lambda job: "–" if job["slowdown"] is None else f"{job['slowdown']:.3f}"),
]


def jobs_rows(runs: Sequence[Row]) -> list[Row]:
    """All jobs of all runs, in their order, with the transport and seed of the run."""
    return [
        {"transport": run["transport"], "seed": run["seed"], "name": name, **job}
        for run in runs for name, job in run.get("jobs", {}).items()
    ]  # fmt: skip
