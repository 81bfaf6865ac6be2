"""``mrcbed sweep`` and ``mrcbed run --on``: a scenario's blocks on a cluster, in the results directory of a plain run."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scenarios.run.resume import directory_lock
from scenarios.run.runner import Progress, Runner, RunOptions
from scenarios.run.simulate import check_simulable
from scenarios.schema.dilation import at_dilation, check_emulable
from scenarios.schema.scenario import Scenario
from scenarios.sets.dilation import given, read_manifest, recorded
from scenarios.sweeps import cluster
from scenarios.sweeps.sweep import Carrier
from scenarios.sweeps.tls import Identity
from testbed.simulated import EMULATED, SIMULATED

WORKERS = ".workers"
"""Folder of a results directory for certificates and temporary files of local workers."""


@dataclass(frozen=True)
class Place:
    """Where blocks are carried out: ``jobs`` processes of this machine, or, with ``address``, the workers of a head."""

    world: str
    jobs: int = 1
    address: str | None = None
    identity: Identity | None = None
    mixed: bool = False


@contextmanager
def workers(place: Place, directory: Path) -> Iterator[cluster.Workers]:
    """Yield the workers of a place. Raises :class:`testbed.errors.UserError`."""
    if place.address is not None:
        assert place.identity is not None
        with cluster.remote(place.address, place.identity, place.world, place.mixed) as found:
            yield found
        return
    scratch = directory / WORKERS
    scratch.mkdir(exist_ok=True)
    with directory_lock(scratch):  # the runner locks the directory itself, but later: another sweep may be at work there
        for left in scratch.iterdir():  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        try:
            with cluster.local(place.jobs, place.world, scratch) as found:
                yield found
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@dataclass(frozen=True)
class Session:
    """What is the same in every call of a command: as :class:`scenarios.run.runner.RunOptions`."""

    progress: Progress
    command_line: Sequence[str] = ()
    resume: bool = False
    figures: bool = True


def sweep(
    scenario: Scenario, directory: Path, place: Place, session: Session, tell: Callable[[str], None], dilation: float | None = None
) -> dict[str, Any]:
    """Run a scenario on many workers and return the summary. ``dilation``: of emulated runs; None: that of the fabric.

    Raises what :class:`scenarios.run.runner.Runner` raises, and :class:`testbed.errors.UserError` for workers that cannot be had.
    """
    with workers(place, directory) as found:
        carrier = Carrier(found, place.world, tell)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, carrier.stop)
        try:
            if place.world == SIMULATED:
                check_simulable(scenario)
                return _run(scenario, directory, carrier, session, None)
            former = read_manifest(directory) if session.resume else {}
            stretch = recorded(former, dilation) if "dilation" in former else given(scenario, dilation or scenario.dilation)
            check_emulable(scenario, stretch.value)
            carrier.dilation = stretch.value
            stretched = {"dilation": asdict(stretch), "attempts": []}
            return _run(at_dilation(scenario, stretch.value), directory, carrier, session, stretched)
        finally:
            if carrier.duplicates:
                tell(f"{carrier.duplicates} runs came twice; the later ones were dropped")


def _run(scenario: Scenario, directory: Path, carrier: Carrier, session: Session, stretched: dict[str, Any] | None) -> dict[str, Any]:
    """``stretched`` as in :class:`RunOptions`; None in the simulated world."""
    world, switch = (SIMULATED, SIMULATED) if stretched is None else (EMULATED, "ebpf")
    options = RunOptions(
        session.progress, session.command_line, switch, resume=session.resume, world=world, carrier=carrier, figures=session.figures,
        stretched=stretched,
    )  # fmt: skip
    return Runner(scenario, directory, _no_world, options).run()


def _no_world(fabric: Any) -> Any:
    raise AssertionError("a sweep builds no world here")
