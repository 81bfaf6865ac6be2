"""Reads the data plane's counters from memory, works the gates, and closes the books
(docs/why/dataplane.md)."""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.dataplane import layout
from testbed.dataplane.loader import PINS
from testbed.dataplane.maps import BpfMap, live_words
from topologies.clos import Fabric, Link, Port
from topologies.parts import Part, whole

_S = {name: i for i, name in enumerate(layout.STATS_WORDS)}
_STATS = len(layout.STATS_WORDS)
_ARRIVED = [_S["arrived_bytes_data"], _S["arrived_bytes_high"]]
_FLUSHED = len(layout.FLUSHED_WORDS)
_BACKGROUND = len(layout.BACKGROUND_WORDS)
_P = {name: i for i, name in enumerate(layout.PAUSE_WORDS)}
_PAUSE = len(layout.PAUSE_WORDS)

Row = dict[str, Any]
Accounts = dict[str, tuple[int, int]]
"""Port -> (packets that its switch was too slow to take, packets that its switch sent out
there)."""


Bytes = NDArray[np.float64]
Loads = NDArray[np.int64]


@dataclass(frozen=True)
class Traffic:
    left: Bytes
    data_left: Bytes
    data_admitted: Bytes
    data_flushed: Bytes
    paused_ns: Bytes

    @property
    def waiting(self) -> Bytes:
        return self.data_admitted - self.data_left - self.data_flushed


class Counters:
    """Port numbers are those of ``Fabric.ports``."""

    def __init__(
        self,
        fabric: Fabric,
        bridges: Callable[[], Accounts] | None = None,
        part: Part | None = None,
    ) -> None:
        """``bridges`` gives the accounts of switches that forward in user space. ``part`` are this
        machine's ports: the others have no rows."""
        self.fabric = fabric
        self.part = whole(fabric) if part is None else part
        self._bridges: Callable[[], Accounts] = bridges or dict
        self._far = far_ends(fabric).tolist()
        self._stats = live_words(PINS / "port_stats")
        self._flushed = live_words(PINS / "port_flushed")
        self._background = live_words(PINS / "port_background")
        self._gate = live_words(PINS / "port_gate")
        self._pause = live_words(PINS / "port_pause")
        self._held = BpfMap(PINS / "held")
        # (ingress, egress) -> bytes held for that way through a switch and lost with a link
        self._lost: dict[tuple[int, int], int] = {}
        ports_of: dict[str, list[int]] = defaultdict(list)
        for port in fabric.ports:
            ports_of[port.node].append(port.number)
        self._beside = [
            ports_of[port.node] if port.node in fabric.switches else [] for port in fabric.ports
        ]
        self._switch_down = live_words(PINS / "switch_down")

    # --- what user space tells the programs -------------------------------------------------------

    def set_gate(self, port: int, closed: bool) -> None:
        self._gate[port] = int(closed)

    def set_switch(self, number: int, state: int) -> None:
        self._switch_down[number] = state

    def flush(self, port: int) -> None:
        """Count what was admitted here and has not arrived as lost in the queue. Only for a port
        whose queue is empty and that admits nothing. The value is absolute, so that another call
        after a late arrival corrects it."""
        near, far, flushed = port * _STATS, self._far[port] * _STATS, port * _FLUSHED
        for word, (sent, arrived) in enumerate(_PAIRS):
            self._flushed[flushed + word] = (
                self._stats[near + sent] - self._stats[far + arrived]
            ) & _MASK
        if self.fabric.pfc:
            self._let_go(port)

    def _let_go(self, egress: int) -> None:
        for ingress in self._beside[egress]:
            held = self._held.lookup(struct.pack("=I", ingress << 16 | egress))
            if held is not None:
                taken, released = struct.unpack("=2Q", held)
                self._lost[ingress, egress] = taken - released
                lost = sum(self._lost.get((ingress, other), 0) for other in self._beside[egress])
                self._pause[ingress * _PAUSE + _P["lost_bytes"]] = lost & _MASK

    # --- reading ----------------------------------------------------------------------------------

    def backlog(self, port: int) -> tuple[int, int]:
        """Return (bytes, packets) at a port or on its cable. Arrivals are read first, so it is
        never too small."""
        far, flushed, near = self._far[port] * _STATS, port * _FLUSHED, port * _STATS
        arrived = [self._stats[far + word] for _, word in _PAIRS]
        sent = [self._stats[near + word] for word, _ in _PAIRS]
        waiting = [
            _signed(s - g - f)
            for s, g, f in zip(
                sent, arrived, self._flushed[flushed : flushed + _FLUSHED], strict=True
            )
        ]
        return waiting[0] + waiting[1], waiting[2] + waiting[3]

    def data_backlog(self, port: int) -> int:
        arrived, flushed = (
            self._stats[self._far[port] * _STATS + _PAIRS[0][1]],
            self._flushed[port * _FLUSHED],
        )
        return max(0, _signed(self._stats[port * _STATS + _PAIRS[0][0]] - arrived - flushed))

    def traffic(self) -> Traffic:
        count = len(self.fabric.ports)
        stats = np.frombuffer(self._stats, dtype=np.uint64)[: count * _STATS].reshape(count, _STATS)
        flushed = np.frombuffer(self._flushed, dtype=np.uint64)[: count * _FLUSHED].reshape(
            count, _FLUSHED
        )
        arrived = stats[:, _ARRIVED].astype(np.float64)[self._far]
        admitted = stats[:, _S["admitted_bytes_data"]].astype(np.float64)
        data_flushed = (
            flushed[:, layout.FLUSHED_WORDS.index("bytes_data")].astype(np.int64).astype(np.float64)
        )
        return Traffic(
            arrived.sum(axis=1), arrived[:, 0], admitted, data_flushed, self._paused_ns(count)
        )

    def loads(self) -> Loads:
        """Arrivals are not read first, so the backlog may be too small by a frame or two."""
        count = len(self.fabric.ports)
        stats = np.frombuffer(self._stats, dtype=np.int64)[: count * _STATS].reshape(count, _STATS)
        return port_loads(stats, self._far, [self.data_backlog(number) for number in range(count)])

    def _paused_ns(self, count: int) -> Bytes:
        pauses = (
            np.frombuffer(self._pause, dtype=np.uint64)[: count * _PAUSE]
            .reshape(count, _PAUSE)
            .astype(np.float64)
        )
        since = pauses[:, _P["since_ns"]]
        return pauses[:, _P["paused_ns"]] + np.where(since > 0, time.monotonic_ns() - since, 0.0)

    def pauses(self, port: int) -> Row:
        """Return how often and how long a port's data class was paused, and its reaction in all and
        at most: from what made the switch ask until the port stood still. All ns of this
        machine."""
        words = dict(
            zip(
                layout.PAUSE_WORDS,
                self._pause[port * _PAUSE : (port + 1) * _PAUSE].tolist(),
                strict=True,
            )
        )
        lasts = max(0, time.monotonic_ns() - words["since_ns"]) if words["since_ns"] else 0
        return {
            "pauses": words["pauses"],
            "paused_ns": words["paused_ns"] + lasts,
            "longest_pause_ns": max(words["longest_ns"], lasts),
            "pause_reaction_ns": words["reaction_ns"],
            "longest_pause_reaction_ns": words["longest_reaction_ns"],
        }

    def forget_longest(self) -> None:
        """Look for the longest pauses anew; only while nothing is sent."""
        for port in self.fabric.ports:
            for word in ("longest_ns", "longest_reaction_ns"):
                self._pause[port.number * _PAUSE + _P[word]] = 0

    def quiet(self) -> bool:
        return all(self.backlog(port.number) == (0, 0) for port in self.part.ports)

    def rows(self) -> list[Row]:
        """Return one row per port, cumulative since the fabric was built. Bytes are those of
        Ethernet frames without FCS."""
        for port in self.part.ports:
            if self._gate[port.number]:
                self.flush(port.number)
        rows: list[Row] = []
        bridges = self._bridges()
        with_background = any(self._background[: len(self.fabric.ports) * _BACKGROUND])
        for link in self.part.links:
            for port, peer in ((link.a, link.b), (link.b, link.a)):
                at, out = port.number * _STATS, port.number * _FLUSHED
                stats, flushed = (
                    self._stats[at : at + _STATS].tolist(),
                    self._flushed[out : out + _FLUSHED].tolist(),
                )
                row = port_row(
                    link,
                    port,
                    peer,
                    stats,
                    flushed,
                    self.backlog(port.number),
                    bridges.get(port.name, (0, 0)),
                )
                if self.fabric.pfc:
                    row |= self.pauses(port.number)
                if with_background:
                    at = port.number * _BACKGROUND
                    part = self._background[at : at + _BACKGROUND].tolist()
                    row |= {
                        f"background_{name}": n
                        for name, n in zip(layout.BACKGROUND_WORDS, part, strict=True)
                    }
                rows.append(row)
        return rows


def far_ends(fabric: Fabric) -> NDArray[np.intp]:
    far = np.empty(len(fabric.ports), dtype=np.intp)
    for link in fabric.links:
        far[link.a.number], far[link.b.number] = link.b.number, link.a.number
    return far


def port_loads(
    stats: Loads, far: Sequence[int] | NDArray[np.intp], waiting: Sequence[int] | Loads
) -> Loads:
    """``stats``: layout.STATS_WORDS by port; ``far``: :func:`far_ends`."""
    left = stats[:, _ARRIVED].sum(axis=1)[far]
    return np.column_stack(
        (
            left,
            waiting,
            stats[:, _S["marked"]],
            stats[:, _S["trimmed"]],
            stats[:, _DROPS].sum(axis=1),
        )
    )


def port_row(
    link: Link,
    port: Port,
    peer: Port,
    s: Sequence[int],
    f: Sequence[int],
    backlog: tuple[int, int],
    bridge: tuple[int, int] = (0, 0),
) -> Row:
    """``s``: layout.STATS_WORDS; ``f``: layout.FLUSHED_WORDS; ``backlog``: bytes and packets;
    ``bridge``: as in :data:`Accounts`."""
    row: Row = {"port": port.name, "node": port.node, "peer": peer.name, "link": link.name}
    row |= {"plane": port.plane, "kind": link.kind}
    for name in ("admitted", "arrived"):
        for unit in ("packets", "bytes"):
            row[f"{name}_{unit}"] = s[_S[f"{name}_{unit}_data"]] + s[_S[f"{name}_{unit}_high"]]
    for name in ("drop_tail_packets", "drop_tail_bytes"):
        row[name] = s[_S[f"{name}_data"]] + s[_S[f"{name}_high"]]
    row["drop_high_packets"] = s[_S["drop_tail_packets_high"]]
    row["drop_bridge"], forwarded = bridge
    # The kernel refuses what a bridge sends to a port that is down before the program sees it.
    handled = row["admitted_packets"] + row["drop_tail_packets"] + s[_S["drop_trim_failed"]]
    row["drop_link_down_packets"] = max(s[_S["drop_link_down"]], forwarded - handled)
    row |= {name: s[_S[name]] for name in _NAMED_DROPS}
    row |= {"flushed_packets": f[2] + f[3], "flushed_bytes": f[0] + f[1]}
    row |= {
        name: s[_S[name]] for name in ("marked", "trimmed", "corrupted", "met_bytes", "met_packets")
    }
    row |= {
        "backlog_bytes": backlog[0],
        "backlog_packets": backlog[1],
        "backlog_mean_bytes": mean_backlog(row),
    }
    row |= {
        "backlog_peak_bytes": s[_S["peak_bytes_data"]],
        "backlog_high_peak_bytes": s[_S["peak_bytes_high"]],
    }
    return row


_NAMED_DROPS = ("drop_trim_failed", *layout.SWITCH_DROPS)
_DROPS = tuple(
    _S[name]
    for name in (
        "drop_tail_packets_data",
        "drop_tail_packets_high",
        "drop_link_down",
        *_NAMED_DROPS,
    )
)
_PEAKS = ("backlog_peak_bytes", "backlog_high_peak_bytes", "pool_bytes", "pool_peak_bytes")
_MASK = (1 << 64) - 1
_PAIRS = tuple((_S[f"admitted_{w}"], _S[f"arrived_{w}"]) for w in layout.FLUSHED_WORDS)


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def mean_backlog(row: Row) -> int:
    packets = int(row["met_packets"])
    return round(row["met_bytes"] / packets) if packets else 0


def books(rows: Iterable[Row]) -> list[dict[str, str | int]]:
    """Find the differences in the account of a *quiet* fabric, one on which nothing travels: [] if
    there are none.

    Per direction of a cable: admitted(a) = arrived(b) + flushed(a), in packets and bytes. Per
    switch: what arrived = what was admitted on the way out + drops by a named cause. Each
    difference is {"where", "kind": "cable"|"switch", "packets", "bytes"}; positive means missing.
    """
    by_port = {row["port"]: row for row in rows}
    differences: list[dict[str, str | int]] = []
    balance: dict[str, int] = defaultdict(int)
    for row in by_port.values():
        peer = by_port[row["peer"]]
        packets = row["admitted_packets"] - peer["arrived_packets"] - row["flushed_packets"]
        size = row["admitted_bytes"] - peer["arrived_bytes"] - row["flushed_bytes"]
        if packets or size:
            differences.append(
                {
                    "where": f"{row['port']} -> {row['peer']}",
                    "kind": "cable",
                    "packets": packets,
                    "bytes": size,
                }
            )
        if row["node"].startswith("p"):  # switches are p<plane>-t<tier>-<n>, hosts h<n>
            inside = sum(
                row.get(name, 0) for name in (*_NAMED_DROPS, "drop_bridge", "drop_trunk")
            )  # rows of older results lack newer names
            balance[row["node"]] += row["arrived_packets"] - inside
            balance[row["node"]] -= (
                row["admitted_packets"] + row["drop_tail_packets"] + row["drop_link_down_packets"]
            )
    differences += [
        {"where": node, "kind": "switch", "packets": packets, "bytes": 0}
        for node, packets in balance.items()
        if packets
    ]
    return differences


def totals(rows: Iterable[Row]) -> dict[str, int]:
    out: dict[str, int] = defaultdict(int)
    for row in rows:
        for key, value in row.items():
            if key in _PEAKS:
                out[key] = max(out[key], value)
            elif isinstance(value, int) and key != "plane":
                out[key] += value
    if "met_packets" in out:
        out["backlog_mean_bytes"] = mean_backlog(out)
    return dict(out)
