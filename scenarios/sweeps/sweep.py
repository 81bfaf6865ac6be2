"""Carries out the blocks of a plan on workers, and lands each once. The runner calls it in the place of its own loop.

Disk is the truth: a run whose folder is in ``raw/`` is finished, and any other is still to do. The scheduler keeps nothing that is needed
after a crash of any process. ``sweep.jsonl`` records where each block was carried out, and every attempt that was dropped.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from scenarios.run.one_run import Spec
from scenarios.sweeps import archive, blocks
from scenarios.sweeps.cluster import Workers
from scenarios.sweeps.machines import ALIKE, version
from testbed.errors import ClusterDied, UserError
from testbed.machine.slowness import patient
from testbed.simulated import EMULATED
from topologies.files import MOST_JSON, FileError, content

JOURNAL = "sweep.jsonl"
TRIES = 3
"""A bring-up that failed goes elsewhere, twice."""
AHEAD = 2
"""Blocks that each worker has: one that it carries out, one that waits [ours]. So a worker that joins late gets some of the rest."""
LOOK_S = 0.5
PATIENCE_S, UNLIKE_S = 30.0, 5.0
"""How long a sweep goes on without any worker; the second if there are workers, none of which fits [ours]."""


@dataclass
class Task:
    """A block on its way. ``tried``: addresses of workers where it did not come up."""

    specs: Sequence[Spec]
    text: str
    tried: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name for people: the first run, and how many more."""
        more = f" and {len(self.specs) - 1} more" if len(self.specs) > 1 else ""
        return f"{self.specs[0].key}{more}"


class Carrier:
    """Takes blocks to workers and their results to a directory."""

    def __init__(self, workers: Workers, world: str, tell: Callable[[str], None]) -> None:
        """``tell(line)``: a line for the user."""
        self.workers, self.world, self.tell = workers, world, tell
        self.dilation: float | None = None  # of emulated runs
        self.duplicates = 0
        self.failures: list[str] = []
        self.carrying = self.stopped = False

    def stop(self, *signal: Any) -> None:
        """Handle a signal as Ctrl-C. While blocks are carried out, the loop sees it within LOOK_S: Python drops what a handler raises in a
        destructor or in a callback of the garbage collector, and Dask has both. At other times, and the second time, it raises at once."""
        if self.stopped or not self.carrying:
            raise KeyboardInterrupt
        self.stopped = True

    def __call__(self, directory: Path, todo: Sequence[Sequence[Spec]]) -> Iterator[Sequence[Spec]]:
        """Yield each block's runs once they are in ``directory``/raw. Raises :class:`UserError` at the end if blocks did not get there."""
        archive.clear(directory)
        if before := alike_before(directory):
            self.workers.settle(before)
        tasks = [Task(specs, blocks.written(specs, self.world, version(), self.dilation)) for specs in todo]
        with open(directory / JOURNAL, "a", encoding="utf-8", buffering=1) as journal:

            def record(what: str, task: Task, **more: Any) -> None:
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                journal.write(json.dumps({"time": now, "what": what, "runs": [spec.key for spec in task.specs], **more}) + "\n")

            self.carrying = True
            try:
                yield from self._carry(directory, tasks, record)
            finally:
                self.carrying = False
                archive.clear(directory)
        if self.failures:
            more = f" (and {len(self.failures) - 1} more blocks)" if len(self.failures) > 1 else ""
            raise ClusterDied(f"{self.failures[0]}{more}: {directory / JOURNAL} has all; --resume tries those again")

    def _carry(self, directory: Path, tasks: Sequence[Task], record: Any) -> Iterator[Sequence[Spec]]:
        waiting = list(reversed(tasks))
        running: dict[Any, Task] = {}
        seen_at = time.monotonic()
        while waiting or running:
            if self.stopped:
                raise KeyboardInterrupt
            fitting = self.workers.fitting()
            if fitting:
                seen_at = time.monotonic()
            self._look(seen_at, bool(fitting))
            while waiting and len(running) < AHEAD * len(fitting):
                task = waiting.pop()
                name = f"block-{uuid.uuid4().hex}"  # a head may serve several sweeps
                future = self.workers.submit(task.text, name, task.tried)
                running[future.key] = task
            future = self.workers.next(LOOK_S)
            if future is None or future.key not in running:
                continue
            task = running.pop(future.key)
            answer, where = self.workers.result(future)
            del future
            if self._landed(directory, task, answer, where, record):
                yield task.specs
            elif answer.get("bring_up") and len(task.tried) < TRIES:
                self.tell(f"{task.name}: {answer['problem']}: tried elsewhere")
                waiting.append(task)

    def _landed(self, directory: Path, task: Task, answer: Any, where: str, record: Any) -> bool:
        """Land an answer; False if it holds no results, or none that can be used."""
        machine = answer.get("machine") or {}
        problem = answer.get("problem")
        if problem is None:
            alike = {key: machine.get(key) for key in ALIKE}
            try:
                late = archive.land(answer["archive"], directory, [spec.key for spec in task.specs], self._note(machine))
            except UserError as error:
                problem = str(error)
            else:
                self.duplicates += len(late)
                record("landed", task, worker=where, machine=alike, dropped=late)
                return True
        record("failed", task, worker=where, machine=machine, problem=problem)
        task.tried.append(where)
        if not answer.get("bring_up") or len(task.tried) >= TRIES:
            self.failures.append(f"{task.name}: {problem}")
            self.tell(self.failures[-1])
        return False

    def _note(self, machine: Any) -> dict[str, Any]:
        """What is added to each run where machines may differ: columns of its row."""
        return {"machine": {key: machine.get(key) for key in ALIKE}} if self.workers.mixed and self.world == EMULATED else {}

    def _look(self, seen_at: float, any_fits: bool) -> None:
        """Tell of workers that do not fit. Raises :class:`UserError` if none has fitted for long."""
        for line in self.workers.unlike():
            self.tell(line)
        waited = time.monotonic() - seen_at
        if any_fits or waited < patient(PATIENCE_S if not self.workers.reasons else UNLIKE_S):
            return
        why = next(iter(self.workers.reasons), f"none came within {waited:.0f} s: start mrcbed worker --world {self.world}")
        raise UserError(f"no worker fits: {why}; --resume goes on")


class _Landed(msgspec.Struct, tag_field="what", tag="landed"):
    machine: dict[str, Any]


def alike_before(directory: Path) -> dict[str, Any]:
    """Return CPU and kernel of the machines that carried out what is there already; {} where nothing is."""
    try:
        lines = content(directory / JOURNAL, MOST_JSON).splitlines()
    except (OSError, FileError):
        return {}
    for line in lines:
        try:
            return dict(msgspec.json.decode(line, type=_Landed).machine)
        except (ValueError, RecursionError):  # another entry, or the last one, where the head was killed
            continue
    return {}
