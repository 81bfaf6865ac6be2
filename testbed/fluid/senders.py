"""How soon MRC's senders leave a path that died, and how soon they use it again: the endpoint's own rules, without jitter and queues.

Each function names the rule that it follows; the constants are those of :mod:`agents.mrc`. Times are ns of the fabric's clock. An RTT is the
base RTT: the fluid world has no queues.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from agents.mrc.config import Config
from agents.mrc.paths.path import MAX_PROOF
from agents.mrc.paths.plane_health import HOLD, MOST_DOUBLINGS
from topologies import Fabric


@dataclass(frozen=True)
class Senders:
    """The rules for one fabric and one set of the endpoint's options. Raises ValueError on an option that MRC does not have."""

    fabric: Fabric
    config: Config

    @classmethod
    def of(cls, fabric: Fabric, options: dict[str, Any]) -> Senders:
        return cls(fabric, Config.from_fabric(fabric, options))

    @property
    def rtt(self) -> int:
        return self.fabric.base_rtt_ns

    @property
    def lost_ns(self) -> int:
        """From a packet's departure until its sender knows that it is lost: the largest recent RTT and the reordering window, which is one
        base RTT at least (rule 2 of agents/mrc/sender/loss.py)."""
        return 2 * self.rtt

    @property
    def held_ns(self) -> int:
        """From the death of a path until it gets no new data: its oldest packet is overdue after an RTT (Path.on_hold)."""
        return self.rtt

    @property
    def told_ns(self) -> int:
        """Until a peer knows that a port here is down or up: a Port Status Update travels half an RTT (agents/mrc/neighbours.py)."""
        return self.rtt // 2

    @property
    def verdict_ns(self) -> int:
        """From the death of a path until it is ASSUMED_BAD: where switches trim, a NACK may explain the loss for another quarter of an RTT
        (agents/mrc/sender/doubts.py)."""
        return self.lost_ns + (self.rtt // 4 if self.fabric.trimming else 0)

    def evs(self, paths: int) -> int:
        """EVs of a queue pair in one plane that has so many paths (PathSet)."""
        return max(1, min(paths, self.config.active_evs // self.fabric.planes))

    def losses(self, rate: float, evs: int) -> int:
        """Packets that one dead EV costs a queue pair which sends ``rate`` bits/s on the wire over ``evs`` in all: those that leave from half
        an RTT before the death, when they were on their way, until the path is held; at most its share of the window and one (PathSet.pick).
        """
        window = self.fabric.plane_bdp * self.fabric.planes / self.fabric.mtu
        sent = rate * (self.held_ns + self.rtt // 4) / 8e9 / self.fabric.frame_bytes / evs
        return min(max(1, round(sent)), ceil(window / evs) + 1)

    def readmitted_ns(self, given_up: int, up: int, flaps: int, alone: bool = False) -> int:
        """When a path carries data again that was given up at one time and mended at another, for the ``flaps``-th time.

        Probes go out an RTT after the verdict, then with doubling gaps up to the cap; after the first answer one goes out an RTT after each
        answer, until enough came back in a row: twice as many with every flap (PathSet.probe_answered). ``alone``: the first path of a plane
        without any returns after one answer.
        """
        gap, at = self.rtt, given_up + self.rtt
        while at < up:  # a probe that meets the break is not answered
            gap = min(2 * gap, max(self.config.probe_cap, 2 * self.rtt))
            at += max(gap, 2 * self.rtt)
        need = 1 if alone and flaps <= 1 else min(self.config.probe_successes << max(0, flaps - 1), MAX_PROOF)
        return at + self.rtt + (need - 1) * 2 * self.rtt

    def port_back_ns(self, flaps: int) -> int:
        """From the return of a port until its plane carries data: the peer is told, a hold-down of two RTTs that doubles with every flap,
        and one answered probe (agents/mrc/paths/plane_health.py)."""
        return self.told_ns + (HOLD * self.rtt << min(max(0, flaps - 1), MOST_DOUBLINGS)) + self.rtt
