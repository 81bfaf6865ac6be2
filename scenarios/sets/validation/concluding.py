"""Concludes a case from its files, ``case.json``: rows with verdicts, and how far its runs can be trusted.

Called by ``mrcbed validate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from scenarios.figures.stored import Stored, read_json
from scenarios.run.resume import write_json
from scenarios.schema.scenario import Scenario
from scenarios.sets import series
from scenarios.sets.validation.agreement import DIFFERS, NO_DATA, THEORY, rows_of
from scenarios.sets.validation.cases import CASES, Case
from scenarios.sets.validation.expected import expected
from scenarios.sets.validation.observed import Point, Seen, points
from testbed.simulated import SIMULATED, WORLDS

SET, CASE = "validation-set.json", "case.json"
VALIDATION = series.Kind(SET, "case", "cases", "a validation", "mrcbed validate")
open_directory, read_form = VALIDATION.open_directory, VALIDATION.read_form
run_series = partial(series.run_series, VALIDATION)


def conclude(case: Case, out: Path, form: series.Form) -> dict[str, Any]:
    """Judge a case from what lies in ``out``, write its ``case.json`` and return it. What is missing or unreadable is told in it.

    A world counts as wanted if it was asked for, or if its results are there from before.
    """
    trouble: list[str] = []
    seen: dict[str, list[Point]] = {}
    runs: dict[str, list[Mapping[str, Any]]] = {}
    ideal: dict[str, dict[str, Seen]] = {}
    wanted = [world for world in WORLDS if world in case.worlds or (out / case.id / world / "summary.json").is_file()]
    for part in replace(case, worlds=tuple(wanted)).parts:
        directory = case.directory(part, out)
        if not (directory / "summary.json").is_file():
            trouble.append(f"{part.name}: not run")
            continue
        try:
            stored = Stored(directory)
            runs[part.name] = list(stored.summary["runs"])
            seen[part.name] = points(stored)
            if part.name == SIMULATED or not ideal:
                ideal = theory(directory, seen[part.name], part.load(form.quick, form.seeds))
        except Exception as error:
            trouble.append(f"{part.name}: {type(error).__name__}: {error}")
    places = list(dict.fromkeys(point.where for found in seen.values() for point in found))
    rows = []
    for where in places:
        columns = {world: point.figures for world, found in seen.items() for point in found if point.where == where}
        rows += rows_of(case.id, where, {THEORY: ideal.get(where, {}), **columns}, wanted)
    made = {
        "format": series.FORMAT,
        "id": case.id,
        "title": case.title,
        "transport": case.transport,
        "rows": [row.to_dict() for row in rows],
        "trouble": trouble,
        "worlds": {world: _trust(found) for world, found in runs.items()},
    }
    (out / case.id).mkdir(parents=True, exist_ok=True)
    write_json(out / case.id / CASE, made)
    return made


def theory(directory: Path, found: Sequence[Point], scenario: Scenario) -> dict[str, dict[str, Seen]]:
    """Setting in words -> ideals. Of runs whose paths differ by seed the median run's: it stands beside medians."""
    made = {}
    for point in found:
        ideals: list[dict[str, Seen]] = []
        for run in point.runs:
            record = read_json(directory / "raw" / run["run"] / "run.json", "take it from a copy, or run the case again")
            ideals.append(expected(record, scenario.workload.slices, scenario.workload.outstanding, run))
        common = [id for id in (ideals[0] if ideals else {}) if all(id in one for one in ideals)]
        made[point.where] = {id: sorted((one[id] for one in ideals), key=lambda seen: seen.value)[len(ideals) // 2] for id in common}
    return made


def _trust(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a reader needs to weigh a world's figures."""
    return {
        "runs": len(runs),
        "seeds": len({run["seed"] for run in runs}),
        "not_trustworthy": sum(run["verdict"] == "not trustworthy" for run in runs),
        "failed": sum(run["verdict"] == "failed" for run in runs),
        "doubts": series.doubts_of(runs),
    }


def concluded(out: Path) -> list[dict[str, Any]]:
    """Every ``case.json`` that there is, in the order of the set."""
    return series.concluded(out, CASES, CASE)


def exit_status(made: Sequence[Mapping[str, Any]], asked: Sequence[str] = ()) -> int:
    """1 if a row of these cases (all without any) differs without a cause or lacks data, if a run failed, or if nothing could be judged."""
    mine = [case for case in made if not asked or case["id"] in asked]
    bad = any(row["verdict"] in (DIFFERS, NO_DATA) for case in mine for row in case["rows"])
    bad = bad or any(case["trouble"] or not case["rows"] for case in mine)
    bad = bad or any(world["failed"] for case in mine for world in case["worlds"].values())
    return int(bad or not mine)
