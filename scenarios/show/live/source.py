"""Finds a run in a directory, from the manifest or the agents' configuration."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scenarios.show.live.screen import About
from scenarios.show.live.state import RunState
from testbed.machine import sandbox
from testbed.results.manifest import Manifest
from testbed.results.reading import read
from testbed.view.clock import whole_ns
from testbed.view.fold import MOST_LINE
from testbed.view.follow import Follower
from testbed.view.read import BEGUN, read_run
from testbed.view.run import Run
from topologies import Fabric
from topologies.files import opened


@dataclass
class Results:
    """Shows the run ``name`` of a results directory, else the run that goes on, or that ended
    last."""

    directory: Path
    name: str = ""
    follower: Follower | None = None
    state: RunState | None = None

    def look(self) -> tuple[RunState, About] | None:
        """Return None while no run has begun. Raises :class:`UserError`."""
        path = self.directory / "raw" / self.name if self.name else shown_run(self.directory)
        if path is None or not began(path):
            return None
        if self.follower is None or self.state is None or self.follower.raw != path:
            self.follower = Follower(path, read_run(self.directory, path.name))
            jobs = (self.follower.run.about or {}).get("jobs", ())
            self.state = RunState(
                self.follower.run.fabric, first_job=jobs[0]["ranks"] if jobs else ()
            )
        for frame in self.follower.look():
            self.state.take(frame)
        return self.state, self.about(path, self.follower)

    def about(self, path: Path, follower: Follower) -> About:
        manifest = read_manifest(self.directory)
        finished = sum(1 for _ in (self.directory / "raw").glob("*/run.json"))
        title = f"{path.name}, {manifest.world}"
        live = not follower.over and manifest.ended is None
        return About(
            title,
            live,
            manifest.scenario.workload.steps,
            finished,
            max(finished, count_of(manifest)),
            time.time() - written(path),
        )


@dataclass
class Up:
    directory: Path
    fabric: Fabric
    transport: str
    follower: Follower | None = None
    state: RunState | None = None

    def look(self) -> tuple[RunState, About]:
        if self.follower is None and (t0 := first_time(self.directory)) is not None:
            hosts = tuple(range(self.fabric.host_count))
            self.follower = Follower(
                self.directory,
                Run("up", self.transport, self.transport, self.fabric, t0, hosts, {}),
            )
        self.state = self.state or RunState(self.fabric)
        for frame in self.follower.look() if self.follower else ():
            self.state.take(frame)
        title = f"{self.fabric.name} is up, {self.transport}"
        journalled = (self.directory / "runner.jsonl").exists()
        return self.state, About(
            title,
            self.directory.exists(),
            silent_s=time.time() - written(self.directory),
            journalled=journalled,
        )


def first_time(logs: Path) -> int | None:
    """Return when the agents' first lines were written, ns, or None."""
    times = []
    for path in logs.glob("h*.jsonl"):
        with (
            suppress(OSError, ValueError, LookupError, TypeError, AttributeError),
            opened(path) as file,
        ):
            times.append(whole_ns(json.loads(file.readline(MOST_LINE))["t"]))
    return min(times, default=None)


def began(run: Path) -> bool:
    return any((run / name).exists() for name in ("run.json", BEGUN))


def shown_run(directory: Path) -> Path | None:
    """Choose the unended run written last, else the last that ended."""
    runs = [path for path in (directory / "raw").glob("*") if began(path)]
    return max(
        runs, key=lambda path: (not (path / "run.json").exists(), written(path)), default=None
    )


def written(run: Path) -> float:
    """Return when a log grew last, s since the epoch, or 0."""
    times = []
    for path in run.glob("*.jsonl"):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times, default=0.0)


def read_manifest(directory: Path) -> Manifest:
    """Read it without pandas, which takes longer to import than a screen to draw. Raises
    :class:`UserError`."""
    return read(
        directory / "manifest.json",
        Manifest,
        "wait until the run has begun, or give another directory",
    )


def count_of(manifest: Manifest) -> int:
    return sum(
        len(one.seeds) * len(one.workload.placement) * len(one.transports)
        for one in manifest.scenario.settings
    )


def agents_folder(root: Path) -> tuple[Path, Fabric, str] | None:
    """Return (folder of the logs, fabric, transport) of a sandbox's agents, or None. Their
    configuration names the logs: ``mrcbed up`` keeps them in the sandbox, other commands in their
    results."""
    for config in root.glob(f"{sandbox.RUN_DIR.lstrip('/')}/agents-*/h0.json"):
        try:
            data = json.loads(config.read_text(encoding="utf-8"))
            log = root / str(data["hosts"][0]["log"]).lstrip("/")
            if log.is_file():
                return log.parent, Fabric.from_dict(data["fabric"]), str(data["transport"])
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return None
