"""Compares what Clustermapper found in a run with what was broken, for summary.json. Pure; scenarios.figures.measure reads the lines."""

from __future__ import annotations

from typing import Any

from scenarios.figures.measure import Run

LATE_RTTS = 60
"""A verdict may still concern a fault for so many base RTTs after its end: the last probes have yet to be judged [ours]."""
_NEVER = 1 << 62


def figures(run: Run) -> dict[str, Any] | None:
    """Compute ``faults``: per fault, whether and when one of its links was named, denied and cleared. ``right`` and ``wrong``: number of
    verdicts whose links a fault hit at that time, or did not hit. ``denied_at_start``: entries written before the workload began. None for
    a run without Clustermapper. Times in ns after the fault began."""
    if not run.record.get("clustermapper"):
        return None
    verdicts = [line for line in run.of("mapper") if line["host"] < 0 and "state" in line]
    named_lines = [line for line in verdicts if line["state"] != "clear"]
    decisions = [line for line in run.of("deny", "allow", "kept") if line["host"] < 0]
    faults = _faults(run)
    correct = [any(_meets(fault, line["t"], line["links"]) for fault in faults) for line in named_lines]
    start = min((line["t"] for line in run.of("start")), default=_NEVER)
    rows = []
    for fault in faults:
        matches = [line for line in named_lines if _meets(fault, line["t"], line["links"])]
        entries = {line["on"] for line in matches}
        denied = [line["t"] for line in decisions if line["kind"] == "deny" and line["on"] in entries and line["t"] >= fault["begin"]]
        allowed = [line["t"] for line in decisions if line["kind"] == "allow" and line["on"] in entries and line["t"] >= fault["begin"]]
        clear = [line["t"] for line in verdicts if line["state"] == "clear" and line["on"] in entries and line["t"] >= fault["end"]]
        rows.append(
            {
                "fault": fault["name"], "on": fault["on"], "named": bool(matches),
                "states": list(dict.fromkeys(line["state"] for line in matches)),
                "named_ns": _after(fault, [line["t"] for line in matches]), "denied_ns": _after(fault, denied),
                "clear_ns": _after(fault, clear), "allowed_ns": _after(fault, allowed),
            }
        )  # fmt: skip
    return {
        "faults": rows,
        "right": sum(correct),
        "wrong": len(correct) - sum(correct),
        "denials": sum(line["kind"] == "deny" for line in decisions),
        "denied_at_start": sum(line["kind"] == "deny" and line["t"] < start for line in decisions),
        "kept": sum(line["kind"] == "kept" for line in decisions),
    }


def _faults(run: Run) -> list[dict[str, Any]]:
    """Return the faults that have links: name, links, begin and end."""
    lines = run.of("fault")
    faults = []
    for line in lines:
        if line["phase"] == "begin" and line["links"]:
            ends = [
                other["t"]
                for other in lines
                if other["phase"] in ("heal", "end") and other["name"] == line["name"] and other["t"] >= line["t"]
            ]
            faults.append({**line, "begin": line["t"], "end": min(ends, default=_NEVER), "late": LATE_RTTS * run.base_rtt_ns})
    return faults


def _meets(fault: dict[str, Any], t: float, links: list[str]) -> bool:
    return fault["begin"] <= t <= fault["end"] + fault["late"] and not set(links).isdisjoint(fault["links"])


def _after(fault: dict[str, Any], times: list[float]) -> float | None:
    return min(times) - fault["begin"] if times else None
