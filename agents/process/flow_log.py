"""What a host logs of its flows once per goodput bin: bytes that arrived, packets per EV, windows (docs/results.md).

All from the engine's cumulative figures, so a bin that came late loses nothing. Used by the host process alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.collectives.flows import Flows
from agents.transport import Reports


class FlowLog:
    """``write(t, kind, fields)`` takes a line. ``accounted``: payload bytes by QPN that are not theirs; by default all that was placed
    so far. Peers may have begun before the flows are started here.
    """

    def __init__(
        self, engine: Reports, job: Flows, write: Callable[[int, str, dict[str, Any]], None], accounted: dict[int, int] | None = None
    ) -> None:
        self.engine = engine
        self.job = job
        self.write = write
        self.senders = {qpn: sender for sender in job.senders for qpn in sender.bundle.qpns}
        self.placed = self._placed(accounted)
        self.sent: dict[tuple[int, int], int] = {}
        self._packets()

    def _placed(self, placed: dict[int, int] | None = None) -> list[int]:
        """Payload bytes placed so far (or ``placed``, by QPN), by receiver."""
        if not self.job.receivers:
            return []
        if placed is None:
            placed = self.engine.placed()
        return [sum(placed.get(qpn, 0) for qpn in receiver.bundle.qpns) for receiver in self.job.receivers]

    def _packets(self) -> dict[int, dict[int, int]]:
        """Data packets since the last call: peer's host number -> EV -> packets.

        The k-th row of a queue pair is the same path each time, or the one path of a queue pair that was re-routed meanwhile.
        """
        counts: dict[int, dict[int, int]] = {}
        rows: dict[int, int] = {}
        for row in self.engine.paths() if self.senders else ():
            qpn = row["qpn"]
            if qpn not in self.senders:
                continue
            k = rows[qpn] = rows.get(qpn, -1) + 1
            total = row.get("data_tx", row.get("tx_packets", 0))  # RoCE counts all of a queue pair's packets, a sender's few others too
            new = total - self.sent.get((qpn, k), 0)
            if new:
                self.sent[qpn, k] = total
                by_ev = counts.setdefault(row["peer"], {})
                by_ev[row["ev"]] = by_ev.get(row["ev"], 0) + new
        return counts

    def bin(self, t: int, bin_ns: int) -> None:
        """Log the bin that began at ``t`` and is over now."""
        placed = self._placed()
        for receiver, now, before in zip(self.job.receivers, placed, self.placed, strict=True):
            if now != before:
                self.write(t, "flow", {"flow": receiver.number, "bin_ns": bin_ns, "rx": now - before})
        self.placed = placed
        for peer, by_ev in self._packets().items():
            self.write(t, "evs", {"peer": peer, "bin_ns": bin_ns, "tx": {str(ev): count for ev, count in by_ev.items()}})
        if any(sender.active for sender in self.job.senders):
            for row in self.engine.windows():
                sender = self.senders.get(row["qpn"])
                if sender is not None and sender.active:
                    self.write(t, "cwnd", {"flow": sender.number, **row})
