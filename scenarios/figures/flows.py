"""Computes figures of flows: goodput in windows, fairness, what a victim keeps, queues, and how a
flow leaves another's EVs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from scenarios.figures.books import port_peaks
from scenarios.figures.measure import Run
from scenarios.figures.stats import jain, spread
from testbed.results import summary
from testbed.results.record import Flow
from topologies.paths import evs_over, path_links
from topologies.units import NS

SETTLE_RTTS = 20  # from a flow's start to the begin of a window [ours]
SMOOTH_RTTS = 10  # A single bin holds too few packets per EV [ours].
SEPARATED = 0.85
"""A flow has left shared EVs when it puts less than this part of its fair share on them [ours]. A
mark makes a sender skip an EV only once, so the share falls to one half at the lowest. A spray that
avoids no EV stays within 5 % of its fair share."""
FEWEST_SAMPLES = 100  # [ours]

Window = tuple[float, float]


def all_on(run: Run) -> Window | None:
    """Return the window from the latest start, plus the workload's ``settle`` or 20 base RTTs, to
    the earliest fixed end; None if empty."""
    ends = [f.start_ns + f.for_ns for f in run.named_flows if f.for_ns is not None]
    t0 = run.record.t0_ns
    if not ends or t0 is None:
        return None
    settle = max(SETTLE_RTTS * run.base_rtt_ns, run.record.settle_ps / NS)
    begin = max(f.start_ns for f in run.named_flows) + settle
    return (t0 + begin, t0 + min(ends)) if begin < min(ends) else None


def alone_window(run: Run, name: str) -> Window | None:
    starts = {f.name: f.start_ns for f in run.named_flows}
    others = [start for other, start in starts.items() if other != name]
    begin, t0 = starts[name] + SETTLE_RTTS * run.base_rtt_ns, run.record.t0_ns
    if not others or t0 is None or begin >= min(others):
        return None
    return t0 + begin, t0 + min(others)


def rate_in(bins: pd.DataFrame, window: Window | None) -> float | None:
    """Compute bits/s; a bin partly in the window counts by that part."""
    if window is None:
        return None
    begin, end = window
    t_ns, bin_ns, rx_bytes = (bins[name].to_numpy(float) for name in ("t_ns", "bin_ns", "rx_bytes"))
    inside = np.minimum(t_ns + bin_ns, end) - np.maximum(t_ns, begin)
    return float((rx_bytes * np.maximum(inside, 0) / bin_ns).sum() * 8e9 / (end - begin))


def flow_rows(run: Run) -> dict[str, summary.Flow]:
    line = run.fabric.payload_rate(run.record.kind)
    window, hosts, notes = all_on(run), run.record.ranks, run.record.flow_notes
    rows, wrong = {}, Counter[int | None]()
    for note in notes:
        wrong[note.flow] += note.wrong
    bins_of, sent_of = (dict(list(frame.groupby("flow"))) for frame in (run.flows, run.messages))
    for number, flow in enumerate(run.named_flows):
        bins, sent = (
            bins_of.get(flow.name, run.flows.iloc[:0]),
            sent_of.get(flow.name, run.messages.iloc[:0]),
        )
        goodput = rate_in(bins, window) if flow.for_ps is not None else span_rate(sent)
        rows[flow.name] = summary.Flow(
            group=flow.group,
            src=f"h{hosts[flow.src]}",
            dst=f"h{hosts[flow.dst]}",
            start_ns=flow.start_ns,
            bytes=int(bins["rx_bytes"].sum()),
            messages=len(sent),
            goodput_bps=goodput,
            alone_bps=rate_in(bins, alone_window(run, flow.name)),
            line_bps=line,
            share=None if goodput is None else goodput / line,
            wrong=wrong[number],
        )
    return rows


def span_rate(sent: pd.DataFrame) -> float | None:
    if sent.empty:
        return None
    return float(sent["bytes"].sum() * 8e9 / (sent["end_ns"].max() - sent["start_ns"].min()))


def queue_rows(run: Run) -> dict[str, summary.Queue]:
    """Mean and p99 cover the time in which all flows send, else the whole run."""
    window = all_on(run) or run.window
    counted = {row.port: row for row in run.ports}
    peaks = port_peaks(run.record)
    rows = {}
    for port, group in run.record.queue_ports.items():
        samples = run.queues[run.queues["port"] == port]
        in_window = samples.loc[
            (samples["t_ns"] >= window[0]) & (samples["t_ns"] <= window[1]), "bytes"
        ].sort_values()
        enough = len(in_window) >= FEWEST_SAMPLES
        trims, marks, drops = (
            counted[port][key] if port in counted else 0
            for key in ("trimmed", "marked", "drop_tail_packets")
        )
        # 0 only means that every sample fell between two bursts
        largest = max([peaks.get(port, 0), *samples["bytes"]])
        rows[port] = summary.Queue(
            group=group,
            mean_bytes=float(in_window.mean()) if len(in_window) else None,
            p99_bytes=int(in_window.iloc[math.ceil(0.99 * len(in_window)) - 1]) if enough else None,
            peak_bytes=largest if port in peaks or largest else None,
            buffer_bytes=run.fabric.buffer_bytes,
            trims=trims,
            marks=marks,
            drops=drops,
        )
    return rows


def group_rows(
    run: Run, flows: dict[str, summary.Flow], queues: dict[str, summary.Queue]
) -> dict[str, summary.Group]:
    rows: dict[str, summary.Group] = {}
    for group in dict.fromkeys(flow.group for flow in flows.values()):
        by_name = {name: flow for name, flow in flows.items() if flow.group == group}
        members = list(by_name.values())
        rates = [flow.goodput_bps for flow in members if flow.goodput_bps is not None]
        shares = [flow.share for flow in members if flow.share is not None]
        sent = run.messages[run.messages["flow"].isin(list(by_name))]
        counted = all(f.for_ps is None for f in run.named_flows if f.name in by_name)
        # flows with a number of messages end at different times
        total = span_rate(sent) if counted else sum(rates) if rates else None
        kept = [
            flow.goodput_bps / flow.alone_bps
            for flow in members
            if flow.alone_bps and flow.goodput_bps is not None
        ]
        row = rows[group] = summary.Group(
            flows=len(members),
            goodput_bps=total,
            of_line=None
            if total is None
            else total / (members[0].line_bps * len({flow.dst for flow in members})),
            jain=jain(rates),
            min_share=min(shares, default=None),
            max_share=max(shares, default=None),
            kept=min(kept, default=None),
            message_ns=spread(sent["end_ns"] - sent["start_ns"]),
        )
        own = [queue for queue in queues.values() if queue.group == group]
        if own:
            row.queue_mean_bytes = max(
                (q.mean_bytes for q in own if q.mean_bytes is not None), default=None
            )
            row.queue_p99_bytes = max(
                (q.p99_bytes for q in own if q.p99_bytes is not None), default=None
            )
            row.queue_peak_bytes = max(
                (q.peak_bytes for q in own if q.peak_bytes is not None), default=None
            )
            row.buffer_bytes = run.fabric.buffer_bytes
            row.trims, row.marks, row.drops = (
                sum(q.trims for q in own),
                sum(q.marks for q in own),
                sum(q.drops for q in own),
            )
    return rows


# --- EVs ------------------------------------------------------------------------------------------


def shared_evs(run: Run, free: Flow, bound: Flow) -> tuple[list[int], list[int]]:
    """Return (EVs of ``free`` that share a cable between switches with an EV of ``bound``, all EVs
    of ``free``), from reported paths. Empty without a report, or if nothing is shared."""
    hosts, paths = run.record.ranks, run.record.host_paths
    ends = [(hosts[flow.src], hosts[flow.dst]) for flow in (free, bound)]
    active = [
        [
            row.ev
            for row in paths.get(src, ())
            if row.peer == dst and row.active and row.ev is not None
        ]
        for src, dst in ends
    ]
    cables = {
        link.name
        for ev in active[1]
        for link in path_links(run.fabric, *ends[1], ev)
        if link.kind == "fabric"
    }
    on_cables = {ev for cable in cables for ev in evs_over(run.fabric, *ends[0], cable)}
    return sorted(on_cables & set(active[0])), sorted(set(active[0]))


def ev_ratio(run: Run, free: Flow, shared: Sequence[int], all_evs: Sequence[int]) -> pd.DataFrame:
    """Return per bin of ``free``: ``end_ns`` and ``ratio``, its packets on the shared EVs over
    their fair share in the last
    :data:`SMOOTH_RTTS`. 1.0: the spray does not avoid these EVs; 0.0: it has left them."""
    hosts = run.record.ranks
    packets = run.evs[(run.evs["host"] == hosts[free.src]) & (run.evs["peer"] == hosts[free.dst])]
    if packets.empty or not shared:
        return pd.DataFrame(columns=["end_ns", "ratio"])
    per_bin = (
        packets.assign(on=packets["tx_packets"].where(packets["ev"].isin(shared), 0))
        .groupby("t_ns")[["tx_packets", "on"]]
        .sum()
    )
    bin_ns = packets["bin_ns"].max()
    smooth = per_bin.rolling(
        max(1, round(SMOOTH_RTTS * run.base_rtt_ns / bin_ns)), min_periods=1
    ).sum()
    ratio = smooth["on"] / smooth["tx_packets"] / (len(shared) / len(all_evs))
    return pd.DataFrame({"end_ns": per_bin.index + bin_ns, "ratio": ratio.to_numpy()})


def separations(run: Run) -> list[summary.Separation]:
    """Make a row for each flow bound to some EVs and each earlier one with more: how far and how
    soon the latter leaves them."""
    t0, rtt = run.record.t0_ns, run.base_rtt_ns
    if t0 is None:
        return []
    rows = []
    for bound in (f for f in run.named_flows if f.evs):
        more = [f for f in run.named_flows if not f.evs or f.evs > (bound.evs or 0)]
        for free in (f for f in more if f.start_ns < bound.start_ns):
            shared, all_evs = shared_evs(run, free, bound)
            if not shared:
                continue
            at = t0 + bound.start_ns
            ends = [t0 + f.start_ns + f.for_ns for f in (free, bound) if f.for_ns is not None]
            ratios = ev_ratio(run, free, shared, all_evs)
            ratios = ratios[ratios["end_ns"] <= min(ends, default=1 << 62)]
            before, after = ratios[ratios["end_ns"] <= at], ratios[ratios["end_ns"] > at]
            too_high = after.loc[after["ratio"] > SEPARATED, "end_ns"]
            begin = (
                after["end_ns"].min()
                if too_high.empty
                else after.loc[after["end_ns"] > too_high.max(), "end_ns"].min()
            )
            delay_ns = None if after.empty or pd.isna(begin) else float(begin) - at
            settled = after[after["end_ns"] >= at + 2 * SETTLE_RTTS * rtt]
            rows.append(
                summary.Separation(
                    flow=free.name,
                    from_=bound.name,
                    shared_evs=shared,
                    evs=len(all_evs),
                    before=float(before["ratio"].iloc[-1]) if len(before) else None,
                    after=float(settled["ratio"].mean()) if len(settled) else None,
                    separated_ns=delay_ns,
                    separated_rtts=None if delay_ns is None else delay_ns / rtt,
                )
            )
    return rows


def fill(entry: summary.Run, run: Run) -> None:
    if not run.named_flows:
        return
    entry.t0_ns, entry.all_on_ns = run.record.t0_ns, all_on(run)
    entry.flows, entry.queues = flow_rows(run), queue_rows(run)
    entry.groups = group_rows(run, entry.flows, entry.queues)
    entry.separations = separations(run)
