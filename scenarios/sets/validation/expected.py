"""Computes a case's figures by theory: serialisation, the filling of paths, fair shares.

It uses only the record of a run (fabric, workload, reported paths). These are ideals: nothing
collides, no window is too small, hosts take no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scenarios.sets.validation.observed import PERCENTILES, Seen
from testbed.results.record import Flow, PathRow, Record
from testbed.results.summary import Run
from topologies import Fabric
from topologies.paths import path_links
from topologies.theory import bus_bandwidth, bus_factor, ring_edges, sack_share, traffic_bandwidth
from topologies.timing import Cable, all_to_all_step_ns, fair_shares, idle_message_ns, ring_step_ns


def expected(
    record: Record, slices: int, outstanding: int, summary: Run | None = None
) -> dict[str, Seen]:
    """``record``: run.json, which lacks ``slices`` and ``outstanding``. ``summary``: the run's
    entry."""
    fabric, hosts, size, kind = record.fabric, record.ranks, record.message_bytes, record.workload
    if record.flows:
        ideals = _flows(fabric, hosts, record.flows, size, outstanding)
    elif kind == "ring-allreduce":
        ideals = _ring(fabric, hosts, record, size, slices)
    elif kind == "all-to-all":
        step = all_to_all_step_ns(fabric, len(hosts), size, bus_bandwidth(fabric, kind, hosts))
        ideals = _steps(step, size * bus_factor(kind, len(hosts)))
    else:
        ideals = {}
    if record.fault_links:
        return _failure(fabric, hosts, record, size, slices, summary, ideals)
    if record.kind == "mrc" and fabric.trimming:  # a queue is trimmed long before it is full
        ideals["lost"] = Seen(0.0)
    return ideals


def _steps(step_ns: float, moved_bytes: float) -> dict[str, Seen]:
    return {"p50": Seen(step_ns), "goodput": Seen(moved_bytes * 8e9 / step_ns)}


def _ring(
    fabric: Fabric, hosts: Sequence[int], record: Record, size: int, slices: int
) -> dict[str, Seen]:
    edges = ring_edges(hosts)
    if not all(crosses(fabric, *edge) for edge in edges):
        return {}  # for rings of long and short edges there is no closed form here
    moved = bus_factor("ring-allreduce", len(hosts)) * size
    if record.kind == "mrc":
        rate = bus_bandwidth(fabric, "ring-allreduce", hosts)
    else:
        routes = single_paths(fabric, edges, record.host_paths)
        if routes is None:
            return {}
        shares = fair_shares(routes, {link.name: link.rate for link in fabric.links})
        # every chunk passes every edge: the slowest sets the pace
        rate = min(shares.values()) * fabric.payload_share
    return _steps(ring_step_ns(fabric, len(hosts), size, slices, rate), moved)


def _failure(
    fabric: Fabric,
    hosts: Sequence[int],
    record: Record,
    size: int,
    slices: int,
    summary: Run | None,
    healthy: dict[str, Seen],
) -> dict[str, Seen]:
    if "p50" not in healthy or record.kind != "mrc":
        return {}
    step_ns = healthy["p50"].value
    left_bps = bus_bandwidth(fabric, "ring-allreduce", hosts, record.fault_links)
    outages = [
        outage for fault in (summary.failovers if summary else ()) for outage in fault.outages_ns
    ]
    spans = [end - begin for begin, end in outages if end is not None]
    if not left_bps or len(spans) < len(outages):
        return {"healthy": Seen(step_ns)}
    slow_ns = ring_step_ns(fabric, len(hosts), size, slices, left_bps)
    return {"healthy": Seen(step_ns), "cost": Seen(sum(spans) * (1 - step_ns / slow_ns))}


def _flows(
    fabric: Fabric, hosts: Sequence[int], flows: Sequence[Flow], size: int, outstanding: int
) -> dict[str, Seen]:
    pairs = [(hosts[flow.src], hosts[flow.dst]) for flow in flows]
    rate = traffic_bandwidth(fabric, dict.fromkeys(pairs, 1.0))  # of each flow, all equal
    both_ways = {a for a, _ in pairs} & {b for _, b in pairs}
    rate /= 1 + (sack_share(fabric) if both_ways else 0.0)
    local = not any(crosses(fabric, *pair) for pair in pairs)
    alone_ns = idle_message_ns(fabric, local, size)
    filling_ns = outstanding * size * 8e9 / rate
    if outstanding == 1 and alone_ns > size * 8e9 / rate:  # no message waits for another
        return {
            **{id: Seen(alone_ns) for id in PERCENTILES},
            "goodput": Seen(len(pairs) * size * 8e9 / alone_ns),
            "trimmed": Seen(0.0),
        }
    ideals = {"goodput": Seen(len(pairs) * rate)}
    # Little's law gives the time of a message: bytes in flight over the rate
    if filling_ns > alone_ns:
        ideals["p50"] = Seen(filling_ns)
    return ideals


def crosses(fabric: Fabric, a: int, b: int) -> bool:
    return fabric.t0_of(a) != fabric.t0_of(b)


def single_paths(
    fabric: Fabric, edges: Sequence[tuple[int, int]], paths: Mapping[int, Sequence[PathRow]]
) -> dict[tuple[int, int, int], list[Cable]] | None:
    """Return (sender, receiver, queue pair) -> (cable, sending node); None if an agent reported no
    path."""
    routes: dict[tuple[int, int, int], list[Cable]] = {}
    for a, b in edges:
        rows = [row for row in paths.get(a, ()) if row.peer == b and row.ev is not None]
        if not rows:
            return None
        for row in rows:
            node, cables = f"h{a}", []
            for link in path_links(fabric, a, b, row.ev or 0):
                cables.append((link.name, node))
                node = link.b.node if node == link.a.node else link.a.node
            routes[a, b, row.qpn or 0] = cables
    return routes
