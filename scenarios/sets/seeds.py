"""Runs the shipped scenarios over many seeds in the simulated world: does each pass its own checks?

Only MRC transports that a check names are run, without tables and plots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.figures.summary import INTERRUPTED
from scenarios.run.resume import write_json
from scenarios.run.simulate import check_simulable
from scenarios.schema.checks import names_in
from scenarios.schema.scenario import Scenario, ScenarioError, load_scenario, named_scenarios
from scenarios.sets.series import Kind
from testbed.results.reading import ResultsError, read
from testbed.results.summary import Summary

SET = Kind("seeds.json", "scenario", "seeds", "shipped scenarios", "mrcbed tools bench seeds")
VERDICT = "verdict.json"
MANY, FEW = 100, 10
MANY_OF = ("link-failure", "demo", "incast-victim", "t1-silent")
"""A failure, two failures, an incast and a silent switch are the likeliest to fail."""
LARGE = ("pod512-tree",)  # A seed takes minutes: one by default.
SLOW = (
    "demo-tail",
    *LARGE,
    "permutation-failure",
    "permutation-baselines",
    "one-of-many",
    "placement",
    "pod64-ring",
)
"""The longest come first: 170 to 20 s of a core per seed, any other at most 15."""
NOT_SIMULATED, OK, FAILED, UNFINISHED = "not simulated", "ok", "failed", "unfinished"


@dataclass(frozen=True)
class Seeds:
    """A scenario over its seeds, an item of scenarios.sets.series whose only part is itself."""

    name: str

    @property
    def id(self) -> str:
        return self.name

    @property
    def title(self) -> str:
        return load_scenario(self.name).description

    @property
    def count(self) -> int:
        return MANY if self.name in MANY_OF else 1 if self.name in LARGE else FEW

    @property
    def parts(self) -> Sequence[Seeds]:
        """Empty if it cannot be simulated."""
        return () if self.obstacle() else (self,)

    def directory(self, part: Seeds, out: Path) -> Path:
        return out / self.name

    def load(self, quick: bool = False, seeds: tuple[int, ...] = ()) -> Scenario:
        scenario = load_scenario(self.name)
        checked_names = {name for expect in scenario.expects for name in names_in(expect.check)}
        transports = [
            t.name
            for t in scenario.transports
            if t.kind == "mrc" and t.name.replace("-", "_") in checked_names
        ]
        return load_scenario(
            self.name, transports=transports, seeds=seeds or range(1, self.count + 1)
        )

    def obstacle(self) -> str:
        try:
            check_simulable(self.load())
        except ScenarioError as error:
            return str(error)
        return ""


def chosen(names: Sequence[str]) -> list[Seeds]:
    """Without names, return all that are shipped, the longest last. Raises
    :class:`ScenarioError`."""
    for name in names:
        if name not in named_scenarios():
            raise ScenarioError(f"no scenario {name!r}: there are {', '.join(named_scenarios())}")
    longest_last = {name: place for place, name in enumerate(reversed(SLOW), 1)}
    return sorted(
        (Seeds(name) for name in names or named_scenarios()),
        key=lambda item: longest_last.get(item.name, 0),
    )


def conclude(item: Seeds, out: Path) -> None:
    directory = out / item.id
    directory.mkdir(exist_ok=True)
    write_json(directory / VERDICT, conclusion(item, directory))


def conclusion(item: Seeds, directory: Path) -> dict[str, Any]:
    result: dict[str, Any] = {
        "scenario": item.name,
        "verdict": NOT_SIMULATED,
        "reason": item.obstacle(),
    }
    result |= {"runs": 0, "checks": 0, "held": 0, "failed": []}
    if result["reason"]:
        return result
    try:
        summary = read(directory / "summary.json", Summary)
    except ResultsError:
        return result | {"verdict": UNFINISHED, "reason": "no summary"}
    runs = summary.runs
    failed_runs = [
        f"{run.run}: {run.outcome}: {run.reason or '; '.join([*run.broken, *run.distrust])}"
        for run in runs
        if run.verdict != "ok"
    ]
    failed_checks = [
        f"{check.name}: expected {check.expected}, seen {check.seen}"
        for check in summary.checks
        if check.ok is False and not check.unusual
    ]
    passed = sum(bool(check.ok) for check in summary.checks)
    checks = sum(check.ok is not None for check in summary.checks)
    counts = {"runs": len(runs), "checks": checks, "held": passed}
    if summary.verdict == INTERRUPTED or summary.stopped_by is not None:
        reason = summary.stopped_by or "stopped by the user"
        return result | counts | {"verdict": UNFINISHED, "reason": reason, "failed": failed_checks}
    return (
        result
        | counts
        | {
            "verdict": FAILED if failed_runs or failed_checks else OK,
            "failed": failed_runs + failed_checks,
        }
    )
