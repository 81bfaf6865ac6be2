"""Queue-pair numbers: which are in use, and which is next."""

from __future__ import annotations

from agents.packets.headers import PSN_MASK


class Numbers:
    def __init__(self, first: int, upcoming: int) -> None:
        self.first = first
        self.upcoming = upcoming
        self.taken: set[int] = set()  # by queue pairs, or reserved
        self.reserved: set[int] = set()

    def reserve(self) -> int:
        qpn = self._next()
        self.reserved.add(qpn)
        return qpn

    def _next(self) -> int:
        if len(self.taken) > PSN_MASK - self.first:
            raise ValueError("all queue-pair numbers are in use")
        while self.upcoming in self.taken:
            self._step()
        qpn = self.upcoming
        self._step()
        self.taken.add(qpn)
        return qpn

    def _step(self) -> None:
        self.upcoming = self.upcoming + 1 if self.upcoming < PSN_MASK else self.first

    def take(self, wanted: int) -> int:
        """Take the next number, or ``wanted`` (>= 0). Raises ValueError if that is neither reserved
        nor free."""
        if wanted < 0:
            return self._next()
        if wanted in self.reserved:
            self.reserved.remove(wanted)
        elif wanted in self.taken or not self.first <= wanted <= PSN_MASK:
            raise ValueError(
                f"queue-pair number {wanted:#x} is in use or not in {self.first:#x}..{PSN_MASK:#x}"
            )
        else:
            self.taken.add(wanted)
        return wanted

    def release(self, qpn: int) -> None:
        """Raises ValueError if the number is not taken."""
        if qpn not in self.taken:
            raise ValueError(f"there is no queue pair {qpn:#x}")
        self.taken.remove(qpn)
        self.reserved.discard(qpn)
