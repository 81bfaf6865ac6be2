"""Runs scenarios in the fluid world, and refuses those that it cannot express. Called by ``mrcbed run --world fluid`` and by tests.

Needs no root and no sandbox. docs/fluid.md is the manual.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.schema.scenario import Scenario, ScenarioError, Transport
from testbed.fluid.calibration import ROUNDS
from testbed.fluid.cluster import TWO_SITES
from testbed.fluid.faults import not_fluid
from testbed.fluid.flows import PATTERNS
from testbed.fluid.world import ELSEWHERE, FluidCluster
from testbed.world import FLUID
from topologies.clos import SOURCE

if TYPE_CHECKING:
    from scenarios.run.runner import Progress

OPTIONS = ("active_evs", "probe_cap_rtts", "probe_successes")
"""Options of MRC that mean something without packets; ``qps`` has its own check."""


def check_fluid(scenario: Scenario) -> None:
    """Refuse what has no meaning without packets. Raises :class:`ScenarioError`, one line."""
    for variant in scenario.variants:
        if why := _obstacle(variant.scenario):
            raise ScenarioError(f"{scenario.name}: {why}")


def _obstacle(scenario: Scenario) -> str:
    work = scenario.workload
    if work.kind not in (*ROUNDS, *PATTERNS):
        return f"workload {work.kind!r}: the fluid world knows {', '.join((*ROUNDS, *PATTERNS))}; {ELSEWHERE}"
    if bound := [flow.name for flow in work.flows if flow.evs]:
        return f"flow {bound[0]!r} has evs: the fluid world's flows use all of them; {ELSEWHERE}"
    if scenario.backgrounds:
        return f"background {scenario.backgrounds[0].name!r}: the fluid world has no such traffic; leave it out, or emulate it"
    others = [t.name for t in scenario.transports if t.kind != "mrc"]
    if others:
        mrc = " ".join(f"--transport {t.name}" for t in scenario.transports if t.kind == "mrc") or ELSEWHERE
        return f"transport {others[0]!r}: the fluid world has MRC alone: {mrc}"
    for transport in scenario.transports:
        if why := _not_of(transport):
            return f"transport {transport.name!r}: {why}; {ELSEWHERE}"
    for fault in scenario.faults:
        if why := not_fluid(fault.kind):
            return f"fault {fault.name!r} ({fault.kind}) {why}, which the fluid world does not have: leave it out, or {ELSEWHERE}"
    return ""


def _not_of(transport: Transport) -> str:
    """What of a transport has no meaning here."""
    if transport.fabric.routing != SOURCE:
        return f"routing = {transport.fabric.routing!r}: the fluid world's senders choose their paths"
    if transport.fabric.sites > 1:
        return f"fabric {transport.fabric.name!r} {TWO_SITES}"
    if transport.qps != 1:
        return f"qps = {transport.qps}: the fluid world has one queue pair per pair of neighbours"
    if transport.controller != "none" or transport.clustermapper:
        return "a controller and Clustermapper tell endpoints things: the fluid world has neither"
    unknown = [key for key in transport.options if key not in OPTIONS]
    return f"option {unknown[0]!r} means nothing without packets (these do: {', '.join(OPTIONS)})" if unknown else ""


def flow(
    scenario: Scenario, directory: Path, *, progress: Progress | None = None, command_line: tuple[str, ...] | list[str] = (),
    resume: bool = False, jobs: int = 1, figures: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Run a scenario without packets in ``jobs`` processes and return the summary. Without ``figures`` there are no tables and plots.

    Raises as :func:`check_fluid`.
    """
    from scenarios.run.runner import Runner, RunOptions

    check_fluid(scenario)
    options = RunOptions(
        progress=progress, command_line=command_line, switch=FLUID, resume=resume, world=FLUID, jobs=jobs, figures=figures
    )  # fmt: skip
    return Runner(scenario, directory, FluidCluster, options).run()
