"""Going on with a run that was interrupted, in its own directory: what is finished there stays, what is half done goes and is done again.

Called by the runner. Refuses a directory that was begun for anything else than what is asked now: a table must not mix two things.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scenarios.figures.measure import read_lines
from scenarios.figures.writing import replacing
from scenarios.run.one_run import Spec
from scenarios.schema.scenario import USED_BY_QP, ScenarioError

FINISHED = ("done", "failed", "timeout")
"""Outcomes of runs that are over. Those of others say that somebody stopped them, or that something of ours did."""
FIXED = ("format", "world", "switch", "engine", "kernel")
"""Of the manifest: what would make the runs of two sessions unlike."""


def write_json(path: Path, data: Any, indent: int | None = 2) -> None:
    """Whole or not at all: whoever is killed in the middle leaves the file as it was."""
    with replacing(path) as part:
        part.write_text(json.dumps(data, indent=indent, default=str) + "\n", encoding="utf-8")


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Nobody else runs into this directory meanwhile; the kernel lets go when we die. Raises :class:`ScenarioError`."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ScenarioError(f"{directory}: another mrcbed run writes there: wait for its end, or give another --out") from None
        yield
    finally:
        os.close(fd)


def is_begun(directory: Path) -> bool:
    """Whether there is something to go on with. Raises :class:`ScenarioError` if there is something, but no run's."""
    if (directory / "manifest.json").is_file():
        return True
    if directory.is_dir() and any(directory.iterdir()):
        raise ScenarioError(f"--resume: {directory} is not empty and holds no run (no manifest.json): give the directory of the run")
    return False


def former_manifest(directory: Path, now: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest that the run began with. Raises :class:`ScenarioError` if it is not ``now``'s run."""
    path = directory / "manifest.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        then_run, now_run = _what_was_asked(found), _what_was_asked(json.loads(json.dumps(now, default=str)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise ScenarioError(f"--resume: {path} cannot be read ({first}): begin again with a new --out") from None
    different = first_difference(then_run, now_run)
    if different:
        key, then, here = different
        raise ScenarioError(
            f"--resume: {directory} was begun with {key} = {then}, now it is {here}: give the same scenario and options, or a new --out"
        )
    return dict(found)


def _what_was_asked(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What two sessions of one run must have in common; where the scenario's file lies is not of it."""
    scenario = {key: value for key, value in manifest["scenario"].items() if key != "text"}
    for part in (scenario, *(variant["scenario"] for variant in scenario.get("variants", ()))):
        for key in ("file", "text"):
            part.pop(key, None)
    return {**scenario, **{key: manifest.get(key) for key in FIXED}, "the file's text": manifest["scenario_file"]}


def first_difference(then: Any, now: Any, where: str = "") -> tuple[str, str, str] | None:
    """(dotted key, value then, value now) of the first thing that is not equal."""
    if isinstance(then, dict) and isinstance(now, dict):
        inner = [(str(key), then.get(key), now.get(key)) for key in {**then, **now}]
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        inner = [(str(i), *pair) for i, pair in enumerate(zip(then, now, strict=True))]
    else:
        return None if then == now else (where, _brief(then), _brief(now))
    return next((found for key, a, b in inner if (found := first_difference(a, b, f"{where}.{key}" if where else key))), None)


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_finished(directory: Path, spec: Spec) -> bool:
    """Whether this run is over, and all of it lies there."""
    try:
        record = json.loads((directory / "raw" / spec.key / "run.json").read_text(encoding="utf-8"))
        return record["outcome"] in FINISHED and bool(record["key"] == spec.key)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def kept(directory: Path, specs: Sequence[Spec]) -> str:
    """For a user who stopped a run: what is finished there, and how to go on. One line."""
    done = sum(is_finished(directory, spec) for spec in specs)
    there = f"{done} of {len(specs)} runs are finished and kept in {directory}"
    return f"interrupted: {there}; the same command with --resume --out {directory} goes on"


def sort_out(directory: Path, specs: Sequence[Spec]) -> set[str]:
    """Keys of finished runs; what is left of others is removed. Cables that finished runs found in use are told to the rest."""
    finished = set()
    for part in directory.rglob(".*.part"):  # whoever was killed was writing it
        part.unlink()
    for spec in specs:
        raw = directory / "raw" / spec.key
        if is_finished(directory, spec):
            finished.add(spec.key)
            _tell(spec, raw)
        elif raw.exists():
            shutil.rmtree(raw)
    return finished


def _tell(spec: Spec, raw: Path) -> None:
    numbers = [i for i, fault in enumerate(spec.scenario.faults) if fault.on == USED_BY_QP]
    found = [line["on"] for line in read_lines(raw / "runner.jsonl") if line.get("kind") == "resolved"]
    for number, on in zip(numbers, found, strict=False):
        spec.used.setdefault(number, on)
