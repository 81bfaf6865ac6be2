"""Judges NIC ports that go down and come back under flows: goodput of both directions, how soon it
settles, and the planes' load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from scenarios.figures.flows import all_on, rate_in
from scenarios.figures.leaving import worst_of
from scenarios.figures.measure import Run
from scenarios.figures.outages import Failures, changes, dead_at
from testbed.results import summary
from topologies.theory import sack_share

SETTLE_RTTS = 20  # after a change; these do not count for the goodput reached [ours]
# of a goodput window: a bin of two has about 20 packets per plane, too few to resolve 3 % [ours]
SLIDING_RTTS = 20
TOLERANCE = 0.03  # of settled goodput; :func:`settled_ns` allows a packet more [ours]
JUDGED_RTTS = 40  # least length of a phase [ours]
FEWEST_PACKETS = 1000  # per plane [ours]


@dataclass(frozen=True)
class Phase:
    """A stretch that begins with a change of a host's live NIC ports."""

    host: int
    begin: float
    end: float
    live: tuple[int, ...]  # planes
    down: tuple[int, ...]  # planes whose port went down when the phase began
    up: tuple[int, ...]  # planes whose port came back when the phase began


def live_planes(run: Run, host: int, dead: frozenset[str]) -> tuple[int, ...]:
    return tuple(
        link.plane
        for link in run.fabric.links
        if link.kind == "nic" and link.a.node == f"h{host}" and link.name not in dead
    )


def phases(failures: Failures, host: int) -> list[Phase]:
    run, outages = failures.run, failures.outages
    if not (times := changes(outages)) or (window := all_on(run)) is None:
        return []
    marks: list[tuple[float, tuple[int, ...]]] = []
    for t in [window[0], *(t for t in times if window[0] < t < window[1])]:
        live = live_planes(run, host, dead_at(outages, t))
        if not marks or marks[-1][1] != live:
            marks.append((t, live))
    ends = [t for t, _ in marks[1:]] + [window[1]]
    result = []
    for (_, before), (begin, live), end in zip(marks, marks[1:], ends[1:], strict=False):
        down, up = (
            tuple(p for p in before if p not in live),
            tuple(p for p in live if p not in before),
        )
        result.append(Phase(host, begin, end, live, down, up))
    return result


def goodput_of(run: Run, names: Sequence[str]) -> pd.DataFrame:
    """Add up bytes per bin, as receivers counted them; empty bins have 0."""
    flow_bins = run.flows[run.flows["flow"].isin(list(names))]
    if flow_bins.empty:
        return pd.DataFrame({"t_ns": [], "bin_ns": [], "rx_bytes": []})
    bin_ns, begin = flow_bins["bin_ns"].max(), flow_bins["t_ns"].min()
    number = ((flow_bins["t_ns"] - begin) / bin_ns).round().astype(int)
    total = (
        flow_bins.groupby(number)["rx_bytes"].sum().reindex(range(number.max() + 1), fill_value=0)
    )  # agents log no line for an empty bin
    return pd.DataFrame(
        {
            "t_ns": begin + total.index.to_numpy() * bin_ns,
            "bin_ns": bin_ns,
            "rx_bytes": total.to_numpy(),
        }
    )


def mean_share(bins: pd.DataFrame, line_bps: float, begin: float, end: float) -> float | None:
    rate = rate_in(bins, (begin, end)) if begin < end else None
    return None if rate is None else rate / line_bps


def settled_ns(
    bins: pd.DataFrame,
    line_bps: float,
    expected: float,
    begin: float,
    end: float,
    width: float,
    edge_bytes: int = 0,
) -> float | None:
    """Return the time from ``begin`` to the first window of ``width`` ns with goodput within 3 % of
    ``expected`` (a share of the line); None without one. The mean from there to ``end`` must be as
    close [ours]: a stall long afterwards is no part of settling.

    ``edge_bytes``: what a window's edges may cut off, a packet on each plane; a window may deviate
    by so much more [ours].
    """

    def near(t: float, until: float) -> bool:
        share = mean_share(bins, line_bps, t, until)
        return share is not None and abs(share / expected - 1) <= TOLERANCE + edge_bytes * 8e9 / (
            (until - t) * line_bps * expected
        )

    starts = [float(t) for t in bins["t_ns"] if t >= begin and t + width <= end]
    return next((t - begin for t in starts if near(t, t + width) and near(t, end)), None)


def rows_of(failures: Failures) -> list[summary.PortPhase]:
    run, fabric = failures.run, failures.run.fabric
    hosts, rtt = run.record.ranks, run.base_rtt_ns
    line = fabric.payload_rate(run.record.kind)
    rows: list[summary.PortPhase] = []
    for host in sorted(hosts):
        host_phases = phases(failures, host)
        for direction in ("sent", "received") if host_phases else ():
            ends = [(hosts[flow.src], hosts[flow.dst], flow) for flow in run.named_flows]
            ends = ends if direction == "sent" else [(dst, src, flow) for src, dst, flow in ends]
            bins = goodput_of(
                run, [flow.name for own, _, flow in ends if own == host and flow.for_ps is not None]
            )
            if bins.empty:
                continue
            answered = any(other == host for _, other, _ in ends)
            # on the same direction of the ports, for the flows of the other
            sacks = sack_share(fabric) if answered else 0.0
            for phase in host_phases:
                if phase.end - phase.begin < JUDGED_RTTS * rtt:
                    continue
                expected = len(phase.live) / fabric.planes / (1 + sacks)
                share = mean_share(bins, line, phase.begin + SETTLE_RTTS * rtt, phase.end)
                settled = None
                if expected:
                    edge = len(phase.live) * fabric.mtu
                    settled = settled_ns(
                        bins, line, expected, phase.begin, phase.end, SLIDING_RTTS * rtt, edge
                    )
                rows.append(
                    summary.PortPhase(
                        host=f"h{host}",
                        direction=direction,
                        phase="down" if phase.down else "up",
                        planes=list(phase.down or phase.up),
                        at_ns=phase.begin,
                        until_ns=phase.end,
                        live=len(phase.live),
                        expected=expected,
                        share=share,
                        error=None if share is None or not expected else abs(share / expected - 1),
                        settled_rtts=None if settled is None else settled / rtt,
                    )
                )
    return rows


def plane_loads(failures: Failures) -> list[summary.PlaneLoad]:
    """Compare first transmissions per plane with equal shares for live planes, while some port was
    down. A row for each host whose ports changed and each sender: itself, and hosts that send only
    to it. ``deviation``: the largest over planes with an equal share of 1,000 packets or more."""
    run, pairs = failures.run, failures.pairs
    fabric, rtt = run.fabric, run.base_rtt_ns
    rows = []
    for host in sorted(run.record.ranks):
        reduced_phases = [p for p in phases(failures, host) if 0 < len(p.live) < fabric.planes]
        senders = {a for a, _ in pairs if a == host} | {
            a for a, b in pairs if b == host and sum(x == a for x, _ in pairs) == 1
        }
        for sender in sorted(senders) if reduced_phases else ():
            sent, equal = [0.0] * fabric.planes, [0.0] * fabric.planes
            for phase in reduced_phases:
                bins = run.goodput[(run.goodput["host"] == sender)]
                inside = (bins["t_ns"] >= phase.begin + SETTLE_RTTS * rtt) & (
                    bins["t_ns"] + bins["bin_ns"] <= phase.end
                )
                packets = bins[inside].groupby("plane")["tx_bytes"].sum() / fabric.mtu
                total = float(packets.sum())
                for plane in range(fabric.planes):
                    sent[plane] += float(packets.get(plane, 0.0))
                for plane in phase.live:
                    equal[plane] += total / len(phase.live)
            deviations = [
                abs(count / fair - 1)
                for count, fair in zip(sent, equal, strict=True)
                if fair >= FEWEST_PACKETS
            ]
            rows.append(
                summary.PlaneLoad(
                    host=f"h{host}",
                    sender=f"h{sender}",
                    packets=[round(n) for n in sent],
                    equal=[round(n) for n in equal],
                    deviation=max(deviations, default=None),
                )
            )
    return rows


def fill(entry: summary.Run, failures: Failures) -> None:
    rows = rows_of(failures) if failures.run.named_flows else []
    if not rows:
        return
    loads = plane_loads(failures)
    down, up = ([row for row in rows if row.phase == phase] for phase in ("down", "up"))
    entry.ports, entry.plane_loads = rows, loads
    entry.port_down_error = worst_of([row.error for row in down])
    entry.port_down_rtts = worst_of([row.settled_rtts for row in down])
    entry.port_back_error = worst_of([row.error for row in up])
    entry.port_back_rtts = worst_of([row.settled_rtts for row in up])
    entry.plane_deviation = max(
        (row.deviation for row in loads if row.deviation is not None), default=None
    )
