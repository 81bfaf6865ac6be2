"""Counts how often the kernel wrote a given message: /dev/kmsg
(Documentation/ABI/testing/dev-kmsg). Others still see every message."""

from __future__ import annotations

import os

SHAPER_LATE = b"htb: too many events!"
"""HTB found more ports due than it could serve in two jiffies (net/sched/sch_htb.c): some frames
left late."""
KMSG = "/dev/kmsg"
RECORD = 8192
"""The kernel refuses a buffer shorter than its longest record (CONSOLE_EXT_LOG_MAX)."""


class KernelLog:
    """Where the log cannot be read (without root, in some containers), :meth:`count` gives None."""

    def __init__(self, path: str = KMSG) -> None:
        self._counted = 0
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self._fd = -1

    def count(self, message: bytes) -> int | None:
        """Call it with one text only: what was read is gone."""
        while self._fd >= 0:
            try:
                record = os.read(self._fd, RECORD)
            except BrokenPipeError:
                # the kernel overwrote what was not read; the next read goes on with what is left
                continue
            except BlockingIOError:
                return self._counted
            except OSError:
                self.close()
                break
            if not record:
                return self._counted
            self._counted += message in record
        return None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
