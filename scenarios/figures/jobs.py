"""Computes figures of jobs: step times and their spread, GPU time lost, and what each job lost to its neighbours.

``summary.json`` has them by the job's name. Steps count while all jobs run: those that end before the first job has ended.
"""

from __future__ import annotations

from collections import defaultdict
from math import fsum
from typing import Any

from scenarios.figures.measure import Run
from scenarios.figures.stats import beside, slowest, spread, whole_steps


def figures(run: Run) -> dict[str, Any]:
    """Return figures by job: ``step_time_ns`` (slowest rank), ``typical_step_ns``, ``gpu_lost_ns`` and ``gpu_lost_share`` (of all ranks'
    time in measured steps, what was not computing), ``estimate_ns`` of a step, ``late_ns`` (the most by which a rank itself was late in a
    step), ``alone_step_ns`` and ``slowdown``: typical step over that of the job alone, None where it did not run alone. Of a job
    that trains also ``losses``, the ranks' mean by step from the first to warm up, and ``digests``, SHA-256 of their parameters at the end.
    """
    passes, warm = run.passes, int(run.record["warmup_steps"])
    if passes.empty:
        return {}
    last = len(run.jobs) if passes["phase"].max() else 0
    together = passes[(passes["phase"] == last) & (passes["step"] >= warm)]
    result: dict[str, Any] = {}
    for number, (job, rows) in enumerate(zip(run.jobs, beside(together, [job["ranks"] for job in run.jobs]), strict=True)):
        times = slowest(rows)
        spent = float((rows["end_ns"] - rows["start_ns"]).sum())
        lost = spent - len(rows) * job["compute_ns"]
        alone = slowest(whole_steps(passes[(passes["phase"] == number) & (passes["step"] > 0)], job["ranks"])) if last else times[:0]
        typical = float(times.median()) if len(times) else None
        typical_alone = float(alone.median()) if len(alone) else None
        result[job["name"]] = {
            "ranks": len(job["ranks"]),
            "steps": len(times),
            "step_time_ns": spread(times),
            "typical_step_ns": typical,
            "compute_ns": job["compute_ns"],
            "estimate_ns": job["estimate_ns"],
            "gpu_lost_ns": lost,
            "gpu_lost_share": lost / spent if spent else None,
            "late_ns": float(rows["late_ns"].max()) if len(rows) else None,
            "alone_step_ns": typical_alone,
            "slowdown": typical / typical_alone if typical and typical_alone else None,
            **training(run),
        }
    return result


def training(run: Run) -> dict[str, Any]:
    """Return ``losses`` and ``digests`` of a run whose job trains; {} for another."""
    losses: dict[int, list[float]] = defaultdict(list)
    digests = set()
    for note in (line.get("note", {}) for line in run.of("told")):
        if "loss" in note:
            losses[int(note["step"][1])].append(note["loss"])
        if "digest" in note:
            digests.add(note["digest"])
    # fsum: the same bits, in whatever order ranks reported
    return {"losses": [fsum(losses[step]) / len(losses[step]) for step in sorted(losses)], "digests": sorted(digests)} if losses else {}
