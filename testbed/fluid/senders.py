"""How soon MRC's senders leave a path that died, and how soon they use it again: the endpoint's own rules, without jitter.

Each method names the rule that it follows; the constants are those of :mod:`agents.mrc`. Times are ns of the fabric's clock, rates bits/s
on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from agents.mrc.config import Config
from agents.mrc.paths.path import MAX_PROOF
from agents.mrc.paths.plane_health import HOLD, MOST_DOUBLINGS
from agents.mrc.sender.congestion.nscc import MAX_BDP
from topologies import Fabric

BUSY_RTTS = 1.15
"""Smoothed RTT of a sender under load, in base RTTs [measured: 1.14 to 1.17 in simulated rings on demo and rack16]."""


@dataclass(frozen=True)
class Loss:
    """A path died at 0. ``last_ns``: when its last packet leaves; ``known_ns``: when the sender knows of the losses and sends the packets
    again; ``verdict_ns``: when the path is ASSUMED_BAD; ``there_ns``: when the packets have arrived; ``packets`` lost on one EV."""

    last_ns: int
    known_ns: int
    verdict_ns: int
    there_ns: int
    packets: int


@dataclass(frozen=True)
class Senders:
    """The rules for one fabric and one set of the endpoint's options."""

    fabric: Fabric
    config: Config

    @classmethod
    def of(cls, fabric: Fabric, options: dict[str, Any]) -> Senders:
        """Raises :class:`topologies.structs.Refused` on an option that MRC does not have."""
        return cls(fabric, Config.from_fabric(fabric, options))

    @property
    def rtt(self) -> int:
        return self.fabric.base_rtt_ns

    @property
    def busy_rtt(self) -> int:
        """A round trip under load."""
        return round(BUSY_RTTS * self.rtt)

    def evs(self, paths: int) -> int:
        """EVs that a queue pair uses in a plane with so many paths (PathSet)."""
        return max(1, min(paths, self.config.active_evs // self.fabric.planes))

    def loss(self, rate: float, evs: int, slack_ns: float) -> Loss:
        """What becomes of an EV that died, of a queue pair that sends ``rate`` over ``evs`` in all.

        ``slack_ns``: for how long the sender has something to send although nothing arrives at its own rank. While it sends, later packets
        show what is missing: a packet is lost after the RTT and the reordering window, one base RTT (rule 2 of agents/mrc/sender/loss.py),
        and the EV gets no more data once its oldest packet is overdue by one of its gaps (Path.on_hold) or its share of the window is in
        flight (PathSet.pick). A ring that stalls stops sooner, half an RTT after the first packet is missing at the next rank. Then only a
        tail probe can show the loss: it leaves two smoothed RTTs after the last SACK (agents/mrc/sender/timers.py).
        """
        back = self.busy_rtt
        gap = evs * self.fabric.frame_bytes * 8e9 / rate
        share = ceil(MAX_BDP * self.fabric.plane_bdp * self.fabric.planes / self.fabric.mtu / evs) + 1
        known = back + self.rtt
        last = min(back + gap, share * gap)
        if slack_ns < known:
            last = min(last, self.rtt / 2 + slack_ns)
            known = max(known, round(last) + back + 2 * back + back)
        packets = min(round(last / gap) + 1, share)  # and the one that was on its way
        verdict = known + (back // 4 if self.fabric.trimming else 0)  # a NACK may yet explain it (agents/mrc/sender/doubts.py)
        return Loss(round(last), known, verdict, known + self.rtt // 2, packets)

    @property
    def told_ns(self) -> int:
        """Until a peer knows that a port here is down or up: half an RTT for a Port Status Update (agents/mrc/neighbours.py)."""
        return self.rtt // 2

    def readmitted_ns(self, given_up: int, up: int, flaps: int, alone: bool = False) -> int:
        """When a path carries data again that was given up and mended at these times, for the ``flaps``-th time.

        Probes leave an RTT after the verdict, then with doubling gaps up to the cap; one that is not lost leaves half a gap after the
        mending, on average. From then on a probe leaves an RTT after each answer, until enough came back in a row: twice as many with every
        flap (PathSet.probe_answered). ``alone``: the first path of a plane without any returns after one answer.
        """
        back = self.busy_rtt
        gap, at = back, given_up + back
        while at + gap < up:  # probes that are not answered
            gap = min(2 * gap, max(self.config.probe_cap, 2 * back))
            at += max(gap, 2 * back)
        first = at if at >= up else up + gap // 2
        need = 1 if alone and flaps <= 1 else min(self.config.probe_successes << max(0, flaps - 1), MAX_PROOF)
        return first + self.rtt + (need - 1) * 2 * back

    def port_back_ns(self, flaps: int) -> int:
        """From the return of a port until its plane carries data: the peer is told, a hold-down of two RTTs that doubles with every flap,
        and one answered probe (agents/mrc/paths/plane_health.py)."""
        return self.told_ns + (HOLD * self.busy_rtt << min(max(0, flaps - 1), MOST_DOUBLINGS)) + self.rtt
