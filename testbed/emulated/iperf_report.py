"""Reads what iperf3 left at the two ends of a flow: ``<stem>.json`` is the client's,
``<stem>-server.json`` the server's.

Only the server knows for sure what arrived: a client that is told to end early never hears of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.clock import WallClock
from topologies.units import S

CUT = (
    "interrupt - the client has terminated",
    "the client has terminated",
    "interrupt - the server has terminated",
)
"""Errors of iperf3 3.12 when we end a flow with its run; later versions append words."""
_FIGURES = ("sent_bps", "received_bps", "lost_percent", "jitter_ms", "retransmits", "seconds")


def read_json(path: Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_text(encoding="utf-8", errors="replace") or "{}")
    except FileNotFoundError:
        return {"error": "it was not started"}
    except ValueError:
        return {"error": "iperf3 left no whole report"}
    return report if isinstance(report, dict) and report else {"error": "iperf3 left no report"}


def complaint(stem: Path, cut: bool) -> str:
    for ending, role in (("", "client"), ("-server", "server")):
        message = str(read_json(Path(f"{stem}{ending}.json")).get("error", ""))
        if message and not (cut and message.startswith(CUT)):
            return f"iperf3's {role} says: {message}"
    return (
        ""
        if flow_figures(stem)["sent_bps"] is not None
        else "it was ended before it had sent anything: its path may be dead"
    )


def flow_figures(stem: Path) -> dict[str, Any]:
    """Return ``sent_bps``, ``received_bps`` (payload, network time), ``lost_percent`` and
    ``jitter_ms`` (UDP), ``retransmits`` (TCP), ``seconds``; None where iperf3 reports nothing.
    Seconds and jitter are wall time. Lost is the share of sent bytes that did not arrive: iperf3's
    own count omits what is missing at the end."""
    reports = [read_json(Path(f"{stem}{ending}.json")) for ending in ("", "-server")]
    client, server = (report.get("end", {}) for report in reports)
    sent, received = client.get("sum_sent", {}), server.get("sum_received", {})
    figures: dict[str, Any] = dict.fromkeys(_FIGURES)
    seconds = sent.get("seconds")
    if not seconds:
        return figures
    # which testbed.emulated.iperf_flows had it keep
    clock = WallClock(**json.loads(reports[0].get("extra_data", "{}")))
    bps = 8 / (clock.span(seconds * 1e9) / S)  # of a byte
    figures |= {
        "seconds": seconds,
        "sent_bps": sent["bytes"] * bps,
        "retransmits": sent.get("retransmits"),
    }
    if "bytes" in received:
        figures["received_bps"] = received["bytes"] * bps
        if "jitter_ms" in received:
            figures["jitter_ms"] = received["jitter_ms"]
            figures["lost_percent"] = (
                100 * max(0, sent["bytes"] - received["bytes"]) / sent["bytes"]
                if sent["bytes"]
                else None
            )
    return figures
