"""Computes effects of failures on a run: how soon senders left the dead paths, what was lost there, and which paths were given up without a
cause.

Called by scenarios.figures.summary on what scenarios.figures.measure read; calls the other modules of failure figures. Pure.
docs/results.md says what each key means.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from scenarios.figures import capacity as capacity_figures
from scenarios.figures import flaps as flap_figures
from scenarios.figures import ports as port_figures
from scenarios.figures.flows import all_on, rate_in
from scenarios.figures.leaving import Logs, Pair, pair_of, worst_departure, worst_of
from scenarios.figures.measure import Run, agent_counters
from scenarios.figures.outages import ENDLESS, LATE_RTTS, Outage, dead_until, hit_evs, kind_of, traffic_start

SETTLE_RTTS = 20
"""Goodput has not yet settled for so many base RTTs after a change."""


def shares_kept(logs: Logs, outages: Sequence[Outage]) -> dict[str, Any]:
    """Compute the least share of its earlier goodput that any flow with a path hit by the fault had during, late in and after the fault."""
    run, window = logs.run, all_on(logs.run)
    begin, end = min(o.begin for o in outages), max(o.end for o in outages)
    if not run.named_flows or window is None or not window[0] < begin < window[1]:
        return {"kept_during": None, "kept_late": None, "kept_after": None}
    hosts, settle = run.record["ranks"], SETTLE_RTTS * run.base_rtt_ns
    first = min((o.begin for o in logs.outages if o.begin > window[0]), default=begin)
    last = min(end, window[1])
    spans = (("during", begin + settle, last), ("late", (begin + last) // 2, last), ("after", end + settle, window[1]))
    shares: dict[str, list[float]] = {name: [] for name, _, _ in spans}
    for flow in run.named_flows:
        pair = hosts[flow["src"]], hosts[flow["dst"]]
        if not any(hit_evs(run.fabric, o, *pair) for o in outages):
            continue
        bins = run.flows[run.flows["flow"] == flow["name"]]
        before = rate_in(bins, (window[0], first))
        for name, a, b in spans:
            if before and a < b and (rate := rate_in(bins, (a, b))) is not None:
                shares[name].append(rate / before)
    return {f"kept_{name}": min(values, default=None) for name, values in shares.items()}


def delivered_ns(logs: Logs, lost: Sequence[Mapping[str, Any]]) -> float | None:
    """Find when the sender knew that the last of these lost packets had arrived after all, ns; None if of one it never did, or none was
    lost."""
    arrivals = [logs.redelivered(line) for line in lost]
    known = [t for t in arrivals if t is not None]
    return max(known) if known and len(known) == len(arrivals) else None


def failovers(logs: Logs) -> list[dict[str, Any]]:
    """Return ``failovers``: per fault, when the last data packet was sent on a path that it killed, what was lost there, and what it cost.
    A path that comes back is used again, so only the time until the repair counts."""
    run = logs.run
    rows = []
    lines = run.of("fault")
    for fault in (f for f in lines if f["phase"] == "begin"):
        outages = [o for o in logs.outages if o.fault == fault["name"] and o.begin >= fault["t"]]
        if not outages:
            continue
        end = min((f["t"] for f in lines if f["phase"] == "heal" and f["name"] == fault["name"] and f["t"] > fault["t"]), default=ENDLESS)
        outages = [o for o in outages if o.begin <= end]
        until = end
        if any(dead_until(run, o) < o.end for o in outages):  # then until what was sent before is missed
            until = min(end, max(dead_until(run, o) for o in outages) + LATE_RTTS * run.base_rtt_ns)
        dead: dict[Pair, frozenset[int]] = {}
        for outage in outages:
            for pair, evs in logs.dead(outage).items():
                dead[pair] = dead.get(pair, frozenset()) | evs

        def on_dead_path(
            line: Mapping[str, Any], ev: Any, end: float = until, dead: Mapping[Pair, frozenset[int]] = dead, begin: float = fault["t"]
        ) -> bool:
            return begin <= line["t"] <= end and ev in dead.get((line["host"], line.get("peer", -1)), ())

        last_sent = [v["last_data_ns"] for v in logs.verdicts if v.get("last_data_ns") and on_dead_path(v, v["ev"])]
        # A reroute names the path that it left as "old".
        last_sent += [r["last_data_ns"] for r in logs.reroutes if r.get("last_data_ns") and on_dead_path(r, r.get("old"))]
        detections = [v["t"] for v in logs.verdicts if on_dead_path(v, v["ev"])]
        detections += [r["t"] for r in logs.reroutes if on_dead_path(r, r.get("old"))]
        lost = [line for line in logs.losses if on_dead_path(line, line["ev"])]
        rows.append(
            {
                "fault": fault["name"],
                "kind": fault["fault"],
                "on": fault["on"],
                "links": list(outages[0].links),
                "to": outages[0].to,
                "probability": outages[0].probability,
                "direction": outages[0].direction,
                "at_ns": fault["t"],
                "healed_ns": None if end == ENDLESS else end,
                "outages_ns": [[o.begin, None if o.end == ENDLESS else o.end] for o in outages],
                "last_on_dead_path_ns": max(last_sent, default=None),
                "detected_ns": max(detections, default=None),  # when the last sender had left the dead paths
                "lost": len(lost),
                "delivered_ns": delivered_ns(logs, lost),
                "cost_ns": cost_ns(run, fault["t"]),
                **worst_departure(logs, outages),
                **shares_kept(logs, outages),
            }
        )
    return rows


def cost_ns(run: Run, at: float) -> float | None:
    """Compute the time, ns, by which the slowest step that ended at or after ``at`` exceeds the median of the undisturbed steps."""
    times = run.step_times
    if times.empty:
        return None
    spans = run.whole_steps.groupby("step").agg(start=("start_ns", "min"), end=("end_ns", "max"))
    before, after = times[spans["end"] < at], times[spans["end"] >= at]
    if after.empty:
        return None
    begins = [f["t"] for f in run.of("fault")]
    undisturbed = before if len(before) else times[spans["start"] > max(begins, default=0)]
    return float(after.max() - (undisturbed.median() if len(undisturbed) else times.min()))


# --- verdicts without a cause, and paths dead from the start -------------------------------------------------------


def false_bad(logs: Logs) -> list[dict[str, Any]]:
    """Find verdicts that no fault explains: none hit the path at that time, shortly before, or while the lost packet was on its way."""
    margin = LATE_RTTS * logs.run.base_rtt_ns
    sent: dict[tuple[int, int, int, int], list[tuple[float, float]]] = {}
    for line in logs.losses:
        if line.get("sent_ns"):
            sent.setdefault((*pair_of(line), line.get("qpn", -1), line["ev"]), []).append((line["t"], line["sent_ns"]))

    def explained(v: Mapping[str, Any]) -> bool:
        # The verdict on a lightly used path comes late: what counts is when the packet was sent.
        sent_times = [s for t, s in sent.get((*pair_of(v), v.get("qpn", -1), v["ev"]), ()) if v["t"] - 5 * margin <= t <= v["t"]]
        return any(
            v["ev"] in hit_evs(logs.run.fabric, o, *pair_of(v))
            and (o.begin <= v["t"] <= o.end + margin or any(o.begin - margin <= s <= o.end for s in sent_times))
            for o in logs.outages
        )

    return [v for v in logs.verdicts if not explained(v)]


def nacks_lost(run: Run) -> int | None:
    """Count the NACKs that agents sent and none received; None for transports without. A trim whose NACK is lost looks like a loss to its
    sender."""
    counters = [c for c in agent_counters(run).values() if "nacks_tx" in c]
    return sum(c["nacks_tx"] - c["nacks_rx"] for c in counters) if counters else None


def dead_at_start(logs: Logs) -> dict[str, Any]:
    """Find the paths between sending pairs that were dead before any data was sent: how many, how many were detected, and how long that
    took. The time counts from when the sender of the path began, because ranks begin one after the other."""
    start = traffic_start(logs.run)
    dead = {
        (*pair, ev)
        for outage in logs.outages
        if outage.kills and outage.begin <= start
        for pair, evs in logs.dead(outage).items()
        if pair in logs.pairs
        for ev in evs
    }
    detected: dict[tuple[int, int, int], float] = {}
    for v in logs.verdicts:  # the first verdict of any queue pair counts
        key = (*pair_of(v), v["ev"])
        if key in dead:
            detected.setdefault(key, v["t"] - traffic_start(logs.run, v["host"]))
    return {"evs": len(dead), "found": len(detected), "missed": len(dead) - len(detected), "found_ns": max(detected.values(), default=None)}


def killed(run: Run) -> list[dict[str, Any]]:
    """Find testbed processes that a fault killed: how long after it the run ended, and whether the reason of its end names the rank."""
    rows = []
    for line in run.of("fault"):
        if kind_of(line["fault"]).heals or line["phase"] != "begin":
            continue
        host = line["on"][1:]
        rank = run.record["ranks"].index(int(host)) if line["on"].startswith("h") and host.isdigit() else None
        rows.append(
            {
                "on": line["on"],
                "rank": rank,
                "ended_ns": run.record["window"][1] - line["t"],
                "named": rank is not None and re.search(rf"\brank {rank}\b", run.record["reason"]) is not None,
            }
        )
    return rows


def figures(run: Run) -> dict[str, Any]:
    """Return the keys on failures in a run's entry of summary.json. Where a key is one number, it is the worst over all faults."""
    logs = Logs.of(run)
    rows = failovers(logs)
    false_verdicts = false_bad(logs)
    affected = [row for row in rows if row["left_queue_pairs"]]
    return {
        "failovers": rows,
        "last_on_dead_rtts": worst_of([row["last_on_dead_rtts"] for row in affected]),
        "last_on_dead_over_rotation": worst_of([row["last_on_dead_over_rotation"] for row in affected]),
        "ev_loss_excess": worst_of([row["ev_loss_excess"] for row in affected]),
        "kept_during": min((row["kept_during"] for row in rows if row["kept_during"] is not None), default=None),
        "kept_late": min((row["kept_late"] for row in rows if row["kept_late"] is not None), default=None),
        "kept_after": min((row["kept_after"] for row in rows if row["kept_after"] is not None), default=None),
        "bad_verdicts": len(logs.verdicts),
        "false_bad": len(false_verdicts),
        "false_bad_evs": len({(*pair_of(v), v["ev"]) for v in false_verdicts}),
        "false_bad_causes": dict(sorted(Counter(str(v.get("cause")) for v in false_verdicts).items())),
        "nacks_lost": nacks_lost(run),
        "qp_errors": sum(line.get("state") == "ERROR" for line in run.of("qp")),
        "dead_at_start": dead_at_start(logs),
        "killed": killed(run),
        **capacity_figures.figures(run, logs.outages),
        **port_figures.figures(run, logs.outages, logs.pairs),
        **flap_figures.figures(run, logs.outages, logs.pairs),
    }
