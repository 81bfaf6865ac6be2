"""Where rotations begin: planes dealt to the queue pairs of a host, like cards. Sans-IO; one deal per endpoint and purpose.

If all rotations began on plane 0, the queue pairs of all hosts would be on the same plane at the same moment, and messages that are no
multiple of the planes would load the first planes twice. Independent draws are not even enough either (12 queue pairs with 12 packets each
on 8 planes: planes 6 to 13 % apart) [measured].
"""

from __future__ import annotations

from random import Random


class Deal:
    """Numbers below ``count`` in shuffled rounds, each once a round [ours]. ``rng``: a stream of its own, so that no other draw depends on
    how many were dealt."""

    def __init__(self, count: int, rng: Random) -> None:
        self.count = count
        self.rng = rng
        self.left: list[int] = []

    def next(self) -> int:
        """The next number of this round, or the first of a new one."""
        if not self.left:
            self.left = list(range(self.count))
            self.rng.shuffle(self.left)
        return self.left.pop()
