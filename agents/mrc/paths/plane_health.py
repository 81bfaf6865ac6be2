"""Decides which planes one QP may use: the ports at both ends, hold-down, and the probe that opens
a plane again. Sans-IO.

Times are [ours]: hold-down 2 srtt, doubled with each flap; then probes with doubling gaps.
"""

from __future__ import annotations

from random import Random
from typing import Final

from agents.mrc.config import Config
from agents.mrc.paths.path import Path, jittered
from agents.mrc.paths.path_set import PathSet
from agents.mrc.paths.plane_state import (
    ANSWERED,
    CLOSED,
    DOWN,
    OPENED,
    PROVING,
    STATE_NAMES,
    USED,
    next_state,
)
from agents.transport import LONG_AGO, NEVER, Event

HOLD: Final = 2
MOST_DOUBLINGS: Final = 6


class PlaneHealth:
    """A plane whose port is down when the QP connects begins DOWN."""

    def __init__(
        self, config: Config, peer: int, paths: PathSet, rng: Random, log: list[Event]
    ) -> None:
        n = paths.planes
        self.config = config
        self.peer = peer
        self.paths = paths
        self.rng = rng
        self.log = log
        self.peer_up = [True] * n  # as the peer reports
        self.state = [USED] * n
        self.since_ps = [LONG_AGO] * n  # of the state
        self.flaps = [0] * n
        self.probe_at = [NEVER] * n
        self.gap = [0] * n
        self.next_at = NEVER

    def set_ports(self, now: int, plane: int, own: bool, peers: bool, srtt: int) -> bool:
        """Returns True if this closed the plane."""
        self.peer_up[plane] = peers
        old = self.state[plane]
        if not (own and peers):
            if old != DOWN:
                if old == USED:
                    self._flap(now, plane)
                self._to(
                    now,
                    plane,
                    next_state(old, CLOSED),
                    "port down" if not own else "peer's port down",
                )
                self.probe_at[plane] = NEVER
                self._hurry(now)
                return old == USED
        elif old == DOWN:
            self._to(now, plane, next_state(old, OPENED), "ports up")
            doublings = max(0, min(self.flaps[plane] - 1, MOST_DOUBLINGS))
            self.gap[plane] = srtt
            self.probe_at[plane] = now + (HOLD * srtt << doublings)
            self._refresh()
            self._hurry(now)
        return False

    def _hurry(self, now: int) -> None:
        if USED in self.state:
            return
        for p in range(len(self.state)):
            if self.state[p] == PROVING and self.probe_at[p] > now:
                self.probe_at[p] = now
        self._refresh()

    def _flap(self, now: int, plane: int) -> None:
        if now - self.since_ps[plane] > self.config.forgive_rtts * self.config.base_rtt:
            self.flaps[plane] = 0
        self.flaps[plane] += 1

    def _to(self, now: int, plane: int, state: int, cause: str) -> None:
        self.log.append(
            (
                now,
                "plane",
                {
                    "peer": self.peer,
                    "plane": plane,
                    "from": STATE_NAMES[self.state[plane]],
                    "to": STATE_NAMES[state],
                    "cause": cause,
                },
            )
        )
        self.state[plane] = state
        self.since_ps[plane] = now
        self.paths.set_open(now, plane, state == USED)

    def _refresh(self) -> None:
        self.next_at = min(self.probe_at)

    def due_probe(self, now: int) -> Path | None:
        for p in range(len(self.probe_at)):
            if self.probe_at[p] <= now:
                self.probe_at[p] = now + jittered(self.gap[p], self.rng)
                self.gap[p] = min(2 * self.gap[p], self.config.probe_cap)
                self._refresh()
                lap = self.paths.active[p] or [path for path in self.paths.all if path.plane == p]
                return lap[int(self.rng.random() * len(lap))]
        self._refresh()
        return None

    def answered(self, now: int, plane: int, sent: int) -> bool:
        if self.state[plane] != PROVING or sent < self.since_ps[plane]:
            return False
        self._to(now, plane, next_state(PROVING, ANSWERED), "probed")
        self.probe_at[plane] = NEVER
        self._refresh()
        return True
