"""Follows runs while their files grow: gives the frames of :mod:`testbed.view.read`, a little at a
time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from testbed.errors import UserError
from testbed.view.fold import Fold, Frame
from testbed.view.read import BEGUN, read_run
from testbed.view.run import Run
from topologies.files import opened

LAG_S = 0.3
"""Wall time after a line in which earlier ones may still come [ours]: agents write ten times a
second. After as long without any line, the follower waits for none."""
PORTION = 1 << 20


class Follower:
    def __init__(self, raw: Path, run: Run) -> None:
        self.raw = raw
        self.run = run
        self.behind = False
        self.over = False
        self._fold = Fold(run)
        self._offsets: dict[Path, int] = {}
        self._begun = False
        self._grew = time.monotonic()
        # when a look was, and the latest time that a line had then
        self._newest = deque([(self._grew, run.t0)])

    def look(self) -> Iterator[Frame]:
        if not self._begun:
            self._begun = True
            yield self.run.header()
        # asked first: what is written until then is read below
        complete = (self.raw / "run.json").is_file()
        self.behind = False
        for path in sorted(self.raw.glob("*.jsonl")):
            # a run that is made again takes its files along
            with suppress(OSError), opened(path) as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read(PORTION)
                self._offsets[path] = file.tell()
                self.behind = self.behind or len(data) == PORTION
                self._fold.feed(path.stem, data)
                if data:
                    self._grew = time.monotonic()
        if complete and not self.behind:
            self.over = True
            yield from self._fold.close()
        else:
            now = time.monotonic()
            self._newest.append((now, self._fold.newest))
            while len(self._newest) > 1 and self._newest[1][0] <= now - LAG_S:
                self._newest.popleft()
            yield from self._fold.frames(None if now - self._grew > LAG_S else self._newest[0][1])


class Following:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.followers: dict[str, Follower] = {}
        # of the frames' sources: a run that is made again is another one
        self._names: dict[str, str] = {}
        self._written: dict[Path, int] = {}
        self._over = set(self._paths("run.json"))

    def look(self) -> Iterator[tuple[str, Frame]]:
        for path in [
            *self._paths(BEGUN),
            *(path for path in self._paths("run.json") if path not in self._over),
        ]:
            with suppress(OSError):
                written = path.stat().st_mtime_ns
                if self._written.get(path) != written:
                    self._find(path.parent.name)
                    self._written[path] = written
        for key, follower in self.followers.items():
            if not follower.over:
                for frame in follower.look():
                    yield self._names[key], frame

    def _paths(self, name: str) -> list[Path]:
        return sorted((self.directory / "raw").glob(f"*/{name}"))

    def _find(self, key: str) -> None:
        known = self.followers.get(key)
        with suppress(UserError):  # half a file: the next look finds it whole
            follower = Follower(self.directory / "raw" / key, read_run(self.directory, key))
            if known is None or known.run.t0 != follower.run.t0:
                self.followers[key] = follower
                self._names[key] = key if known is None else f"{self._names[key]}+"
