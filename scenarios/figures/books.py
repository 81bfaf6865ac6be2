"""Keeps the books of a run, in packets: where each one went, from the agents' and the ports'
counters.

Ports count background frames, which they recognise by their inner addresses, separately; the books
cover only the workload. Needs no pandas, which a run imports for its tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from agents.kernel.options import KINDS as KERNEL_KINDS
from testbed.dataplane.counters import books as cable_books
from testbed.dataplane.counters import mean_backlog
from testbed.dataplane.layout import BACKGROUND_WORDS, SWITCH_DROPS
from testbed.results.record import Counted, PortCounters
from testbed.results.summary import BackgroundPackets, Packets
from topologies.units import NS

DROPS = (
    "drop_tail_packets",
    "drop_link_down_packets",
    "drop_trim_failed",
    *SWITCH_DROPS,
    "drop_bridge",
    "drop_trunk",
    "flushed_packets",
)
"""A trimmed packet is forwarded, so it is not among them."""
# by egress, within the sender's system call
DROPS_AT_SENDING = ("drop_tail_packets", "drop_link_down_packets")
DROPS_AT_ARRIVAL = ("drop_fault_loss", "drop_fault_path")
# refused by the kernel (port down), dropped by the receive socket
AGENT_DROPS = ("tx_refused", "rx_ring_drops")
_GAUGES = (
    "plane",
    "backlog_bytes",
    "backlog_packets",
    "backlog_mean_bytes",
    "backlog_peak_bytes",
    "backlog_high_peak_bytes",
    "longest_pause_ps",
    "longest_pause_reaction_ps",
    "pool_bytes",
    "pool_peak_bytes",
)
REFUSED = (
    "rx_bad",
    "rx_refused",
    "rx_foreign",
    "rx_too_many",
    "rx_unsupported",
    "rx_not_connected",
)
_OF_ALL = {"drop_tail": "drop_tail_packets", "drop_link_down": "drop_link_down_packets"}
_CAUSES = tuple(name for name in BACKGROUND_WORDS if name.startswith("drop_"))
_BY_REMAINDER = ("flushed_packets", "drop_bridge", "drop_link_down_packets")
"""Counters that do not distinguish background frames: a queue flushed when its link went down; a
slow Open vSwitch bridge, or one that sent to a dead port."""


class PortRow(dict[str, int]):
    """A port's counts over a run (gauges: at its end), by name; 0 for what it does not count."""

    def __init__(self, after: PortCounters, before: PortCounters) -> None:
        for key, value in after.items():
            if isinstance(value, int):
                earlier = 0 if key in _GAUGES else before.get(key, 0)
                self[key] = value - (earlier if isinstance(earlier, int) else 0)
        if "met_packets" in self:  # the mean is over packets of this run
            self["backlog_mean_bytes"] = mean_backlog(self)
        self.port, self.node, self.link = (
            str(after.get(key, "")) for key in ("port", "node", "link")
        )
        self.of_host = self.node.startswith("h")
        self._after, self._peak_before = after, before.get("backlog_peak_bytes", 0)

    @cached_property
    def written(self) -> dict[str, float | str | None]:
        row: dict[str, float | str | None] = {
            key: self.get(key, value) for key, value in self._after.items() if key[-3:] != "_ps"
        }
        row |= {f"{key[:-3]}_ns": n / NS for key, n in self.items() if key[-3:] == "_ps"}
        # of the fabric's whole life: known for this run only if it raised it
        if "backlog_peak_bytes" in self:
            peak, earlier = self["backlog_peak_bytes"], self._peak_before
            row["raised_peak_bytes"] = peak if isinstance(earlier, int) and peak > earlier else None
        return row

    def __missing__(self, name: str) -> int:
        return 0


def take_out_background(ports: Sequence[PortRow]) -> BackgroundPackets | None:
    """Return the books of background traffic: sent = delivered + lost (by cause) + unexplained.

    Subtracts its drops from the rows. Of :data:`_BY_REMAINDER` at most the packets still missing
    are its own. Workload frames mistaken for background frames would be missing there.
    """
    if not any("background_left" in row for row in ports):
        return None
    sent, delivered = (
        sum(row[f"background_{word}"] for row in ports) for word in ("left", "arrived")
    )
    causes: dict[str, int] = {}

    def take(row: PortRow, column: str, n: int) -> None:
        if n:
            row[column] -= n
            name = column.removesuffix("_packets")
            causes[name] = causes.get(name, 0) + n

    for row in ports:
        for name in _CAUSES:
            take(row, _OF_ALL.get(name, name), row[f"background_{name}"])
        row["corrupted"] -= row["background_corrupted"]
    for column in _BY_REMAINDER:
        for row in ports:
            take(row, column, max(0, min(sent - delivered - sum(causes.values()), row[column])))
    lost = sum(causes.values())
    return BackgroundPackets(
        sent=sent,
        delivered=delivered,
        lost=lost,
        unexplained=sent - delivered - lost,
        causes=causes,
    )


def balanced(packets: Packets) -> bool:
    return packets.unexplained == 0 and not (packets.background and packets.background.unexplained)


def port_rows(record: Counted) -> list[PortRow]:
    before = {row["port"]: row for row in record.counters_before}
    return [PortRow(row, before.get(row["port"], {})) for row in record.counters_after]


def port_peaks(record: Counted) -> dict[str, int]:
    """Return port -> largest backlog in this run, bytes. Counters keep the fabric's peak: a port is
    missing if an earlier run had one as large."""
    before, after = (
        {str(row["port"]): int(row.get("backlog_peak_bytes", 0)) for row in rows}
        for rows in (record.counters_before, record.counters_after)
    )
    return {
        port: peak
        for port, peak in after.items()
        if peak > before.get(port, 0) or not before.get(port, 0)
    }


def books(record: Counted) -> Packets:
    """Return the books: sent = delivered + lost (by cause) + on_the_way + unexplained.
    ``on_the_way``: in a port's queue or in a delay line."""
    agents = list((record.agent_counters or {}).values())
    ports = port_rows(record)
    background = take_out_background(ports)

    def total(key: str) -> int:
        return sum(counters.get(key, 0) for counters in agents)

    def at_ports(key: str) -> int:
        return sum(row[key] for row in ports)

    causes = {key.removesuffix("_packets"): at_ports(key) for key in DROPS} | {
        key: total(key) for key in AGENT_DROPS
    }
    # The kernel reports a drop at a host's port to the sending agent as well: that loss is in both
    # counters.
    refused_at_ports = sum(row[key] for row in ports if row.of_host for key in DROPS_AT_SENDING)
    causes["tx_refused"] = max(0, causes["tx_refused"] - refused_at_ports)
    sent, delivered, lost = total("tx_packets"), total("rx_packets"), sum(causes.values())
    if record.kind in KERNEL_KINDS:
        sent, delivered = kernel_frames(port_rows(record))
    on_the_way = total("rx_waiting") + at_ports("backlog_packets")
    return Packets(
        sent=sent,
        delivered=delivered,
        retransmitted=total("retransmitted"),
        marked=at_ports("marked"),
        trimmed=at_ports("trimmed"),
        corrupted=at_ports("corrupted"),
        lost=lost,
        on_the_way=on_the_way,
        unexplained=sent - delivered - lost - on_the_way if agents and ports else None,
        causes={cause: n for cause, n in causes.items() if n},
        rejected={
            key: total(key)
            for key in sorted({k for c in agents for k in c if k.startswith(REFUSED)})
            if total(key)
        },
        background=background,
    )


def kernel_frames(rows: Sequence[PortRow]) -> tuple[int, int]:
    """Return (sent, delivered) of a run on the kernel's sockets, whose agents see no frames.
    ``rows`` include background frames, which faults may drop at a host port."""
    sent = delivered = 0
    for row in (row for row in rows if row.of_host):
        sent += (
            sum(row[key] for key in ("admitted_packets", *DROPS_AT_SENDING, "drop_trim_failed"))
            - row["background_left"]
        )
        delivered += (
            row["arrived_packets"]
            - row["background_arrived"]
            - sum(row[key] for key in DROPS_AT_ARRIVAL)
        )
    return sent, delivered


def cable_gaps(record: Counted, rows: Sequence[PortRow]) -> list[CableGap]:
    if record.outcome != "done" or not all(
        "admitted_bytes" in row and "peer" in row.written for row in rows
    ):
        return []
    return [
        CableGap(str(gap["where"]), int(gap["packets"]), int(gap["bytes"]))
        for gap in cable_books([row.written for row in rows])
    ]


@dataclass(frozen=True)
class CableGap:
    where: str
    packets: int
    bytes: int
