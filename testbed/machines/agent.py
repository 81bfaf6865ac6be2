"""The agent of a host on another machine."""

from __future__ import annotations

import os
import threading
from typing import Any

from agents.transport import Note
from testbed.machines.channel import Channel


class RemoteAgent:
    def __init__(self, channel: Channel, host: int) -> None:
        self.channel, self.host = channel, host
        self._notes: list[Note] = []
        self._lock = threading.Lock()
        self._ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._hung_up = False

    def call(self, op: str, **args: Any) -> Any:
        return self.channel.ask("agent", host=self.host, call=op, args=args)

    def fileno(self) -> int:
        """The descriptor is readable while there is a notification, and once the agent is gone."""
        return self._ready

    @property
    def closed(self) -> bool:
        return self._hung_up or self.channel.ended

    def hear(self, note: Note) -> None:
        with self._lock:
            self._notes.append(note)
            os.eventfd_write(self._ready, 1)

    def hang_up(self) -> None:
        with self._lock:
            self._hung_up = True
            if self._ready >= 0:
                os.eventfd_write(self._ready, 1)

    def notifications(self) -> list[Note]:
        with self._lock:
            notes, self._notes = self._notes, []
            if not self.closed:
                try:
                    os.eventfd_read(self._ready)
                except BlockingIOError:
                    pass
            return notes

    def close(self) -> None:
        with self._lock:
            ready, self._ready = self._ready, -1
            if ready >= 0:
                os.close(ready)
