"""What a comparison of training runs shows: hashes, losses, step times, what waiting cost the GPUs, and whether it is as it should be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from scenarios.train.job import COMPUTE_US, DUTY, MRC, MRC_HEALTHY, Outcome, ideal_ns
from scenarios.train.model import PARAMETERS

FORMAT = 1
FEWEST = 25
"""Steps from which the costs of failures are judged: four failures have costs of their own, some 100 us together, beside the lost capacity;
of a shorter run they are more than :data:`SLACK`, whatever the transport."""
SLACK = 0.05
"""Share of the healthy run that failures may cost MRC beside what the lost capacity takes [ours]."""


def run_figures(outcome: Outcome) -> dict[str, Any]:
    """Figures of one run; times in us of the network."""
    fabric, ranks = outcome.fabric, outcome.ranks
    said = {
        "transport": outcome.leg.transport, "failing": outcome.leg.failing, "fabric": fabric.name, "ranks": fabric.host_count,
        "failed": {str(rank): reason for rank, reason in outcome.failed.items()}, "doubtful": list(outcome.doubtful),
    }  # fmt: skip
    if not ranks or outcome.failed:
        return {**said, "hashes": [], "losses": [], "steps": []}
    steps = len(ranks[0]["steps"])
    origin = min(rank["steps"][0][0] for rank in ranks)
    rows = []
    for k in range(steps):
        begin = min(rank["steps"][k][0] for rank in ranks)
        end = max(rank["steps"][k][2] for rank in ranks)
        waited = sum(rank["steps"][k][2] - rank["steps"][k][0] - COMPUTE_US * 1e-6 for rank in ranks)
        late = max(rank["steps"][k][1] - rank["steps"][k][0] for rank in ranks) - COMPUTE_US * 1e-6
        rows.append({"begin": (begin - origin) * 1e6, "end": (end - origin) * 1e6, "waited": waited * 1e6, "late": late * 1e6})
    times = _times(rows)
    broken = [
        {
            "name": name, "begin": (begin - origin) * 1e6, "end": (end - origin) * 1e6, "links": list(links),
            "costs": _cost(outcome, rows, name, (begin - origin) * 1e6, (end - origin) * 1e6, links),
        }
        for name, begin, end, links in outcome.broken
    ]  # fmt: skip
    return {
        **said,
        "hashes": sorted({rank["hash"] for rank in ranks}),
        "losses": [sum(rank["losses"][k] for rank in ranks) / len(ranks) for k in range(steps)],
        "steps": rows,
        "step_us": times,
        "median_step_us": median(times),
        "slowest_step_us": max(times),
        "total_us": rows[-1]["end"],
        "ideal_all_reduce_us": ideal_ns(fabric) / 1e3,
        "gpu_us": sum(row["waited"] for row in rows) + COMPUTE_US * len(ranks) * steps,
        "gpu_lost_us": sum(row["waited"] for row in rows),
        "compute_late_us": max(row["late"] for row in rows),
        "failures": broken,
    }


def _times(rows: Sequence[dict[str, float]]) -> list[float]:
    """Step periods as the job sees them, us: from the last rank's end of one step to that of the next."""
    ends = [rows[0]["begin"], *(row["end"] for row in rows)]
    return [after - before for before, after in pairwise(ends)]


def _cost(outcome: Outcome, rows: Sequence[dict[str, float]], name: str, begin: float, end: float, links: tuple[str, ...]) -> float | None:
    """What the capacity that a failure takes costs the steps in it at least, us; None where nothing gets through without the links."""
    extra = (ideal_ns(outcome.fabric, links) - ideal_ns(outcome.fabric)) / 1e3
    if extra == float("inf"):
        return None
    ends = [rows[0]["begin"], *(row["end"] for row in rows)]
    shares = [max(0.0, min(end, b) - max(begin, a)) / (b - a) for a, b in pairwise(ends)]
    return sum(shares) * extra * DUTY.get(name, 1.0)


def summary_of(outcomes: Sequence[Outcome], seed: int, world: str, dilation: float) -> dict[str, Any]:
    """Everything, and the checks."""
    runs = {outcome.leg.name: run_figures(outcome) for outcome in outcomes}
    checks = _checks(runs)
    return {
        "format": FORMAT, "kind": "train", "seed": seed, "world": world, "dilation": dilation,
        "steps": max((len(run["steps"]) for run in runs.values()), default=0), "parameters": PARAMETERS, "bytes": PARAMETERS * 4,
        "compute_us": COMPUTE_US, "runs": runs, "checks": checks,
        "verdict": "failed" if any(check["ok"] is False for check in checks) else "ok",
    }  # fmt: skip


def _checks(runs: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """``ok`` is None for what is not judged; ``seen`` says why."""
    out = []
    for name, run in runs.items():
        if run["failed"]:
            rank, reason = next(iter(run["failed"].items()))
            out.append({"check": f"{name}: every rank ends", "ok": False, "seen": f"rank {rank}: {reason}"})
        out += [{"check": f"{name}: its times are the network's, not the machine's", "ok": None, "seen": text} for text in run["doubtful"]]
    hashes = {name: run["hashes"] for name, run in runs.items() if not run["failed"]}
    every = sorted({value for values in hashes.values() for value in values})
    seen = f"{every[0][:16]}..." if len(every) == 1 else ", ".join(f"{name}: {len(v)}" for name, v in hashes.items()) + " hashes"
    out.append({"check": "the same parameters on every rank, with and without failures", "ok": len(every) == 1, "seen": seen})
    healthy, failing = runs.get(MRC_HEALTHY.name), runs.get(MRC.name)
    if healthy and failing and not healthy["failed"] and not failing["failed"]:
        cost = failing["total_us"] - healthy["total_us"]
        lost = sum(failure["costs"] or 0.0 for failure in failing["failures"])
        allowed = lost + SLACK * healthy["total_us"]
        seen = f"{cost:,.0f} us, allowed {lost:,.0f} + {SLACK * healthy['total_us']:,.0f} us"
        judged = len(healthy["steps"]) >= FEWEST and not (healthy["doubtful"] or failing["doubtful"])
        out.append({
            "check": f"failures cost MRC at most what the lost capacity takes and {SLACK:.0%} of the healthy run",
            "ok": cost <= allowed if judged else None,
            "seen": seen if judged else f"{seen}; it is judged from {FEWEST} steps on, without doubts",
        })  # fmt: skip
    return out
