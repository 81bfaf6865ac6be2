"""A figure of the paper as data: how its claims are evaluated, its scenarios in full and quick form, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scenarios.schema.dilation import needs_simulation
from scenarios.schema.scenario import Scenario, load_scenario
from scenarios.sets.paper.claims import Evidence, Row
from scenarios.sets.paper.plots import Draw
from testbed.simulated import SIMULATED

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Part:
    """One scenario of a figure. ``quick`` may reduce steps, durations, sizes and seeds, but change nothing else."""

    name: str
    scenario: str  # a shipped scenario's name, or a file beside this module
    full: tuple[str, ...] = ()  # values of --set
    quick: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3)
    transports: tuple[str, ...] = ()  # those of the scenario to run; (): all
    fabric: str | None = None
    home: str = ""  # the figure whose directory holds the runs, if another figure shares them
    world: str = ""  # in which it runs; "": emulated, unless it has what only simulated switches do

    def simulated(self, scenario: Scenario) -> bool:
        """Whether it runs in the simulated world."""
        return self.world == SIMULATED or (not self.world and bool(needs_simulation(scenario)))

    def load(self, quick: bool = False, seeds: tuple[int, ...] = ()) -> Scenario:
        """Load the scenario. Raises :class:`scenarios.schema.values.ScenarioError`."""
        source = str(HERE / self.scenario) if self.scenario.endswith(".toml") else self.scenario
        return load_scenario(
            source,
            fabric=self.fabric,
            transports=self.transports,
            overrides=self.overrides(quick),
            seeds=seeds or ((1,) if quick else self.seeds),
        )

    def overrides(self, quick: bool) -> tuple[str, ...]:
        return self.quick if quick else self.full


@dataclass(frozen=True)
class PaperFigure:
    """A figure. ``parts`` is empty if it is computed. ``note``: what a reader must know about the emulation."""

    id: str
    title: str
    evaluate: Callable[[Evidence], list[Row]]
    draw: Draw
    parts: tuple[Part, ...] = ()
    note: str = ""
    section: str = ""  # of the paper, if it is none of its figures

    @property
    def heading(self) -> str:
        return f"Section {self.section}" if self.section else f"Fig {self.id}"

    def directory(self, part: Part, out: Path) -> Path:
        return out / (part.home or self.id) / part.name
