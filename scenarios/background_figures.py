"""What background traffic did, from the JSON that iperf3 left at both its ends, and what theory leaves a workload beside it.

Called by scenarios.summary and, for what went wrong, by scenarios.background_run. Reads files; never a network. The client's file has
what was sent; of what arrived only the server knows for sure, since a client that is told to end early never hears of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from topologies import Fabric
from topologies.paths import path_links
from topologies.theory import COLLECTIVES, bus_bandwidth

CUT = ("interrupt - the client has terminated", "the client has terminated")
"""What either end of iperf3 3.12 calls an error when we end a flow with its run; later versions add words behind it."""
_FIGURES = ("sent_bps", "received_bps", "lost_percent", "jitter_ms", "retransmits", "seconds")


def read_json(path: Path) -> dict[str, Any]:
    """One end's report; {"error": why} where there is none to read."""
    try:
        made = json.loads(path.read_text(encoding="utf-8", errors="replace") or "{}")
    except FileNotFoundError:
        return {"error": "it was not started"}
    except ValueError:
        return {"error": "iperf3 left no whole report"}
    return made if isinstance(made, dict) and made else {"error": "iperf3 left no report"}


def complaint(directory: Path, name: str, cut: bool) -> str:
    """Why a flow's figures are missing or not what was asked; "" if all is well. ``cut``: it was we who ended it."""
    for ending, whose in (("", "client"), ("-server", "server")):
        said = str(read_json(directory / f"iperf3-{name}{ending}.json").get("error", ""))
        if said and not (cut and said.startswith(CUT)):
            return f"iperf3's {whose} says: {said}"
    return ""


def flow_figures(directory: Path, name: str) -> dict[str, Any]:
    """``sent_bps``, ``received_bps`` (payload over the sender's seconds), ``lost_percent`` and ``jitter_ms`` (UDP), ``retransmits``
    (TCP), ``seconds``; None where iperf3 told nothing.

    Lost is what was sent and did not arrive, in bytes: iperf3's own count leaves out what is missing at the end.
    """
    client, server = (read_json(directory / f"iperf3-{name}{ending}.json").get("end", {}) for ending in ("", "-server"))
    sent, got = client.get("sum_sent", {}), server.get("sum_received", {})
    made: dict[str, Any] = dict.fromkeys(_FIGURES)
    seconds = sent.get("seconds")
    if not seconds:
        return made
    made |= {"seconds": seconds, "sent_bps": sent["bytes"] * 8 / seconds, "retransmits": sent.get("retransmits")}
    if "bytes" in got:
        made["received_bps"] = got["bytes"] * 8 / seconds
        if "jitter_ms" in got:
            made["jitter_ms"] = got["jitter_ms"]
            made["lost_percent"] = 100 * max(0, sent["bytes"] - got["bytes"]) / sent["bytes"] if sent["bytes"] else None
    return made


def taken(fabric: Fabric, flows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """(link, node that it leaves) -> bits/s that flows of a known rate take there, as on the wire."""
    made: dict[tuple[str, str], float] = {}
    for flow in flows:
        at = f"h{flow['src']}"
        for link in path_links(fabric, flow["src"], flow["dst"], flow["ev"]):
            made[link.name, at] = made.get((link.name, at), 0.0) + flow["wire_bps"]
            at = link.b.node if at == link.a.node else link.a.node
    return made


def figures(record: dict[str, Any], fabric: Fabric, directory: Path) -> dict[str, Any]:
    """``background``, one entry per flow, ``background_sent_share``, the least of what was sent over what was asked (None without a rate or
    where one told nothing), and ``beside_background_busbw_bps``, of flows that all have a rate; {} of a run without any."""
    flows = record.get("background", [])
    if not flows:
        return {}
    told = [
        {
            "name": f["name"], "protocol": f["protocol"], "src": f"h{f['src']}", "dst": f"h{f['dst']}", "path": f["path"],
            **flow_figures(directory, f["name"]), "rate_bps": f["rate_bps"],
        }
        for f in flows
    ]  # fmt: skip
    left = None
    if record["workload"] in COLLECTIVES and all(flow["wire_bps"] is not None for flow in flows):
        left = bus_bandwidth(fabric, record["workload"], record["ranks"], taken=taken(fabric, flows))
    rated = [f for f in told if f["rate_bps"] is not None]
    silent = any(f["sent_bps"] is None for f in rated)
    least = None if silent else min((f["sent_bps"] / f["rate_bps"] for f in rated), default=None)
    return {"background": told, "background_sent_share": least, "beside_background_busbw_bps": left}
