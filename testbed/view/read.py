"""Reads a results directory: which runs it has, and the frames of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.errors import UserError
from testbed.results.reading import read
from testbed.results.record import read_record
from testbed.results.summary import Run as Entry
from testbed.results.summary import Summary
from testbed.view.clock import whole_ns
from testbed.view.fold import Fold, Frame
from testbed.view.run import Run
from topologies.files import opened

BEGUN = "begun.json"
"""The part of run.json that is known when a run's time begins."""
_PORTION = 1 << 20


def run_keys(directory: Path) -> list[str]:
    order = [run.run for run in _entries(directory)]
    present = sorted(path.parent.name for path in (directory / "raw").glob("*/run.json"))
    if not present:
        raise UserError(
            f"{directory} holds no complete run (no raw/*/run.json): give a directory that "
            "mrcbed run wrote"
        )
    return [key for key in order if key in present] + [key for key in present if key not in order]


def first_of_each(directory: Path) -> list[str]:
    keys = run_keys(directory)
    if len(keys) == 1:
        return keys
    records = {key: read_record(directory / "raw" / key / "run.json") for key in keys}
    alike = {
        key: (record.placement, record.seed, record.settings) for key, record in records.items()
    }
    return [key for key in keys if alike[key] == alike[keys[0]]]


def read_run(directory: Path, key: str) -> Run:
    raw = directory / "raw" / key
    names = [name for name in ("run.json", BEGUN) if (raw / name).is_file()]
    if not names:
        raise UserError(f"{directory} has no run {key!r}; it has {', '.join(run_keys(directory))}")
    record = read_record(raw / names[0])
    figures, late = (
        next((run for run in _entries(directory) if run.run == key), None),
        record.reconvergence_ps,
    )
    about: dict[str, Any] = {
        "world": record.world,
        "placement": record.placement,
        "seed": record.seed,
        "settings": record.settings,
        "workload": record.workload,
        "outcome": record.outcome or None,
        "reconvergence_ns": None if late is None else whole_ns(late),
    }
    about |= (
        {"jobs": [{"name": job.name, "ranks": job.ranks} for job in record.jobs]}
        if record.jobs
        else {}
    )
    about |= {
        name: getattr(figures, name, None)
        for name in ("ideal_step_ns", "degraded_step_ns", "typical_step_ns", "verdict")
    }
    cost = None if figures is None else figures.failure_cost
    known = cost is not None and cost.extra_ns is not None
    about["cost"] = (
        {name: getattr(cost, name) for name in ("extra_ns", "extra_percent", "noise_ns")}
        if known
        else None
    )
    return Run(
        key=key,
        transport=record.transport,
        kind=record.kind,
        fabric=record.fabric,
        t0=whole_ns(record.window[0]),
        ranks=tuple(record.ranks),
        paths=record.host_paths,
        warmup_steps=record.warmup_steps,
        about=about,
    )


def _entries(directory: Path) -> list[Entry]:
    path = directory / "summary.json"
    return read(path, Summary).runs if path.is_file() else []


def read_frames(directory: Path, run: Run) -> Iterator[Frame]:
    fold = Fold(run)
    for path in sorted((directory / "raw" / run.key).glob("*.jsonl")):
        with opened(path) as file:
            while portion := file.read(_PORTION):
                fold.feed(path.stem, portion)
    yield run.header()
    yield from fold.close()
