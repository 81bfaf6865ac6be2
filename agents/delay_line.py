"""Decides when each frame that reached a host may be handed to its engine: the delay that the
emulated cables lack. Sans-IO.

A shaped veth lets a frame go whole when its turn *begins*. So a frame is here too early, by the
delay and by its time on the wire of its links (:meth:`topologies.clos.Fabric.turns`). A trimmed
frame was whole on the links before the switch that cut it.

Each port has three FIFOs for each length of path. So control does not wait for data that takes
longer on the wire, nor for headers that were data, and no frame waits behind one from further away.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from agents.packets import dscp
from agents.transport import LONG_AGO, NEVER
from topologies.clos import ETHERNET, IPV6, UDP, Fabric
from topologies.units import BYTE

HOPS_AT_START: Final = 64
"""Hop limit of the outer header as it leaves a host; every switch takes one."""
LOCAL_HOPS: Final = HOPS_AT_START - 1
"""The hop limit of frames from under the same T0."""
FAR_HOPS: Final = HOPS_AT_START - 4
"""The hop limit of frames from the other site: T0, T1, T1, T0."""
SHORTEST: Final = ETHERNET + IPV6 + IPV6 + UDP
UNCOUNTED: Final = ETHERNET + IPV6 + IPV6
"""Bytes that the inner payload length does not count. That length stays what it was when a switch
trims."""
INNER_LENGTH: Final = ETHERNET + IPV6 + 4
CUT: Final = frozenset({dscp.TRIMMED, dscp.TRIMMED_LASTHOP})
DATA_FIFO: Final = 0
CONTROL_FIFO: Final = 1
CUT_FIFO: Final = 2
FIFOS: Final = 3  # of each port and length of path: within a rack, across T1s, from the other site
NOBODY: Final = -1


class DelayLine:
    def __init__(self, fabric: Fabric) -> None:
        # by length of path
        self.delays = vec[i64](
            [fabric.local_delay_ps, fabric.delay_ps, fabric.delay_ps + fabric.long_haul_delay_ps]
        )
        self.nic_rate: i64 = fabric.nic_rate
        self.fabric_rate: i64 = fabric.fabric_rate
        self.haul_rate: i64 = max(1, fabric.long_haul_rate)
        self.two_sites = fabric.sites > 1
        self.lanes: i64 = (3 if self.two_sites else 2) * FIFOS  # of each port
        # By length of path: how often a frame takes the time of the NIC's link, of one between
        # switches, of the long-haul cable.
        paths = ((True, False), (False, False), (False, True))
        self.turns = vec[i64]([n for local, far in paths for n in fabric.turns(local, far)])
        # up to the last switch
        self.turns_cut = vec[i64](
            [n for local, far in paths for n in fabric.turns(local, far, whole=False)]
        )
        self.longest: i64 = fabric.frame_bytes
        self.fifo_of = vec[i64](
            [
                CUT_FIFO if k in CUT else CONTROL_FIFO if k == dscp.CONTROL else DATA_FIFO
                for k in range(64)
            ]
        )
        # By port and class: data of port 0, its control, its trimmed headers, data of port 1, ... A
        # FIFO is a chain of places, and who stands behind a frame that is due later waits for it.
        count = int(self.lanes) * fabric.planes
        self.firsts = vec[i64]([NOBODY] * count)
        self.lasts = vec[i64]([NOBODY] * count)
        self.heads = vec[i64]([NEVER] * count)  # when the first frame of each is due
        self.ends = vec[i64]([LONG_AGO] * count)  # and the last one that came
        self.dues = vec[i64]()  # by place
        self.behind = vec[i64]()  # by place: who follows in its FIFO
        self.next: i64 = NEVER  # the least of the heads,
        self.next_fifo: i64 = 0  # and whose it is
        self.shortest: i64 = self.transit(SHORTEST, HOPS_AT_START - 1)

    def path(self, hop_limit: i64) -> i64:
        """Classify a path by its hop limit: 0 is one switch; 1 is T0, T1, T0; 2 is T0, T1, T1, T0.
        Our endpoints send no other hop limit."""
        if hop_limit == LOCAL_HOPS:
            return 0
        return 2 if self.two_sites and hop_limit == FAR_HOPS else 1

    def transit(self, length: i64, hop_limit: i64) -> i64:
        path = self.path(hop_limit)
        return self.delays[path] + self._wire(self.turns, path, length)

    def _wire(self, turns: vec[i64], path: i64, length: i64) -> i64:
        k = 3 * path
        time = (
            length * turns[k] * BYTE // self.nic_rate
            + length * turns[k + 1] * BYTE // self.fabric_rate
        )
        return time + length * turns[k + 2] * BYTE // self.haul_rate

    def before_cut(self, missing: i64, klass: i64, hop_limit: i64) -> i64:
        """Compute how much longer a trimmed frame took, ps, for the ``missing`` bytes that it had
        up to the switch that cut it. The class tells whether that was the last switch; else the
        first is assumed [ours], and the frame may be too early by those bytes' time on one link."""
        if missing <= 0:
            return 0
        if missing > self.longest:  # the peer says how long it was
            missing = self.longest
        return self._wire(
            self.turns_cut, self.path(hop_limit) if klass == dscp.TRIMMED_LASTHOP else 0, missing
        )

    def put(
        self,
        place: i64,
        arrival: i64,
        port: i64,
        klass: i64,
        hop_limit: i64,
        length: i64,
        missing: i64 = 0,
    ) -> None:
        """``place`` (>= 0, no other frame's) is what :meth:`take` returns. ``missing``: bytes that
        a trimmed frame lost. Frames of a FIFO end apart by their time on the last link."""
        due = arrival + self.transit(length, hop_limit)
        lane = self.fifo_of[klass]
        if lane == CUT_FIFO:
            due += self.before_cut(missing, klass, hop_limit)
        k = self.lanes * port + lane + FIFOS * self.path(hop_limit)
        earliest = self.ends[k] + length * BYTE // self.nic_rate
        if due < earliest:
            due = earliest
        self.ends[k] = due
        while place >= len(self.dues):
            self.dues = append(self.dues, NEVER)
            self.behind = append(self.behind, NOBODY)
        self.dues[place] = due
        self.behind[place] = NOBODY
        last = self.lasts[k]
        self.lasts[k] = place
        if last != NOBODY:
            self.behind[last] = place
            return
        self.firsts[k] = place
        self.heads[k] = due
        if due < self.next:
            self.next = due
            self.next_fifo = k

    def take(self) -> i64:
        k = self.next_fifo
        place = self.firsts[k]
        follower = self.behind[place]
        self.firsts[k] = follower
        if follower == NOBODY:
            self.lasts[k] = NOBODY
            self.heads[k] = NEVER
        else:
            self.heads[k] = self.dues[follower]
        heads = self.heads
        least: i64 = NEVER
        for fifo in range(i64(len(heads))):  # of equals the first
            head = heads[fifo]
            if head < least:
                least = head
                k = fifo
        self.next = least
        self.next_fifo = k
        return place
