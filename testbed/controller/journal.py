"""The journal of events, in order, and readers that follow it. A reader that does not keep up loses
entries and is told how many."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

JOURNAL_LENGTH = 10_000
READER_LENGTH = 1_000
"""Entries that wait for a reader before it loses some [ours]; every link of the largest fabric
failing at once makes 320."""
MAX_READERS = 32
OWNERS_READERS = 8
KEEPALIVE_S = 15.0
"""Interval of empty lines to a reader: only writing shows that it is gone [ours]."""

Entry = dict[str, Any]


class TooManyReaders(Exception):
    """There are as many readers of the journal as may be."""


class Journal:
    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=JOURNAL_LENGTH)
        self._readers: list[Reader] = []

    def add(self, now: int, event: str, **fields: Any) -> None:
        """Add an entry. Each has a time of its own, if need be a picosecond later, so that a reader
        can say where it stopped."""
        if self.entries and now <= self.entries[-1]["t_ps"]:
            now = self.entries[-1]["t_ps"] + 1
        entry = {"t_ps": now, "event": event, **fields}
        self.entries.append(entry)
        for reader in self._readers:
            reader.offer(entry)

    def since(self, t_ps: int) -> list[Entry]:
        return [entry for entry in self.entries if entry["t_ps"] > t_ps]

    def follow(self, since: int | None, most: int = MAX_READERS) -> Reader:
        """Raises :class:`TooManyReaders` if there are ``most``."""
        if len(self._readers) >= most:
            raise TooManyReaders
        reader = Reader(self, [] if since is None else self.since(since))
        self._readers.append(reader)
        return reader

    def forget(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)

    @property
    def readers(self) -> int:
        return len(self._readers)


class Reader:
    def __init__(self, journal: Journal, replay: list[Entry]) -> None:
        self._journal = journal
        self._waiting: list[Entry] = []
        self._replay = replay
        self._missed = 0
        self._news = threading.Event()  # a green one in the controller, where threads are patched

    def offer(self, entry: Entry) -> None:
        if len(self._waiting) < READER_LENGTH:
            self._waiting.append(entry)
        else:
            self._missed += 1
        self._news.set()

    def take(self) -> list[Entry]:
        entries, self._waiting = self._replay + self._waiting, []
        self._replay = []
        if self._missed:
            after = entries[-1]["t_ps"]
            entries.append({"t_ps": after, "event": "missed", "count": self._missed})
            self._missed = 0
        self._news.clear()
        return entries

    def __iter__(self) -> Iterator[bytes]:
        while True:
            entries = self.take()
            if entries:
                yield b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
            elif not self._news.wait(KEEPALIVE_S):
                yield b"\n"

    def close(self) -> None:
        self._journal.forget(self)
