"""Resumes an interrupted run in its own directory: finished runs stay, others are removed and run
again.

It refuses a directory begun for another scenario or other options: a table must not mix two things.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from scenarios.figures.writing import replacing
from scenarios.run.one_run import Spec
from scenarios.schema.scenario import USED_BY_QP, ScenarioError
from testbed.results.log import Resolved
from testbed.results.manifest import Manifest
from testbed.results.reading import ResultsError, read_plain
from testbed.results.record import read_record

# any other outcome: the user or an error of this program stopped the run
FINISHED = ("done", "failed", "timeout")
FIXED = ("format", "world", "switch", "engine", "kernel")  # equal in all sessions of a run


def write_json(path: Path, data: Any, indent: int | None = 2) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as part:
        part.write_text(json.dumps(data, indent=indent, default=str) + "\n", encoding="utf-8")


@contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Lock a directory against other runs; the kernel unlocks it when we die. Raises
    :class:`ScenarioError`."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ScenarioError(
                f"{directory}: another mrcbed run writes there: wait for its end, or give "
                "another --out"
            ) from None
        yield
    finally:
        os.close(fd)


def holds_run(directory: Path) -> bool:
    """Whether a run to resume is there. Raises :class:`ScenarioError` for anything else."""
    if (directory / "manifest.json").is_file():
        return True
    if directory.is_dir() and any(directory.iterdir()):
        raise ScenarioError(
            f"--resume: {directory} is not empty and holds no run (no manifest.json): give the "
            "directory of the run"
        )
    return False


def former_manifest(directory: Path, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first manifest. Raises :class:`ScenarioError` if it differs from ``now`` in what
    was requested."""
    path = directory / "manifest.json"
    manifest = read_plain(path, Manifest, "begin again with a new --out")
    former_request, present_request = (
        _request_of(manifest),
        _request_of(json.loads(json.dumps(now, default=str))),
    )
    difference = first_difference(former_request, present_request)
    if difference:
        key, then, present = difference
        raise ScenarioError(
            f"--resume: {directory} was begun with {key} = {then}, now it is {present}: give the "
            "same scenario and options, or a new --out"
        )
    return manifest


def _request_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what sessions have in common; the place of the scenario's file may differ."""
    scenario = deepcopy(manifest["scenario"])  # the manifest itself is written again
    for part in (scenario, *(variant["scenario"] for variant in scenario.get("variants", ()))):
        for key in ("file", "text"):
            part.pop(key, None)
    return {
        **scenario,
        **{key: manifest.get(key) for key in FIXED},
        "the file's text": manifest.get("scenario_file"),
    }


def first_difference(then: Any, now: Any, where: str = "") -> tuple[str, str, str] | None:
    """Return (dotted key, value then, value now) of the first difference, or None."""
    if isinstance(then, dict) and isinstance(now, dict):
        children = [(str(key), then.get(key), now.get(key)) for key in {**then, **now}]
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        children = [(str(i), *pair) for i, pair in enumerate(zip(then, now, strict=True))]
    else:
        return None if then == now else (where, _brief(then), _brief(now))
    return next(
        (
            difference
            for key, a, b in children
            if (difference := first_difference(a, b, f"{where}.{key}" if where else key))
        ),
        None,
    )


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_finished(directory: Path, spec: Spec) -> bool:
    try:
        record = read_record(directory / "raw" / spec.key / "run.json")
        return record.outcome in FINISHED and record.key == spec.key
    except ResultsError:
        return False


def interruption_notice(directory: Path, specs: Sequence[Spec]) -> str:
    finished_count = sum(is_finished(directory, spec) for spec in specs)
    progress = f"{finished_count} of {len(specs)} runs are finished and kept in {directory}"
    return f"interrupted: {progress}; the same command with --resume --out {directory} goes on"


def sort_out(directory: Path, specs: Sequence[Spec]) -> set[str]:
    """Return finished runs, remove others' files, and give others the fault targets that finished
    runs resolved."""
    finished = set()
    for temporary in directory.rglob(".*.part"):  # a process was killed while it wrote this file
        temporary.unlink()
    for spec in specs:
        raw = directory / "raw" / spec.key
        if is_finished(directory, spec):
            finished.add(spec.key)
            _restore_targets(spec, raw)
        elif raw.exists():
            shutil.rmtree(raw)
    return finished


def _restore_targets(spec: Spec, raw: Path) -> None:
    from scenarios.figures.measure import Run

    numbers = [i for i, fault in enumerate(spec.scenario.faults) if fault.on == USED_BY_QP]
    targets = [
        line.on for line in Run(raw).checked(raw / "runner.jsonl") if isinstance(line, Resolved)
    ]
    for number, on in zip(numbers, targets, strict=False):
        spec.used.setdefault(number, on)
