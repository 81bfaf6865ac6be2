"""Reads a results directory: which runs it has, and the frames of each.

For replays; testbed.view.follow reads the same files while they grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.errors import UserError
from testbed.view.clock import in_ns
from testbed.view.declared import SUMMARY, read, read_record
from testbed.view.fold import Fold, Frame
from testbed.view.run import Run
from topologies.clos import Fabric
from topologies.files import opened

BEGUN = "begun.json"
"""The file with the part of run.json that is known when a run's time begins; it is there until run.json is."""
_PORTION = 1 << 20


def run_keys(directory: Path) -> list[str]:
    """List the complete runs of a results directory, in the order of its summary. Raises :class:`UserError` if it has none."""
    order = [run["run"] for run in read(directory / "summary.json", SUMMARY)["runs"]] if (directory / "summary.json").is_file() else []
    present = sorted(path.parent.name for path in (directory / "raw").glob("*/run.json"))
    if not present:
        raise UserError(f"{directory} holds no complete run (no raw/*/run.json): give a directory that mrcbed run wrote")
    return [key for key in order if key in present] + [key for key in present if key not in order]


def first_of_each(directory: Path) -> list[str]:
    """Choose one run of each transport, all of the first placement, seed and setting that the directory has, to show side by side."""
    keys = run_keys(directory)
    records = {key: read_record(directory / "raw" / key / "run.json") for key in keys}
    first = records[keys[0]]
    alike = ("placement", "seed", "settings")
    return [key for key in keys if all(records[key].get(name) == first.get(name) for name in alike)]


def read_run(directory: Path, key: str) -> Run:
    """Read the description of a run that is complete or goes on. Raises :class:`UserError`."""
    raw = directory / "raw" / key
    names = [name for name in ("run.json", BEGUN) if (raw / name).is_file()]
    if not names:
        raise UserError(f"{directory} has no run {key!r}; it has {', '.join(run_keys(directory))}")
    record = read_record(raw / names[0])
    record = in_ns(record, None)
    figures = _figures(directory, key)
    about = {name: record[name] for name in ("world", "placement", "seed", "settings", "workload")}
    about |= {name: record.get(name) for name in ("outcome", "reconvergence_ns")}
    about |= {"jobs": [{name: job[name] for name in ("name", "ranks")} for job in record["jobs"]]} if "jobs" in record else {}
    about |= {name: figures.get(name) for name in ("ideal_step_ns", "degraded_step_ns", "typical_step_ns", "verdict")}
    cost = figures.get("failure_cost") or {}
    about["cost"] = (
        {name: cost.get(name) for name in ("extra_ns", "extra_percent", "noise_ns")} if cost.get("extra_ns") is not None else None
    )
    return Run(
        key=key, transport=record["transport"], kind=record["kind"], fabric=Fabric.from_dict(record["fabric"]),
        t0=record["window"][0], ranks=tuple(record["ranks"]),
        paths={int(host): rows for host, rows in record.get("paths", {}).items()}, warmup_steps=int(record["warmup_steps"]), about=about,
    )  # fmt: skip


def _figures(directory: Path, key: str) -> dict[str, Any]:
    runs = read(directory / "summary.json", SUMMARY)["runs"] if (directory / "summary.json").is_file() else []
    return next((run for run in runs if run["run"] == key), {})


def read_frames(directory: Path, run: Run) -> Iterator[Frame]:
    """Read the header and all frames of a run."""
    fold = Fold(run)
    for path in sorted((directory / "raw" / run.key).glob("*.jsonl")):
        with opened(path) as file:
            while portion := file.read(_PORTION):
                fold.feed(path.stem, portion)
    yield run.header()
    yield from fold.close()
