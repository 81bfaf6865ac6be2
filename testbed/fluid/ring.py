"""A collective round a ring, in steps: how far it is, how fast it goes on, what it loses when something breaks, and what its hosts log.

All ranks go on together: a step has a share that is done, which grows with one over the time that a whole step would take in the present
state of the network (piecewise constant). While senders do not yet know that a path is dead, the ring stands still as soon as it has
nothing left to send (:meth:`testbed.fluid.calibration.Calibration.slack_ns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from testbed.fluid.calibration import ROUNDS, Calibration, Shape
from testbed.fluid.cluster import Numbers
from testbed.fluid.hosts import FluidHost
from testbed.fluid.network import Network
from testbed.fluid.rates import flow_rates, port_rates
from testbed.fluid.traffic import Traffic


class RingJob(Traffic):
    """``hosts`` in rank order, ``request`` as agents get it: collective, message_bytes, slices, steps, warmup."""

    def __init__(
        self, network: Network, hosts: Sequence[FluidHost], request: dict[str, Any], calibration: Calibration
    ) -> None:  # fmt: skip
        senders: Numbers = np.array([host.number for host in hosts], dtype=np.int64)
        super().__init__(network, hosts, senders, np.roll(senders, -1))
        self.calibration = calibration
        rounds, size = ROUNDS[request["collective"]], int(request["message_bytes"])
        self.shape = Shape(network.fabric, len(hosts), size, int(request["slices"]), rounds, float((self.a != self.b).mean()))
        self.moved = rounds * (len(hosts) - 1) / len(hosts) * size  # bytes of payload that each rank sends in a step
        self.steps, self.step, self.share = int(request["warmup"]) + int(request["steps"]), 0, 0.0
        self.began = self.stalled_until = network.time
        self.rate = self.port_rate = 0.0
        self.step_ns = float("inf")
        self._plan = 0

    def pace(self, edge: int) -> float:
        return self.moved * 8e9 / self.step_ns / self.network.fabric.payload_share

    @property
    def slack_ns(self) -> float:
        return self.calibration.slack_ns(self.shape, self.rate, self.port_rate) if self.rate > 0 and self.port_rate > 0 else 0.0

    def stall(self, missing_ns: int) -> None:
        """The ring stands still once it has nothing left to send."""
        self.stalled_until = max(self.stalled_until, self.network.time + max(0, round(missing_ns - self.slack_ns)))

    # --- progress --------------------------------------------------------------------------------------------

    def settle(self) -> None:
        now = self.network.time
        moving = now - max(self.at, min(self.stalled_until, now))
        self.at = now
        if moving > 0 and np.isfinite(self.step_ns):
            self._advance(min(1 - self.share, moving / self.step_ns))

    def _advance(self, share: float) -> None:
        self.share += share
        self.tally.add(self.state, self.senders, self.receivers, np.full(len(self.hosts), share * self.moved))

    def changed(self) -> None:
        state = self.state
        self.rate = float(flow_rates(state, self.senders, self.receivers).min())
        self.port_rate = float(port_rates(state, self.senders, self.receivers).min())
        self.step_ns = self.calibration.step_ns(self.shape, self.rate, self.port_rate)
        self._replan()

    def _replan(self) -> None:
        self._plan += 1
        plan = self._plan
        if np.isfinite(self.step_ns):
            end = max(self.at, self.stalled_until) + ceil((1 - self.share) * self.step_ns)
            self.network.at(end, lambda: self._end_step(plan))

    def _end_step(self, plan: int) -> None:
        if plan != self._plan:
            return
        self.settle()
        self._advance(1 - self.share)  # what rounding to whole ns has left
        now = self.network.time
        for rank, host in enumerate(self.hosts):
            record = {"rank": rank, "step": self.step, "start_ns": self.began, "end_ns": now, "ok": True}
            host.write(now, "step", **record)
            host.notes.append({"event": "step", **record})
        self.step, self.share, self.began = self.step + 1, 0.0, now
        self.network.halted = True
        if self.step < self.steps:
            self._replan()
        else:
            self._finish()

    def _finish(self) -> None:
        self._plan += 1
        self.finish()
        for rank, host in enumerate(self.hosts):
            host.notes.append({"event": "done", "rank": rank, "wrong": 0})
