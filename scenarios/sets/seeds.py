"""The shipped scenarios over many seeds in the simulated world: does each keep its own checks? Used by ``mrcbed bench seeds``.

Only MRC runs, and of its transports those that a check names: the checks are what is asked. Results lie in one directory per scenario, as
``mrcbed run`` leaves them but without tables and plots; what is finished there is kept when the set is resumed.
"""

from __future__ import annotations

import json
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

SET = Kind("seeds.json", "scenario", "seeds", "shipped scenarios", "mrcbed bench seeds")
VERDICT = "verdict.json"
MANY, FEW = 100, 10
MANY_OF = ("link-failure", "demo", "incast-victim", "t1-silent")
"""A failure, two failures, an incast and a silent switch: a seed that fails is most likely among these."""
NOT_SIMULATED, OK, FAILED, UNFINISHED = "not simulated", "ok", "failed", "unfinished"


@dataclass(frozen=True)
class Seeds:
    """One scenario over its seeds, as scenarios.sets.series wants its items; it is its own only part."""

    name: str

    @property
    def id(self) -> str:
        """Its name, and that of its directory."""
        return self.name

    @property
    def title(self) -> str:
        """What progress says of it."""
        return load_scenario(self.name).description

    @property
    def count(self) -> int:
        """How many seeds it takes by itself."""
        return MANY if self.name in MANY_OF else FEW

    @property
    def parts(self) -> Sequence[Seeds]:
        """Itself; nothing if it cannot be simulated."""
        return () if self.obstacle() else (self,)

    def directory(self, part: Seeds, out: Path) -> Path:
        """Where its results go."""
        return out / self.name

    def load(self, quick: bool = False, seeds: tuple[int, ...] = ()) -> Scenario:
        """The scenario under the MRC transports that its checks name."""
        whole = load_scenario(self.name)
        named = {name for expect in whole.expects for name in names_in(expect.check)}
        asked = [t.name for t in whole.transports if t.kind == "mrc" and t.name.replace("-", "_") in named]
        return load_scenario(self.name, transports=asked, seeds=seeds or range(1, self.count + 1))

    def obstacle(self) -> str:
        """Why it cannot be simulated, or nothing."""
        try:
            check_simulable(self.load())
        except ScenarioError as error:
            return str(error)
        return ""


def chosen(names: Sequence[str]) -> list[Seeds]:
    """Those named, or all that are shipped, the long sets last. Raises :class:`ScenarioError` for a name that is none."""
    for name in names:
        if name not in named_scenarios():
            raise ScenarioError(f"no scenario {name!r}: there are {', '.join(named_scenarios())}")
    return sorted((Seeds(name) for name in names or named_scenarios()), key=lambda item: item.count)


def conclude(item: Seeds, out: Path) -> None:
    """Write what became of a scenario: its verdict, its runs, and every check and run that failed."""
    directory = out / item.id
    directory.mkdir(exist_ok=True)
    write_json(directory / VERDICT, conclusion(item, directory))


def conclusion(item: Seeds, directory: Path) -> dict[str, Any]:
    """The content of ``verdict.json``: scenario, verdict, reason, runs, checks held, and ``failed``, a line each."""
    made: dict[str, Any] = {"scenario": item.name, "verdict": NOT_SIMULATED, "reason": item.obstacle()}
    made |= {"runs": 0, "checks": 0, "held": 0, "failed": []}
    if made["reason"]:
        return made
    try:
        summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return made | {"verdict": UNFINISHED, "reason": "no summary"}
    runs = summary["runs"]
    broken = [f"{run['run']}: {run['outcome']}: {run['reason'] or '; '.join(run['distrust'])}" for run in runs if run["verdict"] != "ok"]
    missed = [f"{check['name']}: expected {check['expected']}, seen {check['seen']}" for check in summary["checks"] if check["ok"] is False]
    held = sum(bool(check["ok"]) for check in summary["checks"])
    asked = sum(check["ok"] is not None for check in summary["checks"])
    counts = {"runs": len(runs), "checks": asked, "held": held}
    if summary["verdict"] == INTERRUPTED or "stopped_by" in summary:
        reason = summary.get("stopped_by", "stopped by the user")
        return made | counts | {"verdict": UNFINISHED, "reason": reason, "failed": missed}
    return made | counts | {"verdict": FAILED if broken or missed else OK, "failed": broken + missed}
