"""Computes figures of background traffic, from the JSON files of iperf3's client and server, and what theory leaves a workload beside it.

Called by scenarios.figures.summary. Reads files, never a network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.emulated.iperf_report import flow_figures
from topologies import Fabric
from topologies.paths import path_links
from topologies.theory import COLLECTIVES, bus_bandwidth


def link_rates(fabric: Fabric, flows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Return (link, sending node) -> bits/s on the wire that the flows occupy there. All flows have a known rate."""
    rates: dict[tuple[str, str], float] = {}
    for flow in flows:
        node = f"h{flow['src']}"
        for link in path_links(fabric, flow["src"], flow["dst"], flow["ev"]):
            rates[link.name, node] = rates.get((link.name, node), 0.0) + flow["wire_bps"]
            node = link.b.node if node == link.a.node else link.a.node
    return rates


def figures(record: dict[str, Any], fabric: Fabric, directory: Path) -> dict[str, Any]:
    """Return the keys of background traffic in a run's entry of summary.json; {} for a run without background traffic. ``background``: one
    entry per flow. ``background_sent_share``: the least ratio of the sent to the configured rate; None if no flow has a rate, or if a flow
    with a rate has no report. ``beside_background_busbw_bps``: the bus bandwidth that is left; None unless all flows have a rate."""
    flows = record.get("background", [])
    if not flows:
        return {}
    rows = [
        {
            "name": f["name"], "protocol": f["protocol"], "src": f"h{f['src']}", "dst": f"h{f['dst']}", "path": f["path"],
            **flow_figures(directory / f"iperf3-{f['name']}"), "rate_bps": f["rate_bps"],
        }
        for f in flows
    ]  # fmt: skip
    busbw_bps = None
    if record["workload"] in COLLECTIVES and all(flow["wire_bps"] is not None for flow in flows):
        busbw_bps = bus_bandwidth(fabric, record["workload"], record["ranks"], taken=link_rates(fabric, flows))
    rated = [f for f in rows if f["rate_bps"] is not None]
    incomplete = any(f["sent_bps"] is None for f in rated)
    sent_share = None if incomplete else min((f["sent_bps"] / f["rate_bps"] for f in rated), default=None)
    return {"background": rows, "background_sent_share": sent_share, "beside_background_busbw_bps": busbw_bps}
