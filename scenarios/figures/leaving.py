"""Computes how a sender leaves the paths that an outage killed: how soon, and with how many losses
on each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from agents.mrc import wire
from scenarios.figures.measure import Run
from scenarios.figures.outages import LATE_RTTS, NO_LOSS, Failures, OfQueuePair, Outage, Pair
from testbed.results import log
from topologies.paths import path_evs
from topologies.units import NS

N = TypeVar("N", int, float)
OfQp = TypeVar("OfQp", bound=OfQueuePair)
BUSY_BINS = 10  # bins with packets before the fault [ours]


def worst_of(values: Sequence[N | None]) -> N | None:
    """Return None if there is no value, or one is None."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


# --- before the failure ---------------------------------------------------------------------------


def of_queue_pair(lines: Sequence[OfQp], qpn: int | None) -> list[OfQp]:
    """Choose the lines of a queue pair; a line without one concerns all."""
    return [line for line in lines if qpn is None or line.qpn in (None, qpn)]


def srtt_before(
    failures: Failures, pair: Pair, qpn: int | None, t: float, verdict: log.PathChange | None
) -> float:
    """Return the last smoothed RTT before ``t``, else the first verdict's, else the base RTT,
    ns."""
    samples: list[float | None] = [
        line.srtt_ns
        for line in of_queue_pair(failures.samples_of[pair], qpn)
        if line.t_ns <= t and line.srtt_ns
    ]
    if not samples and verdict is not None:
        samples = [verdict.srtt_ns]
    return (samples[-1] if samples else None) or failures.run.fabric.rtt_ps(*pair) / NS


def packet_gap_ns(failures: Failures, pair: Pair, t: float) -> float | None:
    run = failures.run
    bin_ns, counts = _totals(failures.bins_of.get(pair, run.evs[:0]), "tx_packets", t)
    if not len(counts):
        bin_ns, counts = _totals(run.goodput[run.goodput["host"] == pair[0]], "tx_bytes", t)
        counts = counts / run.fabric.mtu / failures.peers_at_once(pair[0])
    busy = counts[counts > 0][-BUSY_BINS:]
    return bin_ns / float(np.median(busy)) if len(busy) else None


def _totals(bins: pd.DataFrame, column: str, t: float) -> tuple[float, np.ndarray[Any, Any]]:
    """Return the length of bins that end by ``t``, and the total of each time."""
    begins, bin_ns = bins["t_ns"].to_numpy(float), bins["bin_ns"].to_numpy(float)
    over = begins + bin_ns <= t
    _, places = np.unique(begins[over], return_inverse=True)
    return max(bin_ns[over], default=0.0), np.bincount(places, bins[column].to_numpy(float)[over])


def evs_in_use(run: Run, pair: Pair, verdict: log.PathChange | None) -> int:
    """Count the EVs of the verdict, else all, limited by the option ``active_evs``."""
    if verdict is not None and verdict.evs:
        return verdict.evs
    return min(run.record.options.active_evs, len(path_evs(run.fabric, *pair)))


def counted_bytes(run: Run) -> int:
    """Return a full packet's bytes in the sender's window: RoCE counts whole frames, MRC the
    payload and 88 bytes."""
    fabric = run.fabric
    return fabric.mtu + wire.COUNTED if run.record.kind == "mrc" else fabric.frame_bytes


def window_until(
    failures: Failures, pair: Pair, qpn: int | None, t: float, verdict: log.PathChange | None
) -> int | None:
    """Return the largest congestion window, bytes, from the last one logged before ``t`` until the
    first verdict, which has its own. Windows grow between the lines."""
    until = t if verdict is None else verdict.t_ns
    lines = [line for line in of_queue_pair(failures.samples_of[pair], qpn) if line.t_ns <= until]
    before = [line.bytes for line in lines if line.t_ns <= t and line.bytes][-1:]
    later = [line.bytes for line in lines if line.t_ns > t and line.bytes]
    if verdict is not None and verdict.window:
        later.append(verdict.window)
    return max(before + later, default=None)


# --- one outage, one pair -------------------------------------------------------------------------


@dataclass(frozen=True)
class Departure:
    srtt_ns: float
    rotation_ns: float | None
    rtts: float
    over_rotation: float | None
    losses: int
    bound: int | None

    @property
    def excess(self) -> int | None:
        return None if self.bound is None else self.losses - self.bound


def departure_from(
    failures: Failures, outage: Outage, pair: Pair, evs: frozenset[int], qpn: int | None
) -> Departure | None:
    """Return None without verdict and loss on the killed paths.

    A sender that has data uses a dead EV within one rotation. If its first packet there is later,
    it had nothing to send (its rank waited) and could not notice: its time then counts from one
    rotation before that packet [ours].
    """
    run, rtt = failures.run, failures.run.base_rtt_ns
    end = failures.dead_until(outage)
    deadline = end + LATE_RTTS * rtt
    verdicts = [
        v
        for v in of_queue_pair(failures.verdicts_of[pair], qpn)
        if v.ev in evs and outage.begin <= v.t_ns <= deadline
    ]
    losses = [
        x
        for x in of_queue_pair(failures.losses_of[pair], qpn)
        if x.ev in evs and x.t_ns >= outage.begin
    ]
    losses = [x for x in losses if outage.begin - LATE_RTTS * rtt <= x.sent_ns <= end]
    sent = [v.last_data_ns for v in verdicts if v.last_data_ns] + [x.sent_ns for x in losses]
    sent = [min(t, end) for t in sent]
    if not verdicts and not losses:
        return None
    first_verdict = min(verdicts, key=lambda v: v.t, default=None)
    srtt = srtt_before(failures, pair, qpn, outage.begin, first_verdict)
    count = evs_in_use(run, pair, first_verdict)
    gap, window = (
        packet_gap_ns(failures, pair, outage.begin),
        window_until(failures, pair, qpn, outage.begin, first_verdict),
    )
    rotation = None if gap is None else count * gap
    begin = max(outage.begin, min((x.sent_ns for x in losses), default=0) - (rotation or 0))
    delay = max(0, max(sent, default=begin) - begin)
    per_ev = Counter(x.ev for x in losses if x.rule not in NO_LOSS)
    return Departure(
        srtt,
        rotation,
        delay / srtt,
        None if rotation is None else max(0.0, delay - rotation) / srtt,
        max(per_ev.values(), default=0),
        None if window is None else math.ceil(window / counted_bytes(run) / count) + 1,
    )


def queues_of(failures: Failures, pair: Pair) -> list[int | None]:
    """Return queue pairs in verdicts or losses; None stands for lines without one."""
    qpns = {line.qpn for line in failures.verdicts_of[pair]} | {
        line.qpn for line in failures.losses_of[pair]
    }
    return sorted(qpns, key=lambda qpn: -1 if qpn is None else qpn)


def departures(
    failures: Failures, outages: Sequence[Outage], since: float | None = None
) -> list[Departure]:
    """Return :func:`departure_from` of outages begun after ``since``, ns (default: begin of
    traffic)."""
    start = failures.traffic_start() if since is None else since
    found = [
        departure_from(failures, outage, pair, evs, qpn)
        for outage in outages
        if outage.kills and outage.begin > start
        for pair, evs in failures.dead(outage).items()
        for qpn in queues_of(failures, pair)
    ]
    return [departure for departure in found if departure is not None]
