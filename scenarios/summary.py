"""``summary.json``: the figures of a scenario's runs and the checks on them. A contract: later versions add to it, never rename.

Called by the runner on what scenarios.measure read. Pure.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from scenarios import fidelity
from scenarios.checks import evaluate
from scenarios.measure import Run, books, cable_gaps
from scenarios.schema import Scenario
from topologies.paths import evs_over
from topologies.theory import ring_allreduce_step_ns, ring_bandwidth

QUANTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
NOT_TRUSTWORTHY, INTERRUPTED = "not trustworthy", "interrupted"


def percentile(times: pd.Series[Any], q: float) -> int | None:
    """Nearest-rank percentile, or None below 10 / (1 - q) samples: fewer cannot carry it."""
    if len(times) < round(10 / (1 - q)):
        return None
    return int(times.sort_values().iloc[math.ceil(q * len(times)) - 1])


def step_time(times: pd.Series[Any]) -> dict[str, int | None]:
    """n, percentiles and maximum, ns; n counts steps."""
    shown = {name: percentile(times, q) for name, q in QUANTILES.items()}
    return {"n": len(times), **shown, "max": int(times.max()) if len(times) else None}


def failovers(run: Run) -> list[dict[str, Any]]:
    """Per fault: when it began, when the last data packet left onto a path it killed, and what was lost there.

    A path that comes back is used again, so the window ends where the fault was mended.
    """
    out = []
    ranks = run.record["ranks"]
    faults = run.of("fault")
    moves, losses = run.of("ev", "reroute"), run.of("loss")
    for fault in (f for f in faults if f["phase"] == "begin"):
        ends = [f["t"] for f in faults if f["phase"] == "heal" and f["name"] == fault["name"] and f["t"] > fault["t"]]
        end = min(ends, default=1 << 62)
        dead = {(s, d): {ev for link in fault["links"] for ev in evs_over(run.fabric, s, d, link)} for s in ranks for d in ranks if s != d}

        def on_it(line: dict[str, Any], ev: Any, end: int = end, dead: Any = dead, begin: int = fault["t"]) -> bool:
            return begin <= line["t"] <= end and ev in dead.get((line["host"], line.get("peer")), ())

        last = [
            line["last_data_ns"]
            for line in moves
            if line.get("last_data_ns")
            and line.get("to", "ASSUMED_BAD") == "ASSUMED_BAD"
            and on_it(line, line.get("old", line.get("ev")))  # a reroute names the path it left
        ]
        seen = [line["t"] for line in moves if line.get("to") == "ASSUMED_BAD" and on_it(line, line.get("ev"))]
        seen += [line["t"] for line in moves if line["kind"] == "reroute" and on_it(line, line.get("old"))]
        out.append(
            {
                "fault": fault["name"],
                "on": fault["on"],
                "at_ns": fault["t"],
                "healed_ns": None if end == 1 << 62 else end,
                "last_on_dead_path_ns": max(last, default=None),
                "detected_ns": max(seen, default=None),  # when the last sender had left the dead paths
                "lost": sum(on_it(line, line.get("ev")) for line in losses),
                "cost_ns": cost_ns(run, fault["t"]),
            }
        )
    return out


def cost_ns(run: Run, at: int) -> int | None:
    """How much longer than the run's undisturbed median the slowest step that was under way at or after ``at`` took."""
    frame = run.steps[~run.steps["warmup"].astype(bool)]
    times = run.step_times
    ends, starts = frame.groupby("step")["end_ns"].max(), frame.groupby("step")["start_ns"].min()
    before, after = times[ends.reindex(times.index) < at], times[ends.reindex(times.index) >= at]
    if after.empty:
        return None
    first = [f["t"] for f in run.of("fault")]
    calm = before if len(before) else times[starts.reindex(times.index) > max(first, default=0)]
    return int(after.max() - (calm.median() if len(calm) else times.min()))


def run_summary(run: Run) -> dict[str, Any]:
    """One entry of ``runs``."""
    record, fabric = run.record, run.fabric
    ranks, size = record["ranks"], int(record["message_bytes"])
    times, packets = run.step_times, books(record)
    algbw = size * 8 / (times.mean() / 1e9) if len(times) else None
    ideal = ring_bandwidth(fabric, ranks)
    left = ring_bandwidth(fabric, ranks, record["fault_links"])
    measured = run.steps[~run.steps["warmup"].astype(bool)]
    wrong = max(int((~run.steps["ok"].astype(bool)).sum()), sum(int(n) for n in record.get("wrong", {}).values()))
    why = fidelity.reasons(
        record.get("cpu", []),
        run.window,
        run.of("loop"),
        packets["causes"],
        packets["unexplained"],
        fabric.base_rtt_ns,
        packets["rejected"],
        cable_gaps(record),
    )
    failed_steps = int(record["steps"]) - len(times)
    if record["outcome"] == "interrupted":
        verdict, why = INTERRUPTED, [record["reason"]]
    elif record["outcome"] != "done" or wrong or failed_steps:
        verdict = "failed"
    else:
        verdict = NOT_TRUSTWORTHY if why else "ok"
    return {
        "transport": record["transport"],
        "fabric": fabric.name,
        "workload": record["workload"],
        "placement": record["placement"],
        "seed": record["seed"],
        "ranks": len(ranks),
        "message_bytes": size,
        "steps": len(times),
        "failed_steps": failed_steps,
        "wrong": wrong,
        "step_time_ns": step_time(times),
        "algbw_bps": algbw,
        "busbw_bps": None if algbw is None else algbw * 2 * (len(ranks) - 1) / len(ranks),
        "ideal_busbw_bps": ideal,
        "degraded_busbw_bps": left,
        "ideal_step_ns": ring_allreduce_step_ns(len(ranks), size, ideal),
        "degraded_step_ns": ring_allreduce_step_ns(len(ranks), size, left) if left else None,
        "typical_step_ns": int(times.median()) if len(times) else None,
        "base_rtt_ns": fabric.base_rtt_ns,
        "time_scale": fabric.time_scale,
        "reconvergence_ns": record["reconvergence_ns"],
        "packets": packets,
        "failovers": failovers(run),
        "faults_missed": record["faults_missed"],
        "cpu_percent": fidelity.cpu_percent(record.get("cpu", []), *run.window),
        "measured_ns": int(measured["end_ns"].max() - measured["start_ns"].min()) if len(measured) else 0,
        "outcome": record["outcome"],
        "reason": record["reason"],
        "distrust": why,
        "notes": record.get("notes", []),
        "run": run.key,
        "verdict": verdict,
    }


def summarise(scenario: Scenario, runs: list[Run]) -> dict[str, Any]:
    """The whole of summary.json, whose keys are a contract."""
    order = [t.name for t in scenario.transports]
    places = list(scenario.workload.placement)
    entries = [run_summary(run) for run in runs]
    entries.sort(key=lambda e: (places.index(e["placement"]), e["seed"], order.index(e["transport"])))
    checks: list[dict[str, Any]] = []
    groups = list(dict.fromkeys((e["placement"], e["seed"]) for e in entries))
    for expect in scenario.expects:
        for placement, seed in groups:
            if expect.placement not in (None, placement):
                continue
            figures = {e["transport"].replace("-", "_"): e for e in entries if (e["placement"], e["seed"]) == (placement, seed)}
            suffix = f" [{placement}, seed {seed}]" if len(groups) > 1 else ""
            checks.append(evaluate(expect.check, figures, expect.name + suffix))
    for entry in entries:
        if entry["faults_missed"] and entry["outcome"] == "done":
            missed = "; ".join(entry["faults_missed"])
            checks.append({"name": f"{entry['run']}: every fault happened", "expected": "all", "seen": f"not: {missed}", "ok": False})
    verdicts = [entry["verdict"] for entry in entries]
    if INTERRUPTED in verdicts:
        verdict = INTERRUPTED
    elif "failed" in verdicts or not all(check["ok"] for check in checks) or not entries:
        verdict = "failed"
    else:
        verdict = NOT_TRUSTWORTHY if NOT_TRUSTWORTHY in verdicts else "ok"
    return {"scenario": scenario.name, "verdict": verdict, "checks": checks, "runs": entries}


def exit_status(summary: dict[str, Any]) -> int:
    """0 well, 1 a check or a sum failed, 3 not trustworthy, 130 stopped by the user (2 is for bad input)."""
    return {"ok": 0, "failed": 1, NOT_TRUSTWORTHY: 3, INTERRUPTED: 130}[summary["verdict"]]
