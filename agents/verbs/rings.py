"""The rings that a program's library and its agent share. The agent believes nothing that it reads
there."""

from __future__ import annotations

import fcntl
import os
import threading
from typing import Final

from agents.verbs import layout
from agents.verbs.mapping import Mapping

_WORD: Final = (1 << 32) - 1
_TAIL: Final = layout.TAIL_AT >> 2
_HEAD: Final = layout.HEAD_AT >> 2
_FLAG: Final = layout.FLAG_AT >> 2
_FAILED: Final = layout.FAILED_AT >> 2
_LOCK: Final = threading.Lock()


class Garbage(Exception):
    """A ring holds what no library of ours writes."""


def fence() -> None:
    """Make this thread's stores visible before its next loads, by taking a lock: needed where
    either side stores one word, then looks at the other's."""
    _LOCK.acquire()
    _LOCK.release()


class Shared:
    """:meth:`take_fd` gives the descriptor away, once."""

    def __init__(self, name: str, entries: int) -> None:
        size = layout.RINGS_AT + entries * layout.SLOT
        self._fd = os.memfd_create(f"mrcbed-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, size)
            fcntl.fcntl(
                self._fd,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL,
            )
            self.mapping = Mapping(self._fd, 0, size)
        except OSError:
            os.close(self._fd)
            raise
        self.map = self.mapping.view
        self.words = self.map[: layout.RINGS_AT].cast("I")
        self.entries = entries

    def take_fd(self) -> int:
        fd, self._fd = self._fd, -1
        return fd


class WorkRing(Shared):
    def __init__(self) -> None:
        super().__init__("work", layout.SLOTS)
        self.head = 0
        self.awake = False
        self.sleep()

    def sleep(self) -> None:
        """Let the program ring when it posts. The caller looks at the ring once more afterwards."""
        self.awake = False
        self.words[_FLAG] = 1
        fence()

    def wake(self) -> None:
        if not self.awake:
            self.awake = True
            self.words[_FLAG] = 0

    def waiting(self) -> int:
        """Raises :class:`Garbage`."""
        count: int = (self.words[_TAIL] - self.head) & _WORD
        if count > layout.SLOTS:
            raise Garbage(f"{count} slots wait in a ring of {layout.SLOTS}")
        return count

    def place(self) -> int:
        return layout.RINGS_AT + (self.head & layout.SLOTS - 1) * layout.SLOT

    def taken(self, slots: int) -> None:
        self.head = (self.head + slots) & _WORD
        self.words[_HEAD] = self.head


class CompletionRing(Shared):
    def __init__(self, entries: int) -> None:
        super().__init__("cq", entries)
        self.tail = 0

    def room(self) -> bool:
        return (self.tail - self.words[_HEAD]) & _WORD < self.entries

    def put(self, fields: tuple[int, ...]) -> None:
        layout.CQE.pack_into(
            self.map, layout.RINGS_AT + (self.tail & self.entries - 1) * layout.SLOT, *fields
        )
        self.tail = (self.tail + 1) & _WORD
        self.words[_TAIL] = self.tail

    def armed(self) -> int:
        """Entries put before must be in the program's sight."""
        fence()
        return int(self.words[_FLAG])

    def disarm(self) -> None:
        self.words[_FLAG] = 0

    def fail(self) -> None:
        self.words[_FAILED] = 1
