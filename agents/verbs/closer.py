"""Closing what comes from programs, beside the agent's loop: a socket that lingers takes as long over that as its owner likes, and so may a
file of a file system of the program's own."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from queue import SimpleQueue


class Closer:
    """Its thread begins with the first descriptor."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[int] = SimpleQueue()
        self.begun = False

    def close(self, fd: int) -> None:
        if not self.begun:
            self.begun = True
            threading.Thread(target=self.work, name="closer", daemon=True).start()
        self.waiting.put(fd)

    def work(self) -> None:
        while (fd := self.waiting.get()) >= 0:
            with suppress(OSError):
                os.close(fd)

    def behind(self) -> int:
        """Return how many descriptors wait."""
        return self.waiting.qsize()

    def end(self) -> None:
        """Let the thread end, after all that waits."""
        self.waiting.put(-1)
