"""Computes figures of background traffic from iperf3's files, and what theory leaves a workload
beside it."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.figures.measure import Run
from testbed.emulated.iperf_report import flow_figures
from testbed.results import summary
from testbed.results.record import Background
from topologies import Fabric
from topologies.paths import path_links
from topologies.theory import COLLECTIVES, bus_bandwidth


def link_rates(fabric: Fabric, flows: Sequence[Background]) -> dict[tuple[str, str], float]:
    rates: dict[tuple[str, str], float] = {}
    for flow in flows:
        node = f"h{flow.src}"
        for link in path_links(fabric, flow.src, flow.dst, flow.ev):
            rates[link.name, node] = rates.get((link.name, node), 0.0) + (flow.wire_bps or 0)
            node = link.b.node if node == link.a.node else link.a.node
    return rates


def fill(entry: summary.Run, run: Run) -> None:
    """Set ``background_sent_share`` only if all flows with a rate have reports,
    ``beside_background_busbw_bps`` only if all have a rate."""
    record, flows = run.record, run.record.background
    if not flows:
        return
    rows = entry.background = [
        summary.Background(
            name=flow.name,
            protocol=flow.protocol,
            src=f"h{flow.src}",
            dst=f"h{flow.dst}",
            path=flow.path,
            rate_bps=flow.rate_bps,
            **flow_figures(run.directory / f"iperf3-{flow.name}"),
        )
        for flow in flows
    ]
    entry.beside_background_busbw_bps = None
    if record.workload in COLLECTIVES and all(flow.wire_bps is not None for flow in flows):
        taken = link_rates(run.fabric, flows)
        entry.beside_background_busbw_bps = bus_bandwidth(
            run.fabric, record.workload, record.ranks, taken=taken
        )
    rated = [(row.sent_bps, row.rate_bps) for row in rows if row.rate_bps is not None]
    shares = [sent / rate for sent, rate in rated if sent is not None]
    entry.background_sent_share = min(shares, default=None) if len(shares) == len(rated) else None
