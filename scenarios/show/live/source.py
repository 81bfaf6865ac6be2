"""What a run in a directory is: its fabric, its title, how many runs there are; from the manifest or from the agents' configuration."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.show.live.follow import Follower, shown_run, written
from scenarios.show.live.screen import About
from scenarios.show.live.state import RunState
from testbed.errors import UserError
from testbed.machine import sandbox
from topologies import Fabric


@dataclass
class Results:
    """A results directory of ``mrcbed run``, finished or not. Shows ``name``, or else the run that goes on, or that ended last."""

    directory: Path
    name: str = ""
    follower: Follower | None = None
    state: RunState | None = None

    def look(self) -> tuple[RunState, About] | None:
        """Read what is new. None while no run has begun. Raises :class:`UserError`."""
        path = self.directory / "raw" / self.name if self.name else shown_run(self.directory)
        if path is None:
            return None
        if self.follower is None or self.follower.directory != path:
            manifest = read_manifest(self.directory)
            self.follower, self.state = Follower(path), RunState(fabric_of(manifest, path.name), warmup_of(manifest))
        assert self.state is not None
        for host, line in self.follower.lines():
            self.state.take(host, line)
        return self.state, self.about(path)

    def about(self, path: Path) -> About:
        manifest = read_manifest(self.directory)
        work = manifest["scenario"]["workload"]
        finished = sum(1 for _ in (self.directory / "raw").glob("*/run.json"))
        title = f"{path.name}, {manifest['world']}, dilation {fabric_of(manifest, path.name).dilation:,.0f}"
        live = not (path / "run.json").exists() and "ended" not in manifest
        return About(title, live, work["steps"], finished, max(finished, count_of(manifest)), time.time() - written(path))


@dataclass
class Up:
    """The agents' logs of a fabric that is up, under ``mrcbed up``, ``launch``, ``perf`` or ``train``, seen from outside its sandbox."""

    directory: Path
    fabric: Fabric
    title: str
    follower: Follower | None = None
    state: RunState | None = None

    def look(self) -> tuple[RunState, About] | None:
        if self.follower is None or self.state is None:
            self.follower, self.state = Follower(self.directory), RunState(self.fabric)
        for host, line in self.follower.lines():
            self.state.take(host, line)
        return self.state, About(self.title, self.directory.exists(), silent_s=time.time() - written(self.directory), journalled=False)


def read_manifest(directory: Path) -> dict[str, Any]:
    """What the run began with; read here without pandas, which takes longer to import than a screen to draw. Raises :class:`UserError`."""
    try:
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        return {key: manifest[key] for key in ("world", "fabrics", "scenario")} | {
            key: manifest[key] for key in ("ended",) if key in manifest
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "wait until the run has begun, or give another directory"
        raise UserError(f"{directory / 'manifest.json'} cannot be read ({type(error).__name__}: {error}): {fix}") from None


def fabric_of(manifest: dict[str, Any], key: str) -> Fabric:
    """The fabric of a run, as it ran: of those whose name stands in the run's key, the one with the longest name."""
    names = [name for name in manifest["fabrics"] if f"-{name}-" in key]
    if not names:
        raise UserError(f"manifest.json names no fabric of run {key}: take it from a copy")
    data = manifest["fabrics"][max(names, key=len)]
    return Fabric.from_dict({field: value for field, value in data.items() if field in Fabric.__struct_fields__})


def warmup_of(manifest: dict[str, Any]) -> int:
    return int(manifest["scenario"]["workload"]["warmup_steps"])


def count_of(manifest: dict[str, Any]) -> int:
    """The number of runs that the scenario plans."""
    scenario = manifest["scenario"]
    variants = [variant["scenario"] for variant in scenario.get("variants", ())] or [scenario]
    return sum(len(v["seeds"]) * len(v["workload"]["placement"]) * len(v["transports"]) for v in variants)


def agents_folder(root: Path) -> tuple[Path, Fabric, str] | None:
    """(folder of the logs, fabric, transport) of the agents in a sandbox, whose root folder is ``root``; None if there are none.

    Their configuration names their logs, which ``mrcbed up`` keeps in the sandbox, and other commands in their results.
    """
    for config in root.glob(f"{sandbox.RUN_DIR.lstrip('/')}/agents-*/h0.json"):
        try:
            data = json.loads(config.read_text(encoding="utf-8"))
            log = root / str(data["hosts"][0]["log"]).lstrip("/")
            if log.is_file():
                return log.parent, Fabric.from_dict(data["fabric"]), str(data["transport"])
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return None
