"""Keeps the books of a run, in packets: where each one went, from the agents' and the ports' counters, without and with background traffic.

Switches and host ports recognise background frames by their inner addresses and count them separately (testbed/dataplane/fabric.bpf.c);
they are taken out of the rows, so that a run's books cover only its workload. Pure; needs no pandas, which a run imports for its tables.
"""

from __future__ import annotations

from typing import Any

from agents.kernel.options import KINDS as KERNEL_KINDS
from testbed.dataplane.counters import books as cable_books
from testbed.dataplane.counters import mean_backlog
from testbed.dataplane.layout import BACKGROUND_WORDS, SWITCH_DROPS

DROPS = ("drop_tail_packets", "drop_link_down_packets", "drop_trim_failed", *SWITCH_DROPS, "drop_bridge", "drop_trunk", "flushed_packets")
"""Port counters of dropped packets, by cause. A trimmed packet is forwarded, so it is not among them."""
DROPS_AT_SENDING = ("drop_tail_packets", "drop_link_down_packets")
"""The drops that egress counts within the sender's system call."""
DROPS_AT_ARRIVAL = ("drop_fault_loss", "drop_fault_path")
"""Packets that injected faults drop at a host port after they were counted as arrived there."""
AGENT_DROPS = ("tx_refused", "rx_ring_drops")
"""Agent counters of dropped packets: refused by the kernel (port down), dropped by the receive socket."""
_PORT_KEYS = ("port", "node", "peer", "link", "plane", "kind")
_GAUGES = (
    "backlog_bytes", "backlog_packets", "backlog_mean_bytes", "backlog_peak_bytes", "backlog_high_peak_bytes", "longest_pause_ns",
    "longest_pause_reaction_ns",
)  # fmt: skip
REFUSED = ("rx_bad", "rx_refused", "rx_foreign", "rx_too_many", "rx_unsupported", "rx_not_connected")
"""Counters of frames that reached an agent and were refused. They must be 0 in a run in which no such frames are injected."""
_OF_ALL = {"drop_tail": "drop_tail_packets", "drop_link_down": "drop_link_down_packets"}
_CAUSES = tuple(name for name in BACKGROUND_WORDS if name.startswith("drop_"))
_BY_REMAINDER = ("flushed_packets", "drop_bridge", "drop_link_down_packets")
"""Counters of losses that do not distinguish background frames: a queue flushed when its link went down; an Open vSwitch bridge that was
too slow, or that sent to a port which was down."""


def of_host(row: dict[str, Any]) -> bool:
    return str(row.get("node", "")).startswith("h")


def take_out_background(ports: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Make an account of background traffic, in packets: sent = delivered + lost (by cause) + unexplained; None without background traffic.
    Its drops are subtracted from the rows. Losses that the counters of :data:`_BY_REMAINDER` hold are the packets still missing, but no
    more than these counters show; the rest is unexplained. Workload frames mistaken for background frames would be missing there."""
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
    """Say whether a run's books leave no packet unexplained, in the account of background traffic as well."""
    return bool(packets["unexplained"] == 0) and not packets.get("background", {}).get("unexplained")


def port_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the counters of each port over a run: the value after it, less the value before it."""
    before = {row["port"]: row for row in record.get("counters_before", [])}
    rows = []
    for row in record.get("counters_after", []):
        earlier = before.get(row["port"], {})
        difference = {k: v if k in _PORT_KEYS or k in _GAUGES else v - earlier.get(k, 0) for k, v in row.items()}
        if "met_packets" in difference:  # the mean is over packets of this run
            difference["backlog_mean_bytes"] = mean_backlog(difference)
        if "backlog_peak_bytes" in difference:  # of the fabric's whole life: known for this run only if it raised it
            peak = int(difference["backlog_peak_bytes"])
            difference["raised_peak_bytes"] = peak if peak > int(earlier.get("backlog_peak_bytes", 0)) else None
        rows.append(difference)
    return rows


def port_peaks(record: dict[str, Any]) -> dict[str, int]:
    """Return port -> largest backlog in this run, bytes, from the counters. Counters keep the peak for the fabric's whole life, so a port
    has no entry if an earlier run had a backlog as large."""
    before = {row["port"]: int(row.get("backlog_peak_bytes", 0)) for row in record.get("counters_before", [])}
    after = {row["port"]: int(row.get("backlog_peak_bytes", 0)) for row in record.get("counters_after", [])}
    return {port: peak for port, peak in after.items() if peak > before.get(port, 0) or not before.get(port, 0)}


def books(record: dict[str, Any]) -> dict[str, Any]:
    """Make the books of a run, in packets: sent = delivered + lost (by cause) + on_the_way + unexplained. ``on_the_way``: in a port's queue
    or in a delay line when the books were closed. Background traffic has an account of its own."""
    agents = list(record.get("agent_counters", {}).values())
    ports = port_rows(record)
    background = take_out_background(ports)

    def total(key: str) -> int:
        return sum(int(c.get(key, 0)) for c in agents)

    causes = {key.removesuffix("_packets"): sum(int(row.get(key, 0)) for row in ports) for key in DROPS}
    causes |= {key: total(key) for key in AGENT_DROPS}
    # The kernel reports a drop at a host's port to the sending agent as well: that loss is in both counters.
    refused_at_ports = sum(int(row.get(key, 0)) for row in ports if of_host(row) for key in DROPS_AT_SENDING)
    causes["tx_refused"] = max(0, causes["tx_refused"] - refused_at_ports)
    sent, delivered, lost = total("tx_packets"), total("rx_packets"), sum(causes.values())
    if record.get("kind") in KERNEL_KINDS:
        sent, delivered = kernel_frames(port_rows(record))
    on_the_way = total("rx_waiting") + sum(int(row.get("backlog_packets", 0)) for row in ports)
    return {
        "sent": sent,
        "delivered": delivered,
        "retransmitted": total("retransmitted"),
        "marked": sum(int(row.get("marked", 0)) for row in ports),
        "trimmed": sum(int(row.get("trimmed", 0)) for row in ports),
        "corrupted": sum(int(row.get("corrupted", 0)) for row in ports),
        "lost": lost,
        "on_the_way": on_the_way,
        "unexplained": sent - delivered - lost - on_the_way if agents and ports else None,
        "causes": {cause: n for cause, n in causes.items() if n},
        "rejected": {k: total(k) for k in sorted({k for c in agents for k in c if k.startswith(REFUSED)}) if total(k)},
        **({} if background is None else {"background": background}),
    }


def kernel_frames(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Return (sent, delivered) of a run on the kernel's sockets, whose agents see no frames: the frames that the hosts' kernels handed to
    their ports and received from them. ``rows`` include background traffic, whose frames do not arrive if a fault drops them at a host
    port."""
    sent = delivered = 0
    for row in filter(of_host, rows):
        sent += sum(int(row.get(key, 0)) for key in ("admitted_packets", *DROPS_AT_SENDING, "drop_trim_failed"))
        sent -= int(row.get("background_left", 0))
        delivered += int(row.get("arrived_packets", 0)) - int(row.get("background_arrived", 0))
        delivered -= sum(int(row.get(key, 0)) for key in DROPS_AT_ARRIVAL)
    return sent, delivered


def cable_gaps(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Find cables and switches whose books do not balance over a run that ended well; [] if all balance, or without counters."""
    rows = port_rows(record)
    if record.get("outcome") != "done" or not all("admitted_bytes" in row and "peer" in row for row in rows):
        return []
    return cable_books(rows)
