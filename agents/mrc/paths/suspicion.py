"""Blames the path, the plane, or the endpoint: it looks at verdicts of loss together. One per QP.
Sans-IO.

Theory of operation [ours]. One dead link or T1 kills some EVs of a plane; a dead or silent T0 kills
all of them. To find that out EV by EV would cost a loss on each. So a plane falls under suspicion
when within an RTT at least max(2, a quarter) of its EVs in use (or its only one) lost something
that was sent later than anything on the plane that is known to have arrived. Then all its EVs are
out of use at once and probed. One clean answer brings back those that were not guilty themselves,
two the next time, and so on. What the plane swallowed is no sign of congestion: the window gets it
back.

When more than half of the planes qualify at once, the peer slept, or the acknowledgements do not
get through. Then no EV is demoted, the verdicts of that RTT are void, and the retransmission timer
decides. This happens once; if the losses go on, verdicts stand. The last plane is never suspected;
none is where planes are loaded strictly alike.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from agents.mrc.config import Config
from agents.mrc.paths.path import MAX_PROOF, Path
from agents.mrc.paths.path_set import PathSet
from agents.transport import LONG_AGO, Event

PATIENCE: Final = 8
"""Verdicts stand for so many srtt after the endpoint was blamed."""


class Suspicion:
    def __init__(self, config: Config, peer: int, paths: PathSet, log: list[Event]) -> None:
        self.config = config
        self.peer = peer
        self.paths = paths
        self.log = log
        # (found at, path, packet sent at, bytes)
        self.recent: list[list[tuple[int, Path, int, int]]] = [[] for _ in range(paths.planes)]
        # latest departure that is known to have arrived
        self.acked_ps = vec[i64]([LONG_AGO] * paths.planes)
        self.suspected_ps = [LONG_AGO] * paths.planes
        self.suspicions = [0] * paths.planes
        self.blamed_ps = LONG_AGO  # when the endpoint was last blamed
        # losses of packets sent before this are explained otherwise
        self.void_before = [LONG_AGO] * paths.planes

    def arrived(self, plane: int, sent: int) -> None:
        if sent > self.acked_ps[plane]:
            self.acked_ps[plane] = sent

    def excused(self, plane: int, sent: int) -> bool:
        return sent < self.void_before[plane]

    def lost(self, now: int, path: Path, sent: int, size: int, srtt: int) -> int:
        """Returns the bytes to give back to the window: losses that a dead plane, or the endpoint,
        explains."""
        paths = self.paths
        plane = path.plane
        for p in range(paths.planes):
            self.recent[p] = [r for r in self.recent[p] if r[0] >= now - srtt]
        self.recent[plane].append((now, path, sent, size))
        if not self._qualifies(plane):
            return 0
        open_planes = [p for p in range(paths.planes) if paths.open[p]]
        bad = [p for p in open_planes if self.suspected_ps[p] >= now - srtt or self._qualifies(p)]
        if 2 * len(bad) > len(open_planes) and now - self.blamed_ps > PATIENCE * srtt:
            return self._blame_endpoint(now, bad, srtt)
        if not paths.strict and (paths.live_planes > 1 or paths.usable[plane] == 0):
            return self._suspect(now, plane, srtt)
        return 0

    def _qualifies(self, plane: int) -> bool:
        lossy = {path for _, path, sent, _ in self.recent[plane] if sent > self.acked_ps[plane]}
        in_use = len(lossy | set(self.paths.active[plane]))
        return len(lossy) >= max(2, self.paths.wanted[plane] // 4) or 0 < len(lossy) == in_use

    def _explained(self, now: int, plane: int) -> int:
        self.void_before[plane] = now
        total = sum(size for _, _, _, size in self.recent[plane])
        self.recent[plane] = []
        return total

    def _suspect(self, now: int, plane: int, srtt: int) -> int:
        self.log.append(
            (
                now,
                "plane",
                {
                    "peer": self.peer,
                    "plane": plane,
                    "from": "USED",
                    "to": "SUSPECT",
                    "cause": "all is lost",
                },
            )
        )
        if now - self.suspected_ps[plane] > self.config.forgive_rtts * self.config.base_rtt:
            self.suspicions[plane] = 0
        need = min(1 << self.suspicions[plane], MAX_PROOF)
        self.suspicions[plane] += 1
        self.suspected_ps[plane] = now
        for path in self.paths.all:
            if path.plane == plane:
                self.paths.suspected(now, path, srtt, need)
        return self._explained(now, plane)

    def _blame_endpoint(self, now: int, bad: list[int], srtt: int) -> int:
        self.log.append(
            (
                now,
                "endpoint",
                {
                    "peer": self.peer,
                    "planes": bad,
                    "cause": "most planes lose at once: no path is blamed",
                },
            )
        )
        self.blamed_ps = now
        for p in bad:
            if self.suspected_ps[p] >= now - srtt:
                self.suspected_ps[p] = LONG_AGO
                self.suspicions[p] -= 1
            self.paths.void_verdicts(now, p, now - srtt, "endpoint blamed")
        return sum(self._explained(now, p) for p in range(self.paths.planes))
