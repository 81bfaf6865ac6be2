"""A figure of the paper: scenarios in full and quick form, statements, and a drawing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from scenarios.schema.dilation import needs_simulation
from scenarios.schema.scenario import Scenario, load_scenario
from scenarios.sets.paper.claims import AGREES, COMPUTED, Evidence, Row
from scenarios.sets.paper.plots import DRAW
from scenarios.sets.paper.statement import Statement
from testbed.world import SIMULATED, WORLDS
from topologies.structs import one_of

HERE = Path(__file__).parent


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scenario of a figure. ``quick`` may only reduce steps, durations, sizes and seeds."""

    name: str
    scenario: str  # a shipped scenario's name, or a file beside this module
    full: tuple[str, ...] = ()  # values of --set
    quick: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()  # (): ten in the simulated world, else three
    transports: tuple[str, ...] = ()  # those of the scenario to run; (): all
    fabric: str | None = None
    home: str = ""  # the figure whose directory holds the runs, if another figure shares them
    # in which it runs; "": emulated, unless it has what only simulated switches do
    world: Annotated[str, one_of(("", *WORLDS))] = ""

    def simulated(self, scenario: Scenario) -> bool:
        return self.world == SIMULATED or (not self.world and bool(needs_simulation(scenario)))

    def load(self, quick: bool = False, seeds: tuple[int, ...] = ()) -> Scenario:
        """Raises :class:`scenarios.schema.values.ScenarioError`."""
        source = str(HERE / self.scenario) if self.scenario.endswith(".toml") else self.scenario
        return load_scenario(
            source,
            fabric=self.fabric,
            transports=self.transports,
            overrides=self.overrides(quick),
            seeds=seeds
            or (
                (1,)
                if quick
                else self.seeds or tuple(range(1, 11 if self.world == SIMULATED else 4))
            ),
        )

    def overrides(self, quick: bool) -> tuple[str, ...]:
        return self.quick if quick else self.full


class PaperFigure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The head of figures.toml explains the keys. ``parts`` is empty if the figure is computed."""

    id: str
    title: str
    draw: Annotated[str, one_of(DRAW)]
    parts: tuple[Part, ...] = ()
    note: str = ""
    section: str = ""
    statements: dict[str, Statement] = {}

    @property
    def heading(self) -> str:
        return f"Section {self.section}" if self.section else f"Fig {self.id}"

    def directory(self, part: Part, out: Path) -> Path:
        return out / (part.home or self.id) / part.name

    def evaluate(self, evidence: Evidence) -> list[Row]:
        """Judge each statement. What is computed from the paper's own inputs does not agree: it
        follows."""
        rows = [statement.judged(evidence) for statement in self.statements.values()]
        return (
            rows
            if self.parts
            else [replace(row, verdict=COMPUTED) if row.verdict == AGREES else row for row in rows]
        )
