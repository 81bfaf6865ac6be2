"""The table of background traffic: one line per flow and run. Used by the terminal and report.html; reads summaries only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
NOTE = (
    "Background traffic is iperf3's, of the hosts' kernels; Gb/s are payload over its sender's time, of TCP with what still lay in the "
    "sender's buffer at the end. The bus bandwidth that theory leaves a collective beside it is under beside_background_busbw_bps."
)


def _number(key: str, form: str, scale: float = 1.0) -> Callable[[Row], str]:
    return lambda row: "–" if row[key] is None else format(row[key] / scale, form)


COLUMNS: list[tuple[str, Callable[[Row], str]]] = [
    ("flow", lambda b: f"{b['name']} beside {b['transport']}"),
    ("from–to", lambda b: f"{b['src']}–{b['dst']}"),
    ("path", lambda b: f"{b['protocol']} {b['path']}"),
    ("sent\nGb/s", _number("sent_bps", ".1f", 1e9)),
    ("arrived\nGb/s", _number("received_bps", ".1f", 1e9)),
    ("lost\n%", _number("lost_percent", ".1f")),
    ("jitter\nwall ms", _number("jitter_ms", ".1f")),
    ("sent\nagain", _number("retransmits", ".0f")),
    ("wall\ns", _number("seconds", ".1f")),
]


def background_rows(runs: Sequence[Row]) -> list[Row]:
    """List all background flows of all runs, in their order, with the transport of the run."""
    return [{"transport": run["transport"], **flow} for run in runs for flow in run.get("background", [])]
