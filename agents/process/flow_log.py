"""Logs, once per goodput bin of a host, packets per EV and windows, and the bytes of flows that
arrived. All are cumulative, so a bin that came late loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agents.collectives.flows import Flows
from agents.transport import Reports

MOST_PATHS = 2048
"""With more paths a host does not count packets on each [ours]: a bin would cost it
milliseconds."""


class PathLog:
    def __init__(
        self, engine: Reports, write: Callable[[int, str, Mapping[str, object]], None]
    ) -> None:
        self.engine = engine
        self.write = write
        self.sent: dict[int, list[int]] = {}  # by QPN, on each of its paths
        self.busy: set[int] = set()  # queue pairs that sent in the last bin
        self.too_many = False
        self._packets()

    def _logs(self, qpn: int) -> bool:
        return True

    def _packets(self) -> dict[int, dict[int, int]]:
        """Count packets since the last call: peer's host number -> EV -> packets."""
        counts: dict[int, dict[int, int]] = {}
        self.busy.clear()
        paths = 0
        for qpn, peer, evs, packets in self.engine.sent_by_path():
            paths += len(evs)
            before = self.sent.get(qpn)
            if packets == before or not self._logs(qpn):
                continue
            self.sent[qpn] = packets
            for k, count in enumerate(packets):
                new = count if before is None else count - before[k]
                if new:
                    self.busy.add(qpn)
                    by_ev = counts.setdefault(peer, {})
                    by_ev[evs[k]] = by_ev.get(evs[k], 0) + new
        self.too_many = paths > MOST_PATHS
        return counts

    def _write_packets(self, t: int, bin_ps: int) -> None:
        for peer, by_ev in self._packets().items():
            self.write(
                t,
                "evs",
                {
                    "peer": peer,
                    "bin_ps": bin_ps,
                    "tx": {str(ev): count for ev, count in by_ev.items()},
                },
            )

    def bin(self, t: int, bin_ps: int) -> None:
        if self.too_many:
            return
        self._write_packets(t, bin_ps)
        if self.busy:
            for row in self.engine.windows():
                if row["qpn"] in self.busy:
                    self.write(t, "cwnd", {"bin_ps": bin_ps, **row})


class FlowLog(PathLog):
    """``accounted``: payload bytes by QPN that are not the flows'; by default all that was placed
    so far."""

    def __init__(
        self,
        engine: Reports,
        job: Flows,
        write: Callable[[int, str, Mapping[str, object]], None],
        accounted: dict[int, int] | None = None,
    ) -> None:
        self.job = job
        self.senders = {qpn: sender for sender in job.senders for qpn in sender.bundle.qpns}
        super().__init__(engine, write)
        self.placed = self._placed(accounted)

    def _logs(self, qpn: int) -> bool:
        return qpn in self.senders

    def _placed(self, placed: dict[int, int] | None = None) -> list[int]:
        if not self.job.receivers:
            return []
        if placed is None:
            placed = self.engine.placed()
        return [
            sum(placed.get(qpn, 0) for qpn in receiver.bundle.qpns)
            for receiver in self.job.receivers
        ]

    def bin(self, t: int, bin_ps: int) -> None:
        placed = self._placed()
        for receiver, now, before in zip(self.job.receivers, placed, self.placed, strict=True):
            if now != before:
                self.write(
                    t, "flow", {"flow": receiver.number, "bin_ps": bin_ps, "rx": now - before}
                )
        self.placed = placed
        if self.senders:
            self._write_packets(t, bin_ps)
        if any(sender.active for sender in self.job.senders):
            for row in self.engine.windows():
                sender = self.senders.get(row["qpn"])
                if sender is not None and sender.active:
                    self.write(t, "cwnd", {"flow": sender.number, **row})
