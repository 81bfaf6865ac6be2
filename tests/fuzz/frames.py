"""Targets ``mrc-frame`` and ``roce-frame``: an input is one frame, handed to one of two endpoints
that transfer data meanwhile.

The stories of ``mrc`` and ``roce`` find what several things in a row do, and take milliseconds
each; here it is numbers that count. What goes on besides depends on how many inputs a pair has had,
so a pair's inputs since it was made (``story``) show a finding again.
"""

from __future__ import annotations

from tests.fuzz.mrc_pair import MrcPair
from tests.fuzz.pair import GUARD, MARK, Pair
from tests.fuzz.reader import Reader
from tests.fuzz.roce_pair import RocePair
from topologies.units import NS

AGE = 4000
"""Inputs after which a pair is made anew."""
TURN = 8
"""Inputs between two turns of the honest transfer."""
TICK = 200 * NS


class Frames:
    """First byte: what is done to the frame beside edits; the rest as in pair.py."""

    max_len = 260
    words: tuple[bytes, ...] = ()

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    @property
    def story(self) -> list[bytes]:
        return self.pair.story

    def renew(self) -> None:
        self.pair.renew()

    def one(self, data: bytes) -> None:
        """Raises AssertionError, or whatever the code under test lets out."""
        pair = self.pair
        if pair.age >= AGE or pair.broken():
            pair.renew()
        pair.age += 1
        pair.story.append(data)
        if pair.age % TURN == 1:
            self.turn(pair.age // TURN)
        r = Reader(data)
        pair.hostile(r, r.u8() & 3)
        for arena in pair.arenas:
            assert arena.startswith(MARK) and arena.endswith(MARK), (
                "memory outside the region changed"
            )

    def turn(self, n: int) -> None:
        """Something is always on its way: a message now and then, some frames carried, some lost,
        time."""
        pair = self.pair
        if n % 4 == 0:
            pair.post(n >> 2 & 1, 1 + (4000 + n * 257) % (4 * GUARD), n & 0xFF if n & 8 else -1)
        pair.carry(3, lose=n % 5 == 0)
        pair.wait(TICK << n % 6)
        pair.look()

    def seeds(self) -> list[bytes]:
        """Each kind of frame as it was, to either side; cut; short by some bytes; with a field
        changed; one that is awaited; noise."""
        made = []
        for k in range(len(self.pair.templates)):
            made += [bytes([0, k & 1, k]), bytes([2, 1, k]) if k & 1 else bytes([1, 0x11, k, k])]
        fields = (90, 91, 95, 98, 102, 105, 108, 110, 111, 114, 117)
        return [
            *made,
            *(bytes([0, 5, 192, at, 0x5A]) for at in fields),
            bytes([0, 0xF0, 130, *range(130)]),
        ]


class MrcFrames(Frames):
    def __init__(self) -> None:
        super().__init__(MrcPair())

    def seeds(self) -> list[bytes]:
        """And a WRITE that names a region nobody has."""
        return [*super().seeds(), bytes([0, 4, 2, 118, 0x5A])]


class RoceFrames(Frames):
    def __init__(self) -> None:
        super().__init__(RocePair())
