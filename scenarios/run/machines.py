"""Runs a scenario on several machines that carry its fabric together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.kernel.options import KINDS as KERNEL_KINDS
from scenarios.run.manifest import version
from scenarios.run.runner import Progress, Runner, RunOptions
from scenarios.schema.scenario import Scenario, ScenarioError
from testbed.machines.reach import Place
from testbed.machines.world import Machines
from testbed.results.manifest import Stretched
from testbed.results.summary import Summary
from topologies import Fabric
from topologies.parts import divide

_HERE = "which several machines do not have: drop --on, or"


def check_on_machines(scenario: Scenario, places: Sequence[Place]) -> None:
    """Refuse what only one machine has. Raises :class:`ScenarioError` or FabricError, one line."""
    for variant in scenario.variants:
        inner = variant.scenario
        if inner.workload.jobs:
            raise ScenarioError(
                f"{scenario.name}: jobs are programs beside their agents, {_HERE} use a "
                "collective or flows"
            )
        if inner.backgrounds:
            raise ScenarioError(
                f"{scenario.name}: background {inner.backgrounds[0].name!r} needs iperf3 beside "
                f"us, {_HERE} drop it"
            )
        for transport in inner.transports:
            divide(transport.fabric, len(places))
            if transport.kind in KERNEL_KINDS:
                raise ScenarioError(
                    f"{scenario.name}: transport {transport.name!r} is one kernel's, {_HERE} "
                    "drop it (--transport)"
                )
            if transport.controller != "none":
                raise ScenarioError(
                    f"{scenario.name}: transport {transport.name!r} needs a controller, {_HERE} "
                    'set controller = "none"'
                )
            if transport.fabric.pfc:
                raise ScenarioError(
                    f"{scenario.name}: fabric {transport.fabric.name!r} has pfc = true, {_HERE} "
                    "set it to false"
                )


def run_on_machines(
    scenario: Scenario,
    directory: Path,
    places: Sequence[Place],
    *,
    stretched: Stretched,
    progress: Progress | None = None,
    command_line: Sequence[str] = (),
    resume: bool = False,
    figures: bool = True,
) -> Summary:
    """``stretched`` as in :class:`RunOptions`."""
    check_on_machines(scenario, places)

    def factory(fabric: Fabric) -> Machines:
        return Machines(
            fabric,
            places,
            version(),
            str(directory.resolve()),
            progress,
            dilation=scenario.dilation,
        )

    names = ", ".join(f"{place.name} ({place.address})" for place in places)
    options = RunOptions(
        progress=progress,
        command_line=command_line,
        notes=[f"Each fabric was carried by {names} together."],
        resume=resume,
        figures=figures,
        stretched=stretched,
    )
    return Runner(scenario, directory, factory, options).run()
