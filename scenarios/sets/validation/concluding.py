"""Concludes a case: rows with verdicts, and how far its runs can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from scenarios.figures.measure import Run as Raw
from scenarios.figures.stored import Stored
from scenarios.run.resume import write_json
from scenarios.schema.scenario import Scenario
from scenarios.sets import series
from scenarios.sets.validation.agreement import DIFFERS, NO_DATA, THEORY, rows_of
from scenarios.sets.validation.cases import CASES, Case
from scenarios.sets.validation.expected import expected
from scenarios.sets.validation.observed import Point, Seen, points
from testbed.results.summary import Run
from testbed.world import SIMULATED, WORLDS

SET, CASE = "validation-set.json", "case.json"
VALIDATION = series.Kind(SET, "case", "cases", "a validation", "mrcbed validate")
open_directory, read_form = VALIDATION.open_directory, VALIDATION.read_form
run_series = partial(series.run_series, VALIDATION)


def conclude(case: Case, out: Path, form: series.Form) -> dict[str, Any]:
    """Return ``case.json``, with what is missing or unreadable. A world is wanted if it was
    requested, or has earlier results."""
    trouble: list[str] = []
    points_of: dict[str, list[Point]] = {}
    runs_of: dict[str, list[Run]] = {}
    ideals: dict[str, dict[str, Seen]] = {}
    wanted = [
        world
        for world in WORLDS
        if world in case.worlds or (out / case.id / world / "summary.json").is_file()
    ]
    parts = replace(case, worlds=tuple(wanted)).parts
    for part in parts:
        directory = case.directory(part, out)
        if not (directory / "summary.json").is_file():
            trouble.append(f"{part.name}: not run")
            continue
        try:
            stored = Stored(directory)
            runs_of[part.name] = list(stored.summary.runs)
            points_of[part.name] = points(stored)
            if part.name == SIMULATED or not ideals:
                ideals = theory(directory, points_of[part.name], part.load(form.quick, form.seeds))
        except Exception as error:
            trouble.append(f"{part.name}: {type(error).__name__}: {error}")
    settings = list(
        dict.fromkeys(point.where for world_points in points_of.values() for point in world_points)
    )
    rows = []
    for setting in settings:
        columns = {
            world: point.figures
            for world, world_points in points_of.items()
            for point in world_points
            if point.where == setting
        }
        rows += rows_of(
            case.id,
            setting,
            {THEORY: ideals.get(setting, {}), **columns},
            [part.name for part in parts],
        )
    conclusion = {
        "format": series.FORMAT,
        "id": case.id,
        "title": case.title,
        "transport": case.transport,
        "rows": [row.to_dict() for row in rows],
        "trouble": trouble,
        "worlds": {world: _trust(runs) for world, runs in runs_of.items()},
    }
    (out / case.id).mkdir(parents=True, exist_ok=True)
    write_json(out / case.id / CASE, conclusion)
    return conclusion


def theory(
    directory: Path, world_points: Sequence[Point], scenario: Scenario
) -> dict[str, dict[str, Seen]]:
    """Return setting -> ideals; of runs that differ by seed the median, since it is compared with
    medians."""
    ideals_of = {}
    for point in world_points:
        ideals: list[dict[str, Seen]] = []
        for run in point.runs:
            raw = Raw(directory / "raw" / run.run)
            ideals.append(
                expected(raw.record, scenario.workload.slices, scenario.workload.outstanding, run)
            )
        common = [
            id for id in (ideals[0] if ideals else {}) if all(id in ideal for ideal in ideals)
        ]
        middle = len(ideals) // 2
        ideals_of[point.where] = {
            id: sorted((ideal[id] for ideal in ideals), key=lambda seen: seen.value)[middle]
            for id in common
        }
    return ideals_of


def _trust(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "runs": len(runs),
        "seeds": len({run.seed for run in runs}),
        "not_trustworthy": sum(run.verdict == "not trustworthy" for run in runs),
        "failed": sum(run.verdict == "failed" for run in runs),
        "doubts": series.doubts_of(runs),
    }


def concluded(out: Path) -> list[dict[str, Any]]:
    return series.concluded(out, CASES, CASE)


def exit_status(conclusions: Sequence[Mapping[str, Any]], ids: Sequence[str] = ()) -> int:
    """Return 1 if, in the cases ``ids`` (default: all), a row differs without a cause or lacks
    data, a run failed, or rows are missing."""
    selected = [case for case in conclusions if not ids or case["id"] in ids]
    bad = any(row["verdict"] in (DIFFERS, NO_DATA) for case in selected for row in case["rows"])
    bad = bad or any(case["trouble"] or not case["rows"] for case in selected)
    bad = bad or any(world["failed"] for case in selected for world in case["worlds"].values())
    return int(bad or not selected)
