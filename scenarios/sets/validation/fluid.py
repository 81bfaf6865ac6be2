"""The fluid world's figures of a case: its scenario run without packets, which takes a second. Cases that it cannot express have none."""

from __future__ import annotations

import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from scenarios.figures.measure import Run, load_runs
from scenarios.run.fluid import check_fluid, flow
from scenarios.schema.scenario import Scenario, ScenarioError
from scenarios.sets.paper.claims import value_of
from scenarios.sets.validation.observed import FAILURE_FIGURES, Seen, goodput

COMPARED = ("p50", "healthy")
"""Figures that are held to the bound: median times of steps or messages. The others are shown."""


def computed(scenario: Scenario) -> dict[str, Seen]:
    """Figure -> its median over the seeds; empty for what the fluid world cannot express, or for a sweep."""
    try:
        check_fluid(scenario)
    except ScenarioError:
        return {}
    if scenario.swept:
        return {}
    with TemporaryDirectory(prefix="mrcbed-") as directory:
        runs = flow(scenario, Path(directory), figures=False)["runs"]
        times = [time / run.fabric.dilation for run in load_runs(Path(directory)) for time in _times(run, scenario.workload.outstanding)]
    failure = any(run["failovers"] for run in runs)
    figures = FAILURE_FIGURES if failure else {"goodput": goodput}
    seen = {} if failure else {"p50": Seen(statistics.median(times), len(times))}
    for id, figure in figures.items():
        values = [value for value in (value_of(run, figure) for run in runs) if value is not None]
        if len(values) == len(runs):
            seen[id] = Seen(statistics.median(values), len(values))
    return seen


def _times(run: Run, outstanding: int) -> list[int]:
    """Of steps, or of messages but the first of each flow (:func:`scenarios.sets.validation.observed.times_of`)."""
    if len(run.step_times):
        return [int(time) for time in run.step_times]
    rows = run.messages[run.messages["number"] >= outstanding]
    return [int(time) for time in rows["end_ns"] - rows["start_ns"]]
