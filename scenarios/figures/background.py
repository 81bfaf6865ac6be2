"""What background traffic did, from the JSON that iperf3 left at both its ends, and what theory leaves a workload beside it.

Called by scenarios.figures.summary. Reads files; never a network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.emulated.iperf_report import flow_figures
from topologies import Fabric
from topologies.paths import path_links
from topologies.theory import COLLECTIVES, bus_bandwidth


def taken(fabric: Fabric, flows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """(link, node that it leaves) -> bits/s that flows of a known rate take there, as on the wire."""
    rates: dict[tuple[str, str], float] = {}
    for flow in flows:
        node = f"h{flow['src']}"
        for link in path_links(fabric, flow["src"], flow["dst"], flow["ev"]):
            rates[link.name, node] = rates.get((link.name, node), 0.0) + flow["wire_bps"]
            node = link.b.node if node == link.a.node else link.a.node
    return rates


def figures(record: dict[str, Any], fabric: Fabric, directory: Path) -> dict[str, Any]:
    """``background``, one entry per flow, ``background_sent_share``, the least of what was sent over what was asked (None without a rate or
    where one told nothing), and ``beside_background_busbw_bps``, of flows that all have a rate; {} of a run without any."""
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
        busbw_bps = bus_bandwidth(fabric, record["workload"], record["ranks"], taken=taken(fabric, flows))
    rated = [f for f in rows if f["rate_bps"] is not None]
    incomplete = any(f["sent_bps"] is None for f in rated)
    sent_share = None if incomplete else min((f["sent_bps"] / f["rate_bps"] for f in rated), default=None)
    return {"background": rows, "background_sent_share": sent_share, "beside_background_busbw_bps": busbw_bps}
