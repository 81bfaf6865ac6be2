"""Computes how a sender leaves the paths that an outage killed: how soon, and how many packets it loses on each of them.

Called by scenarios.figures.failures. Pure. docs/results.md says what each key means.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from agents.mrc import wire
from scenarios.figures.measure import Run
from scenarios.figures.outages import (
    LATE_RTTS,
    NO_LOSS,
    Outage,
    dead_until,
    hit_evs,
    outages_of,
    path_lines,
    peers_at_once,
    sending_pairs,
    traffic_start,
)
from topologies.paths import path_evs
from topologies.units import NS

Pair = tuple[int, int]
Packet = tuple[int, int, int, int]
"""A packet: sender, receiver, queue pair, PSN."""
BUSY_BINS = 10
"""The packet rate of a queue pair is the median over so many bins, before the fault, in which it sent [ours]."""


@dataclass
class Logs:
    """The log lines of a run that these figures need, selected once."""

    run: Run
    outages: list[Outage]
    pairs: list[Pair]
    verdicts: list[dict[str, Any]]  # EVs that became ASSUMED_BAD
    losses: list[dict[str, Any]]
    reroutes: list[dict[str, Any]]

    @classmethod
    def of(cls, run: Run) -> Logs:
        # A change from DENIED is no verdict: the denial ended, and probes must now be answered on the path.
        verdicts = [line for line in path_lines(run, "ev") if line["to"] == "ASSUMED_BAD" and line.get("from") != "DENIED"]
        return cls(run, outages_of(run), sending_pairs(run), verdicts, path_lines(run, "loss"), run.of("reroute"))

    @cached_property
    def _arrivals(self) -> dict[Packet, list[float]]:
        """Packet -> times at which its sender, which had found it lost, knew that it had arrived, ascending (PSNs wrap)."""
        arrivals: dict[Packet, list[float]] = {}
        for line in self.run.of("redelivered"):
            arrivals.setdefault(packet_of(line), []).append(line["t"])
        return arrivals

    @cached_property
    def verdicts_of(self) -> dict[Pair, list[dict[str, Any]]]:
        return by_pair(self.verdicts)

    @cached_property
    def losses_of(self) -> dict[Pair, list[dict[str, Any]]]:
        return by_pair(self.losses)

    @cached_property
    def samples_of(self) -> dict[Pair, list[dict[str, Any]]]:
        """The lines with RTTs and windows, by time. Those that MRC logs itself every few RTTs, and those of flows: the ones of collectives
        per bin came later, are of the end of their bin, and would make figures of collectives differ from earlier results."""
        return by_pair(line for line in self.run.of("srtt", "cwnd") if line["kind"] == "srtt" or "flow" in line)

    @cached_property
    def bins_of(self) -> dict[Pair, pd.DataFrame]:
        """The rows of :attr:`scenarios.figures.measure.Run.evs`, by pair."""
        evs = self.run.evs
        places: dict[Any, Any] = evs.groupby(["host", "peer"]).indices
        return {pair: evs.iloc[these] for pair, these in places.items()}

    @cached_property
    def heard_of(self) -> list[Pair]:
        """Pairs of ranks that send, or of which a path has a line in a log; by rank."""
        rank = {host: number for number, host in enumerate(self.run.record["ranks"])}
        logged = {(line["host"], line.get("peer", -1)) for lines in (self.verdicts, self.losses, self.reroutes) for line in lines}
        known = [(a, b) for a, b in {*self.pairs, *logged} if a in rank and b in rank and a != b]
        return sorted(known, key=lambda pair: (rank[pair[0]], rank[pair[1]]))

    def redelivered(self, loss: Mapping[str, Any]) -> float | None:
        """Find when the sender of a packet that it had found lost knew that it had arrived, ns; None if it never did."""
        return next((t for t in self._arrivals.get(packet_of(loss), ()) if t >= loss["t"]), None)

    def dead(self, outage: Outage) -> dict[Pair, frozenset[int]]:
        """Return (sender, receiver) -> EVs that the outage hits, without pairs that have no such EV, or that no log names."""
        evs_by_pair = {(a, b): hit_evs(self.run.fabric, outage, a, b) for a, b in self.heard_of}
        return {pair: evs for pair, evs in evs_by_pair.items() if evs}


def packet_of(line: Mapping[str, Any]) -> Packet:
    return line["host"], line["peer"], line.get("qpn", -1), line.get("psn", -1)


def pair_of(line: Mapping[str, Any]) -> Pair:
    return line["host"], line["peer"]


def by_pair(lines: Iterable[dict[str, Any]]) -> dict[Pair, list[dict[str, Any]]]:
    """Group lines by pair of hosts. A pair without any line has an empty list."""
    found: dict[Pair, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        found[pair_of(line)].append(line)
    return found


def worst_of(values: Sequence[float | None]) -> float | None:
    """Return the largest value; None if there is no value, or if one of them is None."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


# --- before the failure --------------------------------------------------------------------------------------------


def of_queue_pair(lines: Sequence[dict[str, Any]], qpn: int | None) -> list[dict[str, Any]]:
    """Choose the lines that concern a queue pair; a line without a queue pair concerns all."""
    return [line for line in lines if qpn is None or line.get("qpn", qpn) == qpn]


def srtt_before(logs: Logs, pair: Pair, qpn: int | None, t: float, verdict: Mapping[str, Any] | None) -> float:
    """Find the last smoothed RTT that a sender logged before ``t``, else that of its first verdict, else the base RTT, ns."""
    samples = [line["srtt_ns"] for line in of_queue_pair(logs.samples_of[pair], qpn) if line["t"] <= t and line.get("srtt_ns")]
    if samples:
        return float(samples[-1])
    if verdict is not None and verdict.get("srtt_ns"):
        return float(verdict["srtt_ns"])
    return logs.run.fabric.rtt_ps(*pair) / NS


def packet_gap_ns(logs: Logs, pair: Pair, t: float) -> float | None:
    """Compute the mean time between two data packets of a sender to one peer before ``t``; None if it had not sent."""
    run = logs.run
    bins = logs.bins_of.get(pair, run.evs[:0])
    bins = bins[bins["t_ns"] + bins["bin_ns"] <= t]
    if len(bins):
        counts = bins.groupby("t_ns")["tx_packets"].sum()
        bin_ns = bins["bin_ns"].max()
    else:
        bins = run.goodput[(run.goodput["host"] == pair[0]) & (run.goodput["t_ns"] + run.goodput["bin_ns"] <= t)]
        counts = bins.groupby("t_ns")["tx_bytes"].sum() / run.fabric.mtu / peers_at_once(run, pair[0])
        bin_ns = bins["bin_ns"].max() if len(bins) else 0
    busy = counts[counts > 0].iloc[-BUSY_BINS:]
    return bin_ns / statistics.median(busy) if len(busy) else None


def evs_in_use(run: Run, pair: Pair, verdict: Mapping[str, Any] | None) -> int:
    """Count the EVs in use: from the verdict, else all EVs, limited by the transport's option ``active_evs``."""
    if verdict is not None and verdict.get("evs"):
        return int(verdict["evs"])
    limit = int(run.record.get("options", {}).get("active_evs", 128))
    return min(limit, len(path_evs(run.fabric, *pair)))


def counted_bytes(run: Run) -> int:
    """Return the bytes of a full packet as the sender's window counts them: RoCE's counts whole frames, MRC's the payload and 88 bytes."""
    fabric = run.fabric
    return fabric.mtu + wire.COUNTED if run.record.get("kind") == "mrc" else fabric.frame_bytes


def window_until(logs: Logs, pair: Pair, qpn: int | None, t: float, verdict: Mapping[str, Any] | None) -> int | None:
    """Find the largest congestion window, bytes, from the last one logged before ``t`` until the first verdict; None if none was logged.
    Windows are logged every few RTTs and grow in between. So the window that held the lost packets may be larger than the last one that was
    logged; the verdict contains the window at its time."""
    until = t if verdict is None else verdict["t"]
    lines = [line for line in of_queue_pair(logs.samples_of[pair], qpn) if line["t"] <= until]
    windows = [(line["t"], int(line[key])) for line in lines for key in ("cwnd", "window") if line.get(key)]
    before = [window for at, window in windows if at <= t][-1:]
    later = [window for at, window in windows if at > t]
    if verdict is not None and verdict.get("window"):
        later.append(int(verdict["window"]))
    return max(before + later, default=None)


# --- one outage, one pair ------------------------------------------------------------------------------------------


def queues_of(logs: Logs, pair: Pair) -> list[int | None]:
    """List the queue pairs of a sender to a peer that occur in verdicts or losses; None stands for lines that name no queue pair."""
    qpns = {line.get("qpn") for line in (*logs.verdicts_of[pair], *logs.losses_of[pair])}
    return sorted(qpns, key=lambda qpn: -1 if qpn is None else qpn)


def departure_from(logs: Logs, outage: Outage, pair: Pair, evs: frozenset[int], qpn: int | None) -> dict[str, Any] | None:
    """Compute how a queue pair left the paths that an outage killed; None if it has no verdict and no loss on them. A sender that has data
    uses a dead EV within one rotation. If its first packet there is later, it had nothing to send in between (its rank waited for another
    one) and could not notice: its time then counts from one rotation before that packet [ours]."""
    run, rtt = logs.run, logs.run.base_rtt_ns
    end = dead_until(run, outage)
    deadline = end + LATE_RTTS * rtt
    verdicts = [v for v in of_queue_pair(logs.verdicts_of[pair], qpn) if v["ev"] in evs and outage.begin <= v["t"] <= deadline]
    losses = [x for x in of_queue_pair(logs.losses_of[pair], qpn) if x["ev"] in evs and x["t"] >= outage.begin]
    losses = [x for x in losses if outage.begin - LATE_RTTS * rtt <= x["sent_ns"] <= end]
    sent = [v["last_data_ns"] for v in verdicts if v.get("last_data_ns")] + [x["sent_ns"] for x in losses]
    sent = [min(t, end) for t in sent]
    if not verdicts and not losses:
        return None
    first_verdict = min(verdicts, key=lambda v: v["t"], default=None)
    srtt = srtt_before(logs, pair, qpn, outage.begin, first_verdict)
    count = evs_in_use(run, pair, first_verdict)
    gap, window = packet_gap_ns(logs, pair, outage.begin), window_until(logs, pair, qpn, outage.begin, first_verdict)
    rotation = None if gap is None else count * gap
    begin = max(outage.begin, min((x["sent_ns"] for x in losses), default=0) - (rotation or 0))
    delay = max(0, max(sent, default=begin) - begin)
    per_ev = Counter(x["ev"] for x in losses if x.get("rule") not in NO_LOSS)
    bound = None if window is None else math.ceil(window / counted_bytes(run) / count) + 1
    largest = max(per_ev.values(), default=0)
    return {
        "srtt_ns": srtt,
        "rotation_ns": rotation,
        "rtts": delay / srtt,
        "over_rotation": None if rotation is None else max(0.0, delay - rotation) / srtt,
        "losses": largest,
        "bound": bound,
        "excess": None if bound is None else largest - bound,
    }


def worst_departure(logs: Logs, outages: Sequence[Outage]) -> dict[str, Any]:
    """Find the worst of :func:`departure_from` over all senders and all outages of a fault that began after the traffic."""
    start = traffic_start(logs.run)
    departures = [
        departure
        for outage in outages
        if outage.kills and outage.begin > start
        for pair, evs in logs.dead(outage).items()
        for qpn in queues_of(logs, pair)
        if (departure := departure_from(logs, outage, pair, evs, qpn)) is not None
    ]
    worst = max(departures, key=lambda m: m["losses"], default=None)
    return {
        "left_queue_pairs": len(departures),
        "srtt_ns": statistics.median([m["srtt_ns"] for m in departures]) if departures else None,
        "rotation_ns": max((m["rotation_ns"] for m in departures if m["rotation_ns"] is not None), default=None),
        "last_on_dead_rtts": worst_of([m["rtts"] for m in departures]),
        "last_on_dead_over_rotation": worst_of([m["over_rotation"] for m in departures]),
        "losses_per_ev": None if worst is None else worst["losses"],
        "losses_per_ev_bound": None if worst is None else worst["bound"],
        "ev_loss_excess": worst_of([m["excess"] for m in departures]),
    }
