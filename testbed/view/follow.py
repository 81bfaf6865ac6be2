"""Follows runs while their files grow: what :mod:`testbed.view.read` gives of a run that is over, a little at a time.

For the server of a living view. It only reads: what it is slow with, the run does not notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from testbed.errors import UserError
from testbed.view.fold import Fold, Frame
from testbed.view.read import BEGUN, read_run

LAG_NS = 300_000_000
"""Of the run's clock: how long after the newest line others may still come. Agents write what they have ten times a second [ours]."""
PORTION = 1 << 20
"""Bytes of a file in one look."""


class Follower:
    """One run of a results directory. Raises :class:`UserError` if it has not begun."""

    def __init__(self, directory: Path, key: str) -> None:
        self.raw = directory / "raw" / key
        self.run = read_run(directory, key)
        self.over = False
        self._fold = Fold(self.run)
        self._offsets: dict[Path, int] = {}
        self._begun = False

    def look(self) -> Iterator[Frame]:
        """Frames of what was written since the last look."""
        if not self._begun:
            self._begun = True
            yield self.run.header()
        complete = (self.raw / "run.json").is_file()  # asked first: what is written until then is read below
        more = False
        for path in sorted(self.raw.glob("*.jsonl")):
            with suppress(OSError), open(path, "rb") as file:  # a run that is made again takes its files along
                file.seek(self._offsets.get(path, 0))
                data = file.read(PORTION)
                self._offsets[path] = file.tell()
                more = more or len(data) == PORTION
                self._fold.feed(path.stem, data)
        if complete and not more:
            self.over = True
            yield from self._fold.close()
        else:
            yield from self._fold.frames(self._fold.newest - LAG_NS)


class Following:
    """The runs of a results directory that begin from now on, or have begun and are not over."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.followers: dict[str, Follower] = {}
        self._names: dict[str, str] = {}  # of the frames' sources: a run that is made again is another one
        self._written: dict[Path, int] = {}
        self._over = set(self._paths("run.json"))

    def look(self) -> Iterator[tuple[str, Frame]]:
        """(source, frame) of what is new."""
        for path in [*self._paths(BEGUN), *(path for path in self._paths("run.json") if path not in self._over)]:
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
            follower = Follower(self.directory, key)
            if known is None or known.run.t0 != follower.run.t0:
                self.followers[key] = follower
                self._names[key] = key if known is None else f"{self._names[key]}+"
