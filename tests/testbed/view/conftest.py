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
    """``directory``, in which one run of ``source`` comes to be. Its files may be read by everyone, as those of a run."""

    def __init__(self, source: Path, directory: Path) -> None:
        self.source, self.directory = source, directory
        self.key = first_of_each(source)[0]
        self.raw = directory / "raw" / self.key
        self.raw.mkdir(parents=True)
        for path in (directory, directory / "raw", self.raw):
            path.chmod(0o755)

    def begin(self) -> None:
        shutil.copy(self.source / "raw" / self.key / "run.json", self.raw / BEGUN)

    def grow(self, share: float) -> None:
        """Logs as they are after a share of the run's time, with half a line at their ends."""
        begin, end = json.loads((self.source / "raw" / self.key / "run.json").read_text())["window"]
        until = begin + (end - begin) * share if share < 1 else float("inf")
        for path in (self.source / "raw" / self.key).glob("*.jsonl"):
            lines = path.read_bytes().splitlines(keepends=True)
            late = (n for n, line in enumerate(lines) if (entry := json.loads(line)).get("t", 0) + entry.get("bin_ns", 0) > until)
            first = next(late, len(lines))
            (self.raw / path.name).write_bytes(
                b"".join(lines[:first]) + b"".join(line[: len(line) // 2] for line in lines[first : first + 1])
            )

    def end(self) -> None:
        (self.raw / BEGUN).rename(self.raw / "run.json")


@pytest.fixture
def growing(complete: Path, tmp_path: Path) -> Growing:
    return Growing(complete, tmp_path / "out")
