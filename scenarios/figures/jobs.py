"""Computes figures of jobs: step times, GPU time lost, and what each job lost to its neighbours."""

from __future__ import annotations

from collections import defaultdict
from math import fsum

from scenarios.figures.measure import Run
from scenarios.figures.stats import beside, slowest, spread, whole_steps
from testbed.results import log
from testbed.results.summary import Job


def figures(run: Run) -> dict[str, Job]:
    """Steps count from the first measured one until the first job has ended."""
    passes, warm = run.passes, run.record.warmup_steps
    if passes.empty:
        return {}
    last = len(run.jobs) if passes["phase"].max() else 0
    together = passes[(passes["phase"] == last) & (passes["step"] >= warm)]
    losses, digests = training(run)
    result = {}
    for number, (job, rows) in enumerate(
        zip(run.jobs, beside(together, [job.ranks for job in run.jobs]), strict=True)
    ):
        times = slowest(rows)
        spent = float((rows["end_ns"] - rows["start_ns"]).sum())
        lost = spent - len(rows) * job.compute_ns
        alone = (
            slowest(
                whole_steps(passes[(passes["phase"] == number) & (passes["step"] > 0)], job.ranks)
            )
            if last
            else times[:0]
        )
        typical = float(times.median()) if len(times) else None
        typical_alone = float(alone.median()) if len(alone) else None
        result[job.name] = Job(
            ranks=len(job.ranks),
            steps=len(times),
            step_time_ns=spread(times),
            typical_step_ns=typical,
            compute_ns=job.compute_ns,
            estimate_ns=job.estimate_ns,
            gpu_lost_ns=lost,
            gpu_lost_share=lost / spent if spent else None,
            late_ns=float(rows["late_ns"].max()) if len(rows) else None,
            alone_step_ns=typical_alone,
            slowdown=typical / typical_alone if typical and typical_alone else None,
            losses=losses,
            digests=digests,
        )
    return result


def training(run: Run) -> tuple[list[float] | None, list[str] | None]:
    losses: dict[int, list[float]] = defaultdict(list)
    digests = set()
    for note in (line.note for line in run.of(log.Told)):
        if note.loss is not None and note.step is not None:
            losses[note.step[1]].append(note.loss)
        if note.digest is not None:
            digests.add(note.digest)
    # fsum: the same bits, in whatever order ranks reported
    return (
        ([fsum(losses[step]) / len(losses[step]) for step in sorted(losses)], sorted(digests))
        if losses
        else (None, None)
    )
