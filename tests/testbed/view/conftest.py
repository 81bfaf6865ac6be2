"""A results directory of a simulated run, whole, and as it is while the run goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from scenarios.run.simulate import simulate
from testbed.view.read import BEGUN, first_of_each
from tests.scenarios.small import small, undrawn


@pytest.fixture(scope="session")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One seed, three transports, a cable that dies."""
    directory = tmp_path_factory.mktemp("complete")
    with undrawn():
        (directory / "out").mkdir()
        simulate(small(directory, seeds=[1]), directory / "out")
    return directory / "out"


class Growing:
    """``directory``, in which one run of ``source`` comes to be. Its files may be read by everyone,
    as those of a run."""

    def __init__(self, source: Path, directory: Path) -> None:
        self.source, self.directory = source, directory
        self.key = first_of_each(source)[0]
        self.raw = directory / "raw" / self.key
        self.raw.mkdir(parents=True)
        begin, end = json.loads((source / "raw" / self.key / "run.json").read_text())["window"]
        self.logs: dict[str, list[tuple[float, bytes]]] = {}
        """Lines by file, each with the share of the run's time at which it is over."""
        for path in (source / "raw" / self.key).glob("*.jsonl"):
            lines = [
                (json.loads(line), line) for line in path.read_bytes().splitlines(keepends=True)
            ]
            self.logs[path.name] = [
                ((e.get("t", 0) + e.get("bin_ps", 0) - begin) / (end - begin), line)
                for e, line in lines
            ]
        for path in (directory, directory / "raw", self.raw):
            path.chmod(0o755)

    def begin(self) -> None:
        shutil.copy(self.source / "raw" / self.key / "run.json", self.raw / BEGUN)

    def grow(self, share: float) -> None:
        """Logs as they are after a share of the run's time, with half a line at their ends."""
        for name, lines in self.logs.items():
            first = next((n for n, (at, _) in enumerate(lines) if at > share < 1), len(lines))
            half = [line[: len(line) // 2] for _, line in lines[first : first + 1]]
            (self.raw / name).write_bytes(b"".join([line for _, line in lines[:first]] + half))

    def end(self) -> None:
        (self.raw / BEGUN).rename(self.raw / "run.json")


@pytest.fixture
def growing(complete: Path, tmp_path: Path) -> Growing:
    return Growing(complete, tmp_path / "out")
