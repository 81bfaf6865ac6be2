"""What failures did to a run: how soon senders left the paths that died, what was lost there, and what was given up without a cause.

Called by scenarios.summary on what scenarios.measure read; the other modules of failure figures are called from here. Pure.
docs/results.md says what each key means.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scenarios import capacity_figures, flap_figures, port_figures
from scenarios.flow_figures import all_on, rate_in
from scenarios.measure import Run
from scenarios.outages import ENDLESS, LATE_RTTS, NO_LOSS, Outage, began, hit, outages, path_lines, peers_at_once, sending_pairs
from topologies.paths import path_evs

Pair = tuple[int, int]
BUSY_BINS = 10
"""A queue pair's packet rate is the median over so many bins before the fault in which it sent [ours]."""
SETTLE_RTTS = 20
"""As long after a fault goodput is not yet what the rest carries (the issue's figure)."""


@dataclass
class Logs:
    """A run's lines that these figures need, picked once."""

    run: Run
    found: list[Outage]
    pairs: list[Pair]
    verdicts: list[dict[str, Any]]  # EVs that became ASSUMED_BAD
    losses: list[dict[str, Any]]
    reroutes: list[dict[str, Any]]

    @classmethod
    def of(cls, run: Run) -> Logs:
        # From DENIED it is none: the denial ended, and the path has to prove itself.
        verdicts = [line for line in path_lines(run, "ev") if line["to"] == "ASSUMED_BAD" and line.get("from") != "DENIED"]
        return cls(run, outages(run), sending_pairs(run), verdicts, path_lines(run, "loss"), run.of("reroute"))

    def dead(self, outage: Outage) -> dict[Pair, frozenset[int]]:
        """(sender, receiver) -> EVs that the outage hits; those with none are left out."""
        ranks = self.run.record["ranks"]
        every = {(a, b): hit(self.run.fabric, outage, a, b) for a in ranks for b in ranks if a != b}
        return {pair: evs for pair, evs in every.items() if evs}


def pair_of(line: Mapping[str, Any]) -> Pair:
    return line["host"], line["peer"]


# --- before the failure --------------------------------------------------------------------------------------------


def of_queue(line: Mapping[str, Any], pair: Pair, qpn: int | None) -> bool:
    """Whether a line is of a pair's queue pair; one that names none is of all."""
    return pair_of(line) == pair and (qpn is None or line.get("qpn", qpn) == qpn)


def srtt_before(run: Run, pair: Pair, qpn: int | None, t: int, verdict: Mapping[str, Any] | None) -> int:
    """The smoothed RTT that a sender last logged before ``t``, else what its first verdict says, else the base RTT, ns."""
    told = [line["srtt_ns"] for line in run.of("srtt", "cwnd") if line["t"] <= t and of_queue(line, pair, qpn) and line.get("srtt_ns")]
    if told:
        return int(told[-1])
    if verdict is not None and verdict.get("srtt_ns"):
        return int(verdict["srtt_ns"])
    local = run.fabric.t0_of(pair[0]) == run.fabric.t0_of(pair[1])
    return run.fabric.local_rtt_ns if local else run.fabric.base_rtt_ns


def packet_gap_ns(run: Run, pair: Pair, t: int) -> float | None:
    """Mean time between two data packets of a sender to one peer before ``t``; None if it had not sent."""
    mine = run.evs[(run.evs["host"] == pair[0]) & (run.evs["peer"] == pair[1]) & (run.evs["t_ns"] + run.evs["bin_ns"] <= t)]
    if len(mine):
        counts = mine.groupby("t_ns")["tx_packets"].sum()
        bin_ns = int(mine["bin_ns"].max())
    else:
        mine = run.goodput[(run.goodput["host"] == pair[0]) & (run.goodput["t_ns"] + run.goodput["bin_ns"] <= t)]
        counts = mine.groupby("t_ns")["tx_bytes"].sum() / run.fabric.mtu / peers_at_once(run, pair[0])
        bin_ns = int(mine["bin_ns"].max()) if len(mine) else 0
    busy = counts[counts > 0].iloc[-BUSY_BINS:]
    return bin_ns / statistics.median(busy) if len(busy) else None


def evs_of(run: Run, pair: Pair, verdict: Mapping[str, Any] | None) -> int:
    """EVs in use: as the verdict says, else all, up to what the transport's options allow."""
    if verdict is not None and verdict.get("evs"):
        return int(verdict["evs"])
    most = int(run.record.get("options", {}).get("active_evs", 128))
    return min(most, len(path_evs(run.fabric, *pair)))


def window_before(run: Run, pair: Pair, qpn: int | None, t: int, verdict: Mapping[str, Any] | None) -> int | None:
    """The congestion window last logged before ``t``, else what the first verdict says, bytes; None if nobody said."""
    lines = [line for line in run.of("cwnd", "srtt") if line["t"] <= t and of_queue(line, pair, qpn)]
    told = [line[key] for line in lines for key in ("cwnd", "window") if line.get(key)]
    if told:
        return int(told[-1])
    return int(verdict["window"]) if verdict is not None and verdict.get("window") else None


# --- one outage, one pair ------------------------------------------------------------------------------------------


def queues_of(logs: Logs, pair: Pair) -> list[int | None]:
    """Queue pairs of a sender to a peer of whose paths there is a line; None stands for lines that name none."""
    found = {line.get("qpn") for line in [*logs.verdicts, *logs.losses] if pair_of(line) == pair}
    return sorted(found, key=lambda qpn: -1 if qpn is None else qpn)


def left_paths(logs: Logs, outage: Outage, pair: Pair, evs: frozenset[int], qpn: int | None) -> dict[str, Any] | None:
    """How a queue pair left the paths that an outage killed; None if it sent nothing there, from the outage on or ever.

    A sender that is sending meets a dead EV within one rotation. If the first packet there left later, it had nothing to send in between
    (a rank that waited for another one), and could not know: its time counts from one rotation before that packet [ours].
    """
    run, rtt = logs.run, logs.run.fabric.base_rtt_ns
    late = outage.end + LATE_RTTS * rtt
    verdicts = [v for v in logs.verdicts if of_queue(v, pair, qpn) and v["ev"] in evs and outage.begin <= v["t"] <= late]
    losses = [x for x in logs.losses if of_queue(x, pair, qpn) and x["ev"] in evs and x["t"] >= outage.begin]
    losses = [x for x in losses if outage.begin - LATE_RTTS * rtt <= x["sent_ns"] <= outage.end]
    sent = [v["last_data_ns"] for v in verdicts if v.get("last_data_ns")] + [x["sent_ns"] for x in losses]
    sent = [min(t, outage.end) for t in sent]
    if not verdicts and not losses:
        return None
    first = min(verdicts, key=lambda v: v["t"], default=None)
    srtt = srtt_before(run, pair, qpn, outage.begin, first)
    count = evs_of(run, pair, first)
    gap, window = packet_gap_ns(run, pair, outage.begin), window_before(run, pair, qpn, outage.begin, first)
    rotation = None if gap is None else count * gap
    begin = max(outage.begin, min((x["sent_ns"] for x in losses), default=0) - round(rotation or 0))
    after = max(0, max(sent, default=begin) - begin)
    per_ev = Counter(x["ev"] for x in losses if x.get("rule") not in NO_LOSS)
    bound = None if window is None else math.ceil(window / run.fabric.frame_bytes / count) + 1
    most = max(per_ev.values(), default=0)
    return {
        "srtt_ns": srtt,
        "rotation_ns": rotation,
        "rtts": after / srtt,
        "over_rotation": None if rotation is None else max(0.0, after - rotation) / srtt,
        "losses": most,
        "bound": bound,
        "excess": None if bound is None else most - bound,
    }


def leaving(logs: Logs, mine: Sequence[Outage]) -> dict[str, Any]:
    """Over all senders and all outages of a fault that began under traffic: the worst of :func:`left_paths`."""
    start = began(logs.run)
    made = [
        found
        for outage in mine
        if outage.kills and outage.begin > start
        for pair, evs in logs.dead(outage).items()
        for qpn in queues_of(logs, pair)
        if (found := left_paths(logs, outage, pair, evs, qpn)) is not None
    ]
    worst = max(made, key=lambda m: m["losses"], default=None)
    return {
        "left_queue_pairs": len(made),
        "srtt_ns": int(statistics.median([m["srtt_ns"] for m in made])) if made else None,
        "rotation_ns": max((m["rotation_ns"] for m in made if m["rotation_ns"] is not None), default=None),
        "last_on_dead_rtts": port_figures.worst([m["rtts"] for m in made]),
        "last_on_dead_over_rotation": port_figures.worst([m["over_rotation"] for m in made]),
        "losses_per_ev": None if worst is None else worst["losses"],
        "losses_per_ev_bound": None if worst is None else worst["bound"],
        "ev_loss_excess": port_figures.worst([m["excess"] for m in made]),
    }


def kept(logs: Logs, mine: Sequence[Outage]) -> dict[str, Any]:
    """Of flows that a fault's paths concern: the least part of their goodput before it that they had during, late in and after it."""
    run, window = logs.run, all_on(logs.run)
    begin, end = min(o.begin for o in mine), max(o.end for o in mine)
    if not run.named_flows or window is None or not window[0] < begin < window[1]:
        return {"kept_during": None, "kept_late": None, "kept_after": None}
    hosts, settle = run.record["ranks"], SETTLE_RTTS * run.fabric.base_rtt_ns
    first = min((o.begin for o in logs.found if o.begin > window[0]), default=begin)
    over = min(end, window[1])
    spans = (("during", begin + settle, over), ("late", (begin + over) // 2, over), ("after", end + settle, window[1]))
    shares: dict[str, list[float]] = {name: [] for name, _, _ in spans}
    for flow in run.named_flows:
        pair = hosts[flow["src"]], hosts[flow["dst"]]
        if not any(hit(run.fabric, o, *pair) for o in mine):
            continue
        bins = run.flows[run.flows["flow"] == flow["name"]]
        before = rate_in(bins, (window[0], first))
        for name, a, b in spans:
            if before and a < b and (rate := rate_in(bins, (a, b))) is not None:
                shares[name].append(rate / before)
    return {f"kept_{name}": min(found, default=None) for name, found in shares.items()}


def failovers(logs: Logs) -> list[dict[str, Any]]:
    """``failovers``: per fault, when the last data packet left onto a path it killed, what was lost there, and what it cost.

    A path that comes back is used again, so the window ends where the fault was mended.
    """
    run = logs.run
    out = []
    lines = run.of("fault")
    for fault in (f for f in lines if f["phase"] == "begin"):
        mine = [o for o in logs.found if o.fault == fault["name"] and o.begin >= fault["t"]]
        if not mine:
            continue
        end = min((f["t"] for f in lines if f["phase"] == "heal" and f["name"] == fault["name"] and f["t"] > fault["t"]), default=ENDLESS)
        mine = [o for o in mine if o.begin <= end]
        dead: dict[Pair, frozenset[int]] = {}
        for outage in mine:
            for pair, evs in logs.dead(outage).items():
                dead[pair] = dead.get(pair, frozenset()) | evs

        def on_it(line: Mapping[str, Any], ev: Any, end: int = end, dead: Mapping[Pair, frozenset[int]] = dead, begin: int = fault["t"]) -> bool:  # noqa: E501
            return begin <= line["t"] <= end and ev in dead.get((line["host"], line.get("peer", -1)), ())

        last = [v["last_data_ns"] for v in logs.verdicts if v.get("last_data_ns") and on_it(v, v["ev"])]
        last += [r["last_data_ns"] for r in logs.reroutes if r.get("last_data_ns") and on_it(r, r.get("old"))]  # it names the path it left
        seen = [v["t"] for v in logs.verdicts if on_it(v, v["ev"])]
        seen += [r["t"] for r in logs.reroutes if on_it(r, r.get("old"))]
        out.append(
            {
                "fault": fault["name"],
                "kind": fault["fault"],
                "on": fault["on"],
                "links": list(mine[0].links),
                "to": mine[0].to,
                "probability": mine[0].probability,
                "direction": mine[0].direction,
                "at_ns": fault["t"],
                "healed_ns": None if end == ENDLESS else end,
                "outages_ns": [[o.begin, None if o.end == ENDLESS else o.end] for o in mine],
                "last_on_dead_path_ns": max(last, default=None),
                "detected_ns": max(seen, default=None),  # when the last sender had left the dead paths
                "lost": sum(on_it(line, line["ev"]) for line in logs.losses),
                "cost_ns": cost_ns(run, fault["t"]),
                **leaving(logs, mine),
                **kept(logs, mine),
            }
        )
    return out


def cost_ns(run: Run, at: int) -> int | None:
    """How much longer than the run's undisturbed median the slowest step that was under way at or after ``at`` took."""
    frame = run.steps[~run.steps["warmup"].astype(bool)]
    times = run.step_times
    if times.empty:
        return None
    ends, starts = frame.groupby("step")["end_ns"].max(), frame.groupby("step")["start_ns"].min()
    before, after = times[ends.reindex(times.index) < at], times[ends.reindex(times.index) >= at]
    if after.empty:
        return None
    first = [f["t"] for f in run.of("fault")]
    calm = before if len(before) else times[starts.reindex(times.index) > max(first, default=0)]
    return int(after.max() - (calm.median() if len(calm) else times.min()))


# --- verdicts without a cause, and paths dead from the start -------------------------------------------------------


def false_bad(logs: Logs) -> list[dict[str, Any]]:
    """Verdicts that no fault explains: nothing hit that path while packets were on it that were sent up to the verdict."""
    late = LATE_RTTS * logs.run.fabric.base_rtt_ns
    return [
        v
        for v in logs.verdicts
        if not any(o.begin <= v["t"] <= o.end + late and v["ev"] in hit(logs.run.fabric, o, *pair_of(v)) for o in logs.found)
    ]


def dead_at_start(logs: Logs) -> dict[str, Any]:
    """Paths that data should take and that were dead before any was sent: how many, how many were found, and when the last of them."""
    start = began(logs.run)
    dead = {
        (*pair, ev)
        for outage in logs.found
        if outage.kills and outage.begin <= start
        for pair, evs in logs.dead(outage).items()
        if pair in logs.pairs
        for ev in evs
    }
    found: dict[tuple[int, int, int], int] = {}
    for v in logs.verdicts:  # the first one of any queue pair of theirs
        key = (*pair_of(v), v["ev"])
        if key in dead:
            found.setdefault(key, v["t"])
    took = max(found.values()) - start if found else None
    return {"evs": len(dead), "found": len(found), "missed": len(dead) - len(found), "found_ns": took}


def killed(run: Run) -> list[dict[str, Any]]:
    """Processes of ours that a fault killed: how long after it the run ended, and whether its end names the rank."""
    rows = []
    for line in run.of("fault"):
        if line["fault"] != "kill" or line["phase"] != "begin":
            continue
        host = line["on"][1:]
        rank = run.record["ranks"].index(int(host)) if line["on"].startswith("h") and host.isdigit() else None
        rows.append(
            {
                "on": line["on"],
                "rank": rank,
                "ended_ns": int(run.record["window"][1]) - line["t"],
                "named": rank is not None and re.search(rf"\brank {rank}\b", run.record["reason"]) is not None,
            }
        )
    return rows


def figures(run: Run) -> dict[str, Any]:
    """What a run's entry in summary.json says of failures. The worst over all faults, where a key is one number."""
    logs = Logs.of(run)
    rows = failovers(logs)
    wrong = false_bad(logs)
    left = [row for row in rows if row["left_queue_pairs"]]
    return {
        "failovers": rows,
        "last_on_dead_rtts": port_figures.worst([row["last_on_dead_rtts"] for row in left]),
        "last_on_dead_over_rotation": port_figures.worst([row["last_on_dead_over_rotation"] for row in left]),
        "ev_loss_excess": port_figures.worst([row["ev_loss_excess"] for row in left]),
        "kept_during": min((row["kept_during"] for row in rows if row["kept_during"] is not None), default=None),
        "kept_late": min((row["kept_late"] for row in rows if row["kept_late"] is not None), default=None),
        "kept_after": min((row["kept_after"] for row in rows if row["kept_after"] is not None), default=None),
        "bad_verdicts": len(logs.verdicts),
        "false_bad": len(wrong),
        "false_bad_evs": len({(*pair_of(v), v["ev"]) for v in wrong}),
        "false_bad_causes": dict(sorted(Counter(str(v.get("cause")) for v in wrong).items())),
        "qp_errors": sum(line.get("state") == "ERROR" for line in run.of("qp")),
        "dead_at_start": dead_at_start(logs),
        "killed": killed(run),
        **capacity_figures.figures(run, logs.found),
        **port_figures.figures(run, logs.found, logs.pairs),
        **flap_figures.figures(run, logs.found, logs.pairs),
    }
