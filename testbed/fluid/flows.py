"""One-way flows of messages in the fluid world: permutations and lists of flows, each at the rate that the network leaves it.

A flow has ``outstanding`` messages posted, so that a message takes the time in which as many are delivered, and at least as long as one
takes alone (topologies/timing.py). Nothing is held up by a loss but the message that it belongs to: a flow's rate is that of its other
paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from testbed.fluid.calibration import Calibration
from testbed.fluid.hosts import FluidHost
from testbed.fluid.network import Network
from testbed.fluid.rates import Floats, flow_rates
from testbed.fluid.traffic import Traffic
from topologies.theory import sack_share
from topologies.timing import idle_message_ns

PATTERNS = ("permutation", "flows")
"""Workloads that are lists of flows and that the model knows: of an incast, queues are the point."""


@dataclass
class _Progress:
    """One flow. Times in ns of the clock; ``target``: bytes that it delivers in all, once known."""

    start: int
    end: int | None
    target: float | None
    active: bool = False
    done: bool = False
    delivered: float = 0.0
    logged: int = 0  # bytes in the log
    ends: list[int] = field(default_factory=list)  # of messages


class FlowsJob(Traffic):
    """``hosts`` in rank order, ``request`` as agents get it: flows, message_bytes, outstanding, at."""

    def __init__(self, network: Network, hosts: Sequence[FluidHost], request: dict[str, Any], calibration: Calibration) -> None:
        self.flows = list(request["flows"])
        numbers = np.array([[hosts[flow[end]].number for end in ("src", "dst")] for flow in self.flows], dtype=np.int64)
        super().__init__(network, hosts, numbers[:, 0], numbers[:, 1])
        fabric = network.fabric
        self.size, self.outstanding = int(request["message_bytes"]), int(request["outstanding"])
        self.t0 = int(request["at"])
        self.progress = [
            _Progress(
                self.t0 + flow["start_ns"], None if flow["for_ns"] is None else self.t0 + flow["start_ns"] + flow["for_ns"],
                None if flow["messages"] is None else float(flow["messages"] * self.size),
            )
            for flow in self.flows
        ]  # fmt: skip
        alone = [idle_message_ns(fabric, bool(a == b), self.size) for a, b in zip(self.a, self.b, strict=True)]
        self._most: Floats = self.outstanding * self.size / np.array(alone)  # payload bytes a ns: the window of messages
        both_ways = bool(set(self.senders.tolist()) & set(self.receivers.tolist()))
        self._payload = calibration.efficiency * fabric.payload_share / 8e9 / (1 + (sack_share(fabric) if both_ways else 0.0))
        self.rates: Floats = np.zeros(len(self.flows))  # payload bytes a ns
        self._plan = 0

    def begin(self) -> None:
        super().begin()
        for progress in self.progress:
            self.network.at(progress.start, self._start_due)

    # --- rates ---------------------------------------------------------------------------------------------------

    @property
    def slack_ns(self) -> float:
        """Posted messages go on."""
        return float("inf")

    def sends(self, edge: int) -> bool:
        return self.progress[edge].active

    def pace(self, edge: int) -> float:
        return float(self.rates[edge]) * 8e9 / self.network.fabric.payload_share

    def settle(self) -> None:
        passed, self.at = self.network.time - self.at, self.network.time
        if passed > 0 and self.rates.any():
            moved = self.rates * passed
            for progress, size in zip(self.progress, moved.tolist(), strict=True):
                progress.delivered += size
            on = np.flatnonzero(self.rates)
            self.tally.add(self.state, self.senders[on], self.receivers[on], moved[on])

    def changed(self) -> None:
        on = np.flatnonzero([progress.active for progress in self.progress])
        self.rates = np.zeros(len(self.flows))
        if len(on):
            wire = flow_rates(self.state, self.senders[on], self.receivers[on])
            self.rates[on] = np.minimum(wire * self._payload, self._most[on])
        self._replan()

    def _replan(self) -> None:
        """Look again when the next message will have arrived."""
        self._plan += 1
        plan = self._plan
        waits = [
            ((len(progress.ends) + 1) * self.size - progress.delivered) / rate
            for progress, rate in zip(self.progress, self.rates.tolist(), strict=True) if rate > 0
        ]  # fmt: skip
        if waits:
            self.network.at(self.network.time + max(1, ceil(min(waits))), lambda: self._arrive(plan))

    # --- messages ------------------------------------------------------------------------------------------------

    def _start_due(self) -> None:
        self.settle()
        for edge, progress in enumerate(self.progress):
            if not progress.active and not progress.done and progress.start <= self.network.time:
                progress.active = True
                if progress.end is not None:
                    self.network.at(progress.end, lambda edge=edge: self._last_posts(edge))  # type: ignore[misc]
        self.changed()
        self.network.meet()
        self.changed()

    def _last_posts(self, edge: int) -> None:
        """The flow posts no more; what it has posted still arrives."""
        self.settle()
        progress = self.progress[edge]
        progress.target = float((len(progress.ends) + self.outstanding) * self.size)

    def _arrive(self, plan: int) -> None:
        if plan != self._plan:
            return
        self.settle()
        over = False
        for edge, progress in enumerate(self.progress):
            while progress.active and progress.delivered >= (len(progress.ends) + 1) * self.size - 0.5:
                self._log_message(edge, progress)
                if progress.target is not None and len(progress.ends) * self.size >= progress.target:
                    progress.active, progress.done, over = False, True, True
                    self._tell(edge, progress)
        if not over:
            self._replan()
        elif all(progress.done for progress in self.progress):
            self.finish()
            for rank, host in enumerate(self.hosts):
                host.notes.append({"event": "done", "rank": rank, "wrong": 0})
            self.network.halted = True
        else:
            self.changed()

    def _log_message(self, edge: int, progress: _Progress) -> None:
        """A message has arrived; it was posted when the one before it by the number of outstanding ones had."""
        now, number = self.network.time, len(progress.ends)
        start = progress.start if number < self.outstanding else progress.ends[number - self.outstanding]
        progress.ends.append(now)
        self.edge_hosts[edge].write(now, "message", flow=edge, number=number, bytes=self.size, start_ns=start, end_ns=now)

    def _tell(self, edge: int, progress: _Progress) -> None:
        count = len(progress.ends)
        self.edge_hosts[edge].notes.append(
            {
                "event": "flow", "flow": edge, "rank": self.flows[edge]["src"], "messages": count, "bytes": count * self.size, "wrong": 0,
                "start_ns": progress.start, "end_ns": progress.ends[-1], "peak_bytes": self.size * self.outstanding, "peak_ns": None,
            }
        )  # fmt: skip
        self.network.halted = True

    def log_more(self, host: FluidHost, began: int) -> None:
        for edge in np.flatnonzero(self.receivers == host.number).tolist():
            progress = self.progress[edge]
            total = round(progress.delivered)
            if total != progress.logged:
                host.write(began, "flow", flow=edge, bin_ns=self.bin_ns, rx=total - progress.logged)
                progress.logged = total
