"""A simulated fabric whose ports catch up as emulated ones do: what of the two worlds' difference
is HTB's buckets (docs/why/fidelity.md).

A port that had nothing to send for a while puts the next frames on the wire sooner than the one
before has left it, by ``BURST`` in all; each frame still takes its time. At the last hop frames of
a class end apart by their time there, as in agents/delay_line.py.
"""

from __future__ import annotations

from testbed.simulated.frame import RETRY, Call, Frame, within_kind
from testbed.simulated.network import Network
from testbed.simulated.port import ARRIVED_BYTES, ARRIVED_PACKETS, PLANE_AT, SimPort, is_high
from topologies.clos import Fabric
from topologies.units import BYTE, NS

BURST = 50 * NS
"""What a port catches up: testbed.emulated.bringup.BURST_NS at the dilation of `tiny`."""


class BucketNetwork(Network):
    """No faults on the way: links that carry, switches that work."""

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        # time to catch up, and as of when
        self._credit = {port.number: (BURST, 0) for port in self.ports}
        # (port, class) -> when its last frame had arrived
        self._ends: dict[tuple[int, int], int] = {}

    def _start(self, port: SimPort) -> None:
        now = self.time
        took = port.take(now)
        if not took:
            if port.high.first is not None and port.retry_at <= now:
                port.retry_at = port.high_at()
                self._calendar(port).enter(
                    Call(self._retry, port, None), port.retry_at, RETRY | port.number
                )
            return
        credit, since = self._credit[port.number]
        credit = min(BURST, credit + now - since)
        used = min(credit, took)
        self._credit[port.number] = credit - used, now + took - used
        order = port.next_order()
        self._calendar(port).enter(Call(self._next, port, port.wire), now + took - used, order)
        self._core.enter(Call(self._there, port, port.wire), now + took, order)

    def _next(self, port: SimPort, frame: Frame) -> None:
        if port.wire is frame:
            port.wire = None
            if port.waits():
                self._start(port)

    def _there(self, port: SimPort, frame: Frame) -> None:
        far, high = port.far, int(is_high(frame.klass()))
        self.hops += 1
        far.stats[ARRIVED_BYTES + high] += frame.size
        far.stats[ARRIVED_PACKETS + high] += 1
        if far.host >= 0:
            ended = max(
                self.time, self._ends.get((far.number, high), 0) + frame.size * BYTE // port.rate
            )
            self._ends[far.number, high] = ended
            self.delayed[far.host] += 1
            frame.landed = True
            frame.port = far.number
            self._edge.enter(
                frame, ended + self._local + self._more, within_kind(port.next_order())
            )
            return
        frame.shift()
        egress = far.table[frame.usid() & (1 << PLANE_AT) - 1]
        assert egress is not None
        if egress.offer(frame) and egress.wire is None:
            self._start(egress)
