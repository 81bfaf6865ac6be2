"""Is it the path, the plane, or the endpoint? Looks at verdicts of loss together; one per QP, asked by the requester. Sans-IO.

Theory of operation [ours]. One dead link or T1 kills one EV of a plane, or some; a dead or silent T0 kills a plane's all at once. Finding
that out EV by EV would cost a loss on each. So a plane falls under suspicion when at least max(2, a quarter) of its EVs in use (or its
only one) were found guilty within an RTT, and nothing sent on it since the first of those losses was sent has been acknowledged. Then all
its EVs are out of use at once; each is probed by itself and one clean answer brings back those that were not guilty themselves.

When more than half of the planes qualify at once the fabric is hardly to blame: the peer slept, or the acknowledgements do not get
through. Then nobody is demoted, the verdicts of that RTT are void, and the retransmission timer decides. Once; if it goes on, verdicts
stand one by one. The last plane is never suspected.
"""

from __future__ import annotations

from typing import Final

from agents.mrc.config import Config
from agents.mrc.ev_state import ASSUMED_BAD
from agents.mrc.path_set import PathSet
from agents.transport import Event

PATIENCE: Final = 8
"""After the endpoint was blamed, verdicts stand for so many srtt."""


class Suspicion:
    """Recent verdicts by plane."""

    def __init__(self, config: Config, peer: int, paths: PathSet, log: list[Event]) -> None:
        self.config = config
        self.peer = peer
        self.paths = paths
        self.log = log
        self.recent: list[list[tuple[int, int, int]]] = [[] for _ in range(paths.planes)]  # (found guilty at, EV, packet sent at)
        self.acked_ns = [0] * paths.planes  # latest departure that is known to have arrived
        self.blamed_ns = -1  # when the endpoint was last blamed
        self.void_before = -1  # losses of packets sent before this are no path's fault

    def excused(self, now: int, sent: int) -> bool:
        """Whether a packet sent then was lost through no fault of its path."""
        return sent < self.void_before

    def guilty(self, now: int, ev: int, sent: int, srtt: int) -> None:
        """An EV has just been given up for a packet sent at ``sent``."""
        paths = self.paths
        plane = paths.plane_of[ev]
        for p in range(paths.planes):
            self.recent[p] = [r for r in self.recent[p] if r[0] >= now - srtt]
        self.recent[plane].append((now, ev, sent))
        open_planes = [p for p in range(paths.planes) if paths.open[p]]
        bad = [p for p in open_planes if self._qualifies(p)]
        if plane not in bad:
            return
        if 2 * len(bad) > len(open_planes):
            if self.blamed_ns < 0 or now - self.blamed_ns > PATIENCE * srtt:
                self._blame_endpoint(now, bad)
        elif paths.live_planes() > 1 or paths.usable[plane] == 0:
            self._suspect(now, plane, srtt)

    def _qualifies(self, plane: int) -> bool:
        recent = self.recent[plane]
        if not recent:
            return False
        evs = {ev for _, ev, _ in recent}
        in_use = len(evs | set(self.paths.active[plane]))
        if len(evs) < max(2, self.paths.wanted[plane] // 4) and in_use > 1:
            return False
        return self.acked_ns[plane] < min(sent for _, _, sent in recent)

    def _suspect(self, now: int, plane: int, srtt: int) -> None:
        self.log.append((now, "plane", {"peer": self.peer, "plane": plane, "from": "USED", "to": "SUSPECT", "cause": "all is lost"}))
        self.recent[plane] = []
        for i in range(len(self.paths.evs)):
            if self.paths.plane_of[i] == plane:
                self.paths.suspected(now, i, srtt)

    def _blame_endpoint(self, now: int, bad: list[int]) -> None:
        self.log.append((now, "endpoint", {"peer": self.peer, "planes": bad, "cause": "most planes lose at once: no path is blamed"}))
        self.blamed_ns = now
        self.void_before = now
        for p in bad:
            for _, ev, _ in self.recent[p]:
                if self.paths.state[ev] == ASSUMED_BAD:
                    self.paths.acquit(now, ev, "endpoint blamed")
            self.recent[p] = []
