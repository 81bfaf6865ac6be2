"""Follows the log files of a run while they grow. Reads what is new, whole lines only, and never more than a little at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

MOST = 4 << 20
"""Bytes that one look reads of one file: a screen that starts late catches up in several looks [ours]."""
RUNNER = -1
"""The runner's number among the hosts, as in events.parquet."""
_BULK = (b'"kind":"transfers"', b'"kind":"counters"')
"""Lines that no screen shows and that are most of a long log."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass
class _Tail:
    """A file, how far it has been read, and the beginning of a line whose end is not there yet."""

    path: Path
    host: int
    offset: int = 0
    rest: bytes = b""


@dataclass
class Follower:
    """The logs in one directory: ``h<i>.jsonl`` of agents, ``runner.jsonl`` of the runner."""

    directory: Path
    tails: dict[str, _Tail] = field(default_factory=dict)

    def lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(host, line) of what was written since the last call, in order within a host; the runner is :data:`RUNNER`."""
        for path in sorted(self.directory.glob("*.jsonl")):
            if path.name not in self.tails and (path.stem == "runner" or (path.stem[0] == "h" and path.stem[1:].isdigit())):
                self.tails[path.name] = _Tail(path, RUNNER if path.stem == "runner" else int(path.stem[1:]))
        for tail in self.tails.values():
            yield from self._new(tail)

    def _new(self, tail: _Tail) -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            with open(tail.path, "rb") as file:
                file.seek(tail.offset)
                data = file.read(MOST)
        except OSError:  # a fabric that ends takes its files along
            return
        tail.offset += len(data)
        *whole, tail.rest = (tail.rest + data).split(b"\n")
        for raw in whole:
            if any(kind in raw[:80] for kind in _BULK):
                continue
            try:
                yield tail.host, _decode(raw)
            except msgspec.DecodeError:  # a line that a killed writer left unfinished, and another one after it
                continue

    @property
    def behind(self) -> bool:
        """Whether a file holds more than was read: the next look should come at once."""
        for tail in self.tails.values():
            try:
                if os.stat(tail.path).st_size > tail.offset:
                    return True
            except OSError:
                continue
        return False


def shown_run(directory: Path) -> Path | None:
    """The run of a results directory to show: of those that have not ended the one written last, else the last that ended."""
    runs = [path for path in (directory / "raw").glob("*") if (path / "runner.jsonl").exists()]
    return max(runs, key=lambda path: (not (path / "run.json").exists(), written(path)), default=None)


def written(run: Path) -> float:
    """When a log of the run grew last, s since the epoch; 0 without logs."""
    times = []
    for path in run.glob("*.jsonl"):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)
