"""Figures of jobs: step times and their spread, GPU time lost, and what each job lost to its neighbours.

``summary.json`` has them by the job's name. Steps count while all jobs run: those that end before the first job has ended.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from scenarios.figures.measure import Run
from scenarios.figures.stats import spread


def figures(run: Run) -> dict[str, Any]:
    """By job: ``step_time_ns`` (slowest rank), ``typical_step_ns``, ``gpu_lost_ns`` and ``gpu_lost_share`` (of all ranks' time in measured
    steps, what was not computing), ``estimate_ns`` of a step, ``late_ns`` (the most by which a rank itself was late in a step),
    ``alone_step_ns`` and ``slowdown``: typical step over that of the job alone, None where it did not run alone."""
    passes, warm = run.passes, int(run.record["warmup_steps"])
    if passes.empty:
        return {}
    last = len(run.jobs) if passes["phase"].max() else 0
    together = passes[(passes["phase"] == last) & (passes["number"] >= warm)]
    ends = [together[together["rank"].isin(job["ranks"])]["end_ns"].max() for job in run.jobs]
    together = together[together["end_ns"] <= min(ends)] if len(together) else together
    result: dict[str, Any] = {}
    for number, job in enumerate(run.jobs):
        rows = _whole(together, job["ranks"])
        times = _times(rows)
        spent = int((rows["end_ns"] - rows["start_ns"]).sum())
        lost = spent - len(rows) * int(job["compute_ns"])
        alone = _times(_whole(passes[(passes["phase"] == number) & (passes["number"] > 0)], job["ranks"])) if last else times[:0]
        typical = int(times.median()) if len(times) else None
        typical_alone = int(alone.median()) if len(alone) else None
        result[job["name"]] = {
            "ranks": len(job["ranks"]),
            "steps": len(times),
            "step_time_ns": spread(times),
            "typical_step_ns": typical,
            "compute_ns": job["compute_ns"],
            "estimate_ns": job["estimate_ns"],
            "gpu_lost_ns": lost,
            "gpu_lost_share": lost / spent if spent else None,
            "late_ns": int(rows["late_ns"].max()) if len(rows) else None,
            "alone_step_ns": typical_alone,
            "slowdown": typical / typical_alone if typical and typical_alone else None,
        }
    return result


def _whole(passes: pd.DataFrame, ranks: list[int]) -> pd.DataFrame:
    """Rows of the steps that all of these ranks have finished."""
    own = passes[passes["rank"].isin(ranks)]
    counts = own.groupby("number")["rank"].count()
    return own[own["number"].isin(counts.index[counts == len(ranks)])]


def _times(rows: pd.DataFrame) -> pd.Series[Any]:
    """Of the slowest rank, ns, by step."""
    return (rows["end_ns"] - rows["start_ns"]).groupby(rows["number"]).max().astype("int64")
