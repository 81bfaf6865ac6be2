"""Background traffic's part of the ports' counters, so that a run's books tell of its workload alone.

Switches and hosts' ports know its frames by their inner addresses and count them apart (testbed/dataplane/fabric.bpf.c). Called by
scenarios.figures.measure on rows that are differences over a run. Pure.
"""

from __future__ import annotations

from typing import Any

from testbed.dataplane.layout import BACKGROUND_WORDS

_OF_ALL = {"drop_tail": "drop_tail_packets", "drop_link_down": "drop_link_down_packets"}
_CAUSES = tuple(name for name in BACKGROUND_WORDS if name.startswith("drop_"))
_BY_REMAINDER = ("flushed_packets", "drop_bridge", "drop_link_down_packets")
"""Losses that nobody sees frame by frame: a queue that went with its link; an Open vSwitch bridge that was too slow, or that sent to a port
which was down."""


def of_host(row: dict[str, Any]) -> bool:
    """Whether a row is of a host's own port."""
    return str(row.get("node", "")).startswith("h")


def take_out_background(ports: list[dict[str, Any]]) -> dict[str, Any] | None:
    """An account of background traffic, in packets: sent = delivered + lost (by cause) + unexplained; None without any.

    Its drops are taken out of the rows. What nobody saw go is told by what is missing, up to what was lost in such ways at all: more is
    unexplained, and frames of the workload that were taken for background's would be missing there.
    """
    if not any("background_left" in row for row in ports):
        return None
    sent, delivered = (sum(int(row.get(f"background_{word}", 0)) for row in ports) for word in ("left", "arrived"))
    causes: dict[str, int] = {}

    def take(row: dict[str, Any], column: str, n: int) -> None:
        if n:
            row[column] = int(row.get(column, 0)) - n
            name = column.removesuffix("_packets")
            causes[name] = causes.get(name, 0) + n

    for row in ports:
        for name in _CAUSES:
            take(row, _OF_ALL.get(name, name), int(row.get(f"background_{name}", 0)))
        row["corrupted"] = int(row.get("corrupted", 0)) - int(row.get("background_corrupted", 0))
    for column in _BY_REMAINDER:
        for row in ports:
            take(row, column, max(0, min(sent - delivered - sum(causes.values()), int(row.get(column, 0)))))
    lost = sum(causes.values())
    return {"sent": sent, "delivered": delivered, "lost": lost, "unexplained": sent - delivered - lost, "causes": causes}


def balanced(packets: dict[str, Any]) -> bool:
    """Whether a run's books leave nothing open, background traffic's account included."""
    return bool(packets["unexplained"] == 0) and not packets.get("background", {}).get("unexplained")
