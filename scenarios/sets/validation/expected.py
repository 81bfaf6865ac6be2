"""What theory says of a case's figures: serialisation, the filling of paths, fair shares. What it cannot say is left out.

From a run's record alone (fabric, workload, the paths that its agents told), so that results stand by themselves. Ideals: nothing
collides, no window is too small, hosts take no time. What parts from them is therefore above in times and below in rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scenarios.sets.validation.observed import PERCENTILES, Seen
from topologies import Fabric
from topologies.paths import path_links
from topologies.theory import bus_bandwidth, bus_factor, ring_edges, sack_share, traffic_bandwidth
from topologies.timing import Cable, all_to_all_step_ns, fair_shares, idle_message_ns, ring_step_ns

Record = Mapping[str, Any]


def expected(record: Record, slices: int, outstanding: int, summary: Mapping[str, Any] | None = None) -> dict[str, Seen]:
    """Figure -> ideal. ``record``: run.json; what it does not hold of the workload is given. ``summary``: the run's entry."""
    fabric, hosts = Fabric.from_dict(record["fabric"]), list(record["ranks"])
    size, kind = int(record["message_bytes"]), record["workload"]
    if record.get("flows"):
        made = _flows(fabric, hosts, record["flows"], size, outstanding)
    elif kind == "ring-allreduce":
        made = _ring(fabric, hosts, record, size, slices)
    elif kind == "all-to-all":
        step = all_to_all_step_ns(fabric, len(hosts), size, bus_bandwidth(fabric, kind, hosts))
        made = _steps(step, size * bus_factor(kind, len(hosts)))
    else:
        made = {}
    if record["fault_links"]:
        return _failure(fabric, hosts, record, size, slices, summary or {}, made)
    if record["kind"] == "mrc" and fabric.trimming:  # a queue is trimmed long before it is full
        made["lost"] = Seen(0.0)
    return made


def _steps(step_ns: float, moved_bytes: float) -> dict[str, Seen]:
    return {"p50": Seen(step_ns), "goodput": Seen(moved_bytes * 8e9 / step_ns)}


def _ring(fabric: Fabric, hosts: Sequence[int], record: Record, size: int, slices: int) -> dict[str, Seen]:
    edges = ring_edges(hosts)
    if not all(crosses(fabric, *edge) for edge in edges):
        return {}  # rings of long and short edges have no closed form here
    moved = bus_factor("ring-allreduce", len(hosts)) * size
    if record["kind"] == "mrc":
        rate = bus_bandwidth(fabric, "ring-allreduce", hosts)
    else:
        routes = single_paths(fabric, edges, record["paths"])
        if routes is None:
            return {}
        shares = fair_shares(routes, {link.name: link.rate for link in fabric.links})
        rate = min(shares.values()) * fabric.payload_share  # every chunk passes every edge: the slowest sets the pace
    return _steps(ring_step_ns(fabric, len(hosts), size, slices, rate), moved)


def _failure(
    fabric: Fabric, hosts: Sequence[int], record: Record, size: int, slices: int, summary: Mapping[str, Any], healthy: dict[str, Seen]
) -> dict[str, Seen]:
    """A ring's healthy step, and the time it loses while cables are dead: of an outage what steps of then are longer, if nobody had to
    find out."""
    if "p50" not in healthy or record["kind"] != "mrc":
        return {}
    step = healthy["p50"].value
    left = bus_bandwidth(fabric, "ring-allreduce", hosts, record["fault_links"])
    outages = [outage for fault in summary.get("failovers", ()) for outage in fault["outages_ns"]]
    if not left or None in [end for _, end in outages]:
        return {"healthy": Seen(step)}
    slow = ring_step_ns(fabric, len(hosts), size, slices, left)
    return {"healthy": Seen(step), "cost": Seen(sum(end - begin for begin, end in outages) * (1 - step / slow))}


def _flows(fabric: Fabric, hosts: Sequence[int], flows: Sequence[Mapping[str, Any]], size: int, outstanding: int) -> dict[str, Seen]:
    pairs = [(hosts[flow["src"]], hosts[flow["dst"]]) for flow in flows]
    rate = traffic_bandwidth(fabric, dict.fromkeys(pairs, 1.0))  # of each flow: all alike
    both_ways = {a for a, _ in pairs} & {b for _, b in pairs}
    rate /= 1 + (sack_share(fabric) if both_ways else 0.0)
    local = not any(crosses(fabric, *pair) for pair in pairs)
    alone = idle_message_ns(fabric, local, size)
    filling = outstanding * size * 8e9 / rate
    if outstanding == 1 and alone > size * 8e9 / rate:  # nobody waits for anybody
        return {
            **{id: Seen(alone) for id in PERCENTILES},
            "goodput": Seen(len(pairs) * size * 8e9 / alone),
            "trimmed": Seen(0.0),
        }
    made = {"goodput": Seen(len(pairs) * rate)}
    if filling > alone:  # then a message's time is Little's law: so many in flight, at this rate
        made["p50"] = Seen(filling)
    return made


def crosses(fabric: Fabric, a: int, b: int) -> bool:
    """Whether two hosts are under different T0s."""
    return fabric.t0_of(a) != fabric.t0_of(b)


def single_paths(
    fabric: Fabric, edges: Sequence[tuple[int, int]], told: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[tuple[int, int, int], list[Cable]] | None:
    """(sender, receiver, queue pair) -> cables and who sends on them, as agents told their paths; None if one of them did not."""
    routes: dict[tuple[int, int, int], list[Cable]] = {}
    for a, b in edges:
        rows = [row for row in told.get(str(a), ()) if row.get("peer") == b]
        if not rows:
            return None
        for row in rows:
            at, cables = f"h{a}", []
            for link in path_links(fabric, a, b, int(row["ev"])):
                cables.append((link.name, at))
                at = link.b.node if at == link.a.node else link.a.node
            routes[a, b, int(row.get("qpn", 0))] = cables
    return routes
