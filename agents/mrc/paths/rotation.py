"""Rotates over planes: where a queue pair begins, and the account that a run is checked with.
Sans-IO.

First planes are dealt to the queue pairs of a host, like cards. If all rotations began on plane 0,
all hosts would use the same plane at the same moment. Independent draws left planes 6 to 13 %
apart: 12 queue pairs with 12 packets each on 8 planes [measured].

What one host deals evenly still meets what others dealt at a receiver. An all-to-all of 32 in
messages of 12 packets took 1.18 times what RoCE takes on one plane. So queue pairs have wishes
(:class:`Wishes`), which are even at receivers, too: 1.11 times [measured, ours].
"""

from __future__ import annotations

from math import gcd
from random import Random
from typing import TYPE_CHECKING, Final

from topologies.clos import Fabric

if TYPE_CHECKING:
    from agents.mrc.sender.requester import Requester

GOLDEN: Final = 0.618


class Deal:
    """Deals numbers below ``count`` in shuffled rounds [ours]. ``rng`` is its own stream."""

    def __init__(self, count: int, rng: Random) -> None:
        self.count = count
        self.rng = rng
        self.left: list[int] = []

    def next(self, wish: int = -1) -> int:
        if not self.left:
            self.left = list(range(self.count))
            self.rng.shuffle(self.left)
        if wish in self.left:
            self.left.remove(wish)
            return wish
        return self.left.pop()


class Wishes:
    """Wishes of a host's queue pairs for their first plane: ``step`` x how far the peer's number is
    ahead + ``own`` x the host's, modulo the planes.

    ``step`` is near the golden part of the planes and shares no divisor with them: consecutive
    peers get all planes, and a few get planes far apart. ``step - own`` shares none either:
    consecutive senders of one receiver begin on different planes.
    """

    def __init__(self, fabric: Fabric, host: int, seed: int) -> None:
        n = fabric.planes
        self.planes = n
        self.hosts = fabric.host_count
        self.host = host
        self.step = min(
            (k for k in range(1, n + 1) if gcd(k, n) == 1), key=lambda k: abs(k - GOLDEN * n)
        )
        own = min((k for k in range(n) if gcd(self.step - k, n) == 1), key=lambda k: (gcd(k, n), k))
        self.first = Random(f"wishes/{seed}").randrange(n) + own * host + host // n

    def plane(self, peer: int, lane: int) -> int:
        return (self.first + self.step * ((peer - self.host) % self.hosts) + lane) % self.planes


class Account:
    def __init__(self, planes: int) -> None:
        self.due = [0] * planes
        self.first = [0] * planes
        self.passed = self.unsure = 0

    def add(self, r: Requester) -> None:
        if r.plane < 0:
            return
        n = len(self.due)
        self.passed += r.turns_passed
        if r.first_plane < 0 or not r.begun_as_dealt:
            self.unsure += 1
        else:
            self.first[r.first_plane] += 1
        count = r.data_tx - r.retransmitted
        for k in range(n):
            self.due[(r.first_plane + k) % n] += (count + n - 1 - k) // n

    def report(
        self, others: list[Requester], sent: list[int], repeats: int
    ) -> dict[str, int | list[int]]:
        """``sent``: first transmissions, as counted on the ports; ``repeats``: those by the plane
        of the one before. docs/reference/results.md explains the keys."""
        total = Account(len(sent))
        total.due, total.first, total.passed, total.unsure = (
            self.due[:],
            self.first[:],
            self.passed,
            self.unsure,
        )
        for r in others:
            total.add(r)
        return {
            "sent": sent,
            "due": total.due,
            "first": total.first,
            "passed": total.passed,
            "unsure": total.unsure,
            "repeats": repeats,
        }
