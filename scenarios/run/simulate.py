"""Runs scenarios in the simulated world, without root and sandbox, and refuses those that it cannot
run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agents.kernel.options import KINDS as KERNEL_KINDS
from scenarios.run.captures import captured_links
from scenarios.schema.scenario import Scenario, ScenarioError, check_no_verbs
from testbed.faults.kinds import KINDS
from testbed.results.summary import Summary
from testbed.simulated.split import why_not
from testbed.world import SIMULATED
from topologies import Fabric

if TYPE_CHECKING:
    from scenarios.run.runner import Progress
    from testbed.simulated.cluster import SimulatedCluster

NO_PROGRAMS = "the simulated world runs no programs and has no kernel"


@dataclass(frozen=True)
class Worlds:
    pcap_links: Sequence[str] = ()
    split: int = 1  # processes that share one run


ONE_PROCESS = Worlds()


def check_simulable(scenario: Scenario) -> None:
    """Refuse what only the emulated world has. Raises :class:`ScenarioError`, one line."""
    check_no_verbs(scenario)
    for variant in scenario.variants:
        kernel = [t.name for t in variant.scenario.transports if t.kind in KERNEL_KINDS]
        if kernel:
            others = [t.name for t in variant.scenario.transports if t.kind not in KERNEL_KINDS]
            fix = " ".join(f"--transport {name}" for name in others) or "emulate it"
            raise ScenarioError(
                f"{scenario.name}: transport {kernel[0]!r} is the kernel's, {NO_PROGRAMS}: {fix}"
            )
        if variant.scenario.backgrounds:
            name = variant.scenario.backgrounds[0].name
            raise ScenarioError(
                f"{scenario.name}: background {name!r} is iperf3's, {NO_PROGRAMS}: drop it, or "
                "emulate it"
            )
        for fault in variant.scenario.faults:
            if problem := KINDS[fault.kind].not_simulated(fault.on):
                raise ScenarioError(
                    f"{scenario.name}: fault {fault.name!r} {problem}, {NO_PROGRAMS}: emulate it"
                )


def check_split(scenario: Scenario, split: int, pcap_links: Sequence[str] = ()) -> None:
    """Refuse to share a run that one process has to simulate. Raises :class:`ScenarioError`, one
    line."""
    if split == 1:
        return
    if pcap_links:
        raise ScenarioError(f"--split {split}: one process captures: drop --split or --pcap")
    for variant in scenario.variants:
        if variant.scenario.workload.jobs:
            raise ScenarioError(
                f"--split {split}: ranks of {scenario.name}'s jobs are threads of one process: "
                "drop --split"
            )
        for fabric in variant.scenario.fabrics.values():
            if reason := why_not(fabric):
                raise ScenarioError(f"--split {split}: {reason}: drop --split")


def simulate(
    scenario: Scenario,
    directory: Path,
    *,
    progress: Progress | None = None,
    command_line: Sequence[str] = (),
    resume: bool = False,
    jobs: int = 1,
    figures: bool = True,
    worlds: Worlds = ONE_PROCESS,
) -> Summary:
    """Run a scenario in ``jobs`` processes. Captures are numbered in order, so their runs go one at
    a time. Raises as
    :func:`check_simulable` and :func:`check_split`."""
    from scenarios.run.runner import Runner, RunOptions
    from testbed.simulated.cluster import SimulatedCluster

    check_simulable(scenario)
    split, pcap_links = worlds.split, worlds.pcap_links
    check_split(scenario, split, pcap_links)

    def capturing(fabric: Fabric) -> SimulatedCluster:
        links, pcap_dir = captured_links(fabric, pcap_links, directory)
        return SimulatedCluster(fabric, pcap_links=links, pcap_dir=pcap_dir)

    jobs = 1 if pcap_links else jobs
    options = RunOptions(
        progress=progress,
        command_line=command_line,
        switch=SIMULATED,
        resume=resume,
        world=SIMULATED,
        jobs=jobs,
        figures=figures,
    )
    return Runner(
        scenario,
        directory,
        capturing if pcap_links else partial(SimulatedCluster, split=split),
        options,
    ).run()
