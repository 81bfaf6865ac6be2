"""When each frame that reached a host may be handed to its engine: what the emulated cables lack. Sans-IO.

Used by :mod:`agents.receive_ring`. A shaped veth lets a frame go whole when its turn *begins* and carries it at once, so a frame is here
too early by its time on the wire of every link and by the propagation delay. Both are made up for once, at the end of its path; the
transport sees nothing of it. Each port is two FIFOs, as the switches' ports are: control and trimmed headers do not wait for data that
takes longer on the wire, and neither class ever changes its order.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from agents.mrc import dscp
from agents.transport import NEVER
from topologies.clos import ETHERNET, IPV6, UDP, Fabric

HOPS_AT_START: Final = 64
"""Hop limit of the outer header as it leaves a host; every switch takes one."""
SHORTEST: Final = ETHERNET + IPV6 + IPV6 + UDP
"""No frame in the ring is shorter: its filter looks for tunnelled UDP."""
HIGH: Final = frozenset({dscp.CONTROL, dscp.TRIMMED, dscp.TRIMMED_LASTHOP})


class DelayLine:
    """Frames by the time they are due. All times monotonic ns."""

    def __init__(self, fabric: Fabric) -> None:
        self.delay = fabric.delay_ns
        self.nic_rate = fabric.nic_rate
        self.fabric_rate = fabric.fabric_rate
        self.high = [1 if klass in HIGH else 0 for klass in range(64)]
        # By port and class: data of port 0, its high class, data of port 1, ... A FIFO is due, place, due, place, ...; who stands behind
        # a frame that is due later waits for it.
        self.fifos: list[deque[int]] = [deque() for _ in range(2 * fabric.planes)]
        self.heads = [NEVER] * (2 * fabric.planes)  # when the first frame of each is due
        self.next = NEVER  # the least of the heads
        self.shortest = self.transit(SHORTEST, HOPS_AT_START - 1)

    def transit(self, length: int, hop_limit: int) -> int:
        """Propagation, and a frame's time on each link it took: ns.

        The hop limit tells the number of switches: one is a T0, else it was T0, T1, T0 (no path is longer, and a hop limit that no
        endpoint of ours sends is none of ours to explain).
        """
        ns = self.delay + length * 16_000_000_000 // self.nic_rate
        if hop_limit != HOPS_AT_START - 1:
            ns += length * 16_000_000_000 // self.fabric_rate
        return ns

    def put(self, place: int, arrival: int, port: int, klass: int, hop_limit: int, length: int) -> None:
        """A frame of DSCP ``klass`` and ``length`` bytes came to ``port`` at ``arrival``; ``place`` is what :meth:`take` returns."""
        due = arrival + self.transit(length, hop_limit)
        k = port << 1 | self.high[klass]
        fifo = self.fifos[k]
        if not fifo:
            self.heads[k] = due
            if due < self.next:
                self.next = due
        fifo.append(due)
        fifo.append(place)

    def take(self) -> int:
        """The place of the frame that is due first. Only while there is one."""
        k = self.heads.index(self.next)
        fifo = self.fifos[k]
        fifo.popleft()
        place = fifo.popleft()
        self.heads[k] = fifo[0] if fifo else NEVER
        self.next = min(self.heads)
        return place
