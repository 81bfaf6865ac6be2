"""The rotation over planes: where it begins, and the account that a run's books are checked with. Sans-IO.

First planes are dealt to the queue pairs of a host, like cards. If all rotations began on plane 0, the queue pairs of all hosts would be on
the same plane at the same moment, and messages that are no multiple of the planes would load the first planes twice. Independent draws are
not even enough either (12 queue pairs with 12 packets each on 8 planes: planes 6 to 13 % apart) [measured].

What one host deals evenly still meets what others dealt at a receiver: with shuffled rounds alone an all-to-all of 32 in messages of 12
packets took 1.18 times what RoCE takes on one plane, since some receivers got 5 packets more on one plane than on another. So queue pairs
have wishes (:class:`Wishes`), which follow from the two hosts' numbers alone and are as even at receivers: 1.11 times [measured, ours].
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
    """A deal of numbers below ``count`` in shuffled rounds, each once a round [ours]. ``rng``: a stream of its own, so that no other draw
    depends on how many were dealt. One deal per endpoint and purpose."""

    def __init__(self, count: int, rng: Random) -> None:
        self.count = count
        self.rng = rng
        self.left: list[int] = []

    def next(self, wish: int = -1) -> int:
        """Return the next number of this round, or the first of a new one: ``wish`` if it is left."""
        if not self.left:
            self.left = list(range(self.count))
            self.rng.shuffle(self.left)
        if wish in self.left:
            self.left.remove(wish)
            return wish
        return self.left.pop()


class Wishes:
    """Wishes of a host's queue pairs for their first plane: ``step`` x how far the peer's number is ahead + ``own`` x the host's, modulo
    the planes.

    ``step`` is near the golden part of the planes and shares no divisor with them: consecutive peers get all planes, and a few of them get
    planes far apart, so that rotations shorter than a lap cover different ones. ``step - own`` shares none either: consecutive senders of
    one receiver begin on different planes. Neighbours in a ring differ as much as both allow.
    """

    def __init__(self, fabric: Fabric, host: int, seed: int) -> None:
        n = fabric.planes
        self.planes = n
        self.hosts = fabric.host_count
        self.host = host
        self.step = min((k for k in range(1, n + 1) if gcd(k, n) == 1), key=lambda k: abs(k - GOLDEN * n))
        own = min((k for k in range(n) if gcd(self.step - k, n) == 1), key=lambda k: (gcd(k, n), k))
        self.first = Random(f"wishes/{seed}").randrange(n) + own * host + host // n

    def plane(self, peer: int, lane: int) -> int:
        """Return the first plane of queue pair number ``lane``, from 0, with this peer."""
        return (self.first + self.step * ((peer - self.host) % self.hosts) + lane) % self.planes


class Account:
    """The rotation of a host's queue pairs, in packets, by plane."""

    def __init__(self, planes: int) -> None:
        self.due = [0] * planes
        self.first = [0] * planes
        self.passed = self.unsure = 0

    def add(self, r: Requester) -> None:
        """Enter what a queue pair has sent."""
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

    def report(self, others: list[Requester], sent: list[int], repeats: int) -> dict[str, int | list[int]]:
        """Return the account of those entered and ``others``. ``sent``: packets that left for the first time, as the endpoint counted them
        on its ports; ``repeats``: those of them that left by the plane of the one before.

        ``due``: how many a strict rotation puts there, from the plane of each queue pair's first packet on; ``first``: queue pairs that
        began there. ``passed``: turns of planes that could not take a packet, each of which moves one; ``unsure``: queue pairs whose first
        packet met such a plane, or that were dealt a plane and have sent nothing: they are not in ``first``.
        """
        total = Account(len(sent))
        total.due, total.first, total.passed, total.unsure = self.due[:], self.first[:], self.passed, self.unsure
        for r in others:
            total.add(r)
        return {
            "sent": sent, "due": total.due, "first": total.first, "passed": total.passed, "unsure": total.unsure, "repeats": repeats,
        }  # fmt: skip
