"""What Clustermapper found in a run beside what was broken, for summary.json. Pure; scenarios.figures.measure read the lines."""

from __future__ import annotations

from typing import Any

from scenarios.figures.measure import Run

LATE_RTTS = 60
"""A verdict so long after a fault's end may still be about it: probes of its last moments have yet to be judged [ours]."""
_NEVER = 1 << 62


def figures(run: Run) -> dict[str, Any] | None:
    """``faults``: per fault whether and when one of its links was named, denied, cleared; ``right`` and ``wrong``: links named that a fault
    had at that time, or had not. None of a run without Clustermapper. Times in ns after the fault began."""
    if not run.record.get("clustermapper"):
        return None
    told = [line for line in run.of("mapper") if line["host"] < 0 and "state" in line]
    named = [line for line in told if line["state"] != "clear"]
    decided = [line for line in run.of("deny", "allow", "kept") if line["host"] < 0]
    truth = _faults(run)
    right = [any(_meets(fault, line["t"], line["links"]) for fault in truth) for line in named]
    made = []
    for fault in truth:
        mine = [line for line in named if _meets(fault, line["t"], line["links"])]
        entries = {line["on"] for line in mine}
        denied = [line["t"] for line in decided if line["kind"] == "deny" and line["on"] in entries and line["t"] >= fault["begin"]]
        allowed = [line["t"] for line in decided if line["kind"] == "allow" and line["on"] in entries and line["t"] >= fault["begin"]]
        clear = [line["t"] for line in told if line["state"] == "clear" and line["on"] in entries and line["t"] >= fault["end"]]
        made.append(
            {
                "fault": fault["name"], "on": fault["on"], "named": bool(mine),
                "states": list(dict.fromkeys(line["state"] for line in mine)),
                "named_ns": _after(fault, [line["t"] for line in mine]), "denied_ns": _after(fault, denied),
                "clear_ns": _after(fault, clear), "allowed_ns": _after(fault, allowed),
            }
        )  # fmt: skip
    return {
        "faults": made,
        "right": sum(right),
        "wrong": len(right) - sum(right),
        "denials": sum(line["kind"] == "deny" for line in decided),
        "kept": sum(line["kind"] == "kept" for line in decided),
    }


def _faults(run: Run) -> list[dict[str, Any]]:
    """Those that have links: name, links, begin and end."""
    lines = run.of("fault")
    made = []
    for line in lines:
        if line["phase"] == "begin" and line["links"]:
            ends = [li["t"] for li in lines if li["phase"] in ("heal", "end") and li["name"] == line["name"] and li["t"] >= line["t"]]
            made.append({**line, "begin": line["t"], "end": min(ends, default=_NEVER), "late": LATE_RTTS * run.fabric.base_rtt_ns})
    return made


def _meets(fault: dict[str, Any], t: int, links: list[str]) -> bool:
    return fault["begin"] <= t <= fault["end"] + fault["late"] and not set(links).isdisjoint(fault["links"])


def _after(fault: dict[str, Any], times: list[int]) -> int | None:
    return min(times) - fault["begin"] if times else None
