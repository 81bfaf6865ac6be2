"""Closes what comes from programs in a thread of its own: a lingering socket, or a file of a
program's file system, takes as long as its owner likes."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from queue import SimpleQueue


class Closer:
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
        return self.waiting.qsize()

    def end(self) -> None:
        self.waiting.put(-1)
