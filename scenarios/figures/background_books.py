"""The share of background traffic in the ports' counters, which is taken out so that a run's books cover only its workload.

Switches and host ports recognise its frames by their inner addresses and count them separately (testbed/dataplane/fabric.bpf.c). Called by
scenarios.figures.measure on counters over one run (end minus begin). Pure.
"""

from __future__ import annotations

from typing import Any

from testbed.dataplane.layout import BACKGROUND_WORDS

_OF_ALL = {"drop_tail": "drop_tail_packets", "drop_link_down": "drop_link_down_packets"}
_CAUSES = tuple(name for name in BACKGROUND_WORDS if name.startswith("drop_"))
_BY_REMAINDER = ("flushed_packets", "drop_bridge", "drop_link_down_packets")
"""Counters of losses that do not distinguish background frames: a queue flushed when its link went down; an Open vSwitch bridge that was
too slow, or that sent to a port which was down."""


def of_host(row: dict[str, Any]) -> bool:
    """Whether a row belongs to a port of a host."""
    return str(row.get("node", "")).startswith("h")


def take_out_background(ports: list[dict[str, Any]]) -> dict[str, Any] | None:
    """An account of background traffic, in packets: sent = delivered + lost (by cause) + unexplained; None without background traffic.

    Its drops are subtracted from the rows. Losses that the counters of :data:`_BY_REMAINDER` hold are the packets still missing, but no
    more than these counters show; the rest is unexplained. Workload frames mistaken for background frames would be missing there.
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
    """Whether a run's books leave no packet unexplained, in the account of background traffic as well."""
    return bool(packets["unexplained"] == 0) and not packets.get("background", {}).get("unexplained")
