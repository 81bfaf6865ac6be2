"""How much slower than the network a run is (its *dilation*), and the repeat if that was too
little.

``auto`` stretches a fabric's own dilation in steps where this machine would be busy for more than
:data:`MOST_BUSY` of its free time. A run still doubtful for want of CPU time or because timers were
late has the series repeated once at the next step.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.run.resume import holds_run
from scenarios.schema.dilation import at_dilation, check_emulable, check_rates
from scenarios.schema.scenario import Scenario, ScenarioError, Transport
from scenarios.schema.workloads import edges_of
from scenarios.sets.estimate import format_duration, scenario_seconds
from testbed.bench.calibration import calibration, others_cores
from testbed.machine.quota import quota_cores
from testbed.results.manifest import Attempt, Dilation, Stretched
from testbed.results.reading import ResultsError, read
from testbed.results.summary import Summary
from topologies import FabricError
from topologies.theory import place_ranks

if TYPE_CHECKING:
    from scenarios.run.runner import Progress

AUTO = "auto"
# on the scenario's own dilation: few, so that its runs compare [ours]
STEPS = (1, 1.5, 2, 5, 10, 20, 50)
MOST_BUSY = 0.6
"""Share of the free cores at a scenario's busiest moment: runs that took 70 % were trustworthy
[measured]."""


FAIR_SHARE = 0.5
"""Least share of all cores that the scheduler leaves to a run, whatever others want at this moment
[ours]."""


def read_manifest(directory: Path) -> Stretched:
    try:
        return read(directory / "manifest.json", Stretched)
    except ResultsError:
        return Stretched()


def given(scenario: Scenario, value: float) -> Dilation:
    return Dilation(
        factor=value / scenario.dilation, value=value, chosen="user", why="as asked for"
    )


def recorded(then: Dilation, wanted: float | None) -> Dilation:
    """Raises :class:`ScenarioError` if another dilation is asked for than the resumed run began
    with."""
    if wanted is not None and wanted != then.value:
        raise ScenarioError(
            f"--resume: the run was begun at dilation {then.value:,.0f}: drop --dilation "
            f"{wanted:,.0f}"
        )
    return then


def packets_per_second(scenario: Scenario) -> float:
    """Return data packets of all hosts per second, when as many ports send as the workload can
    fill."""

    def of(variant: Scenario, transport: Transport) -> float:
        fabric, most = transport.fabric, 0
        for placement in variant.workload.placement:
            edges = edges_of(
                variant.workload, fabric, place_ranks(fabric, placement), variant.seeds[0]
            )
            most = max(most, min(len({a for a, _ in edges}), len({b for _, b in edges})))
        return most * fabric.host_rate / 8 / fabric.frame_bytes

    return max(
        of(v.scenario, transport) for v in scenario.variants for transport in v.scenario.transports
    )


def free_cores(others: float) -> float:
    """Return cores that a run gets: no more than a CPU quota allows."""
    cores = len(os.sched_getaffinity(0))
    return min(quota_cores(), max(FAIR_SHARE * cores, cores - others))


def automatic(scenario: Scenario, cpu_us: float, others: float) -> Dilation:
    """Return the smallest step at which the busiest moment fits. ``cpu_us``: CPU time per data
    packet."""
    needed = packets_per_second(scenario) / scenario.dilation * cpu_us / 1e6
    free = free_cores(others)
    factor = next((step for step in STEPS if needed / step <= MOST_BUSY * free), STEPS[-1])
    limit = " (a CPU quota)" if free == quota_cores() else ""
    why = (
        f"{cpu_us:.0f} us of CPU time a packet: the busiest moment takes {needed / factor:.2g} "
        f"of {free:.2g} free cores{limit}"
    )
    return Dilation(factor=factor, value=factor * scenario.dilation, chosen=AUTO, why=why)


def next_step(dilation: Dilation, scenario: Scenario) -> Dilation | None:
    factor = next((step for step in STEPS if step >= 2 * dilation.factor), None)
    if factor is None:
        return None
    why = f"at {dilation.value:,.0f} the machine was too slow"
    slower = Dilation(factor=factor, value=factor * scenario.dilation, chosen=AUTO, why=why)
    try:
        for fabric in scenario.fabrics.values():
            check_rates(fabric, slower.value)
    except FabricError:
        return None
    return slower


def too_slow(summary: Summary) -> list[str]:
    return [
        f"{run.run}: {run.distrust[0]}"
        for run in summary.runs
        if run.fidelity.too_slow and run.distrust
    ]


def set_aside(directory: Path, number: int) -> Path:
    aside = directory / f"attempt-{number}"
    contents = [path for path in directory.iterdir() if not path.name.startswith("attempt-")]
    aside.mkdir()
    for path in contents:
        path.rename(aside / path.name)
    return aside


def run_dilated(
    scenario: Scenario,
    directory: Path,
    wanted: float | None,
    *,
    progress: Progress,
    resume: bool = False,
    **settings: Any,
) -> Summary:
    """Run a scenario in the emulated world at the dilation ``wanted``, None: "auto".

    ``settings`` as those of :func:`scenarios.run.runner.run_scenario`. Raises
    :class:`ScenarioError`, :class:`topologies.FabricError`.
    """
    from scenarios.figures.summary import INTERRUPTED
    from scenarios.run.runner import run_scenario

    former = read_manifest(directory) if resume and holds_run(directory) else Stretched()
    attempts = former.attempts
    if former.dilation is not None:
        dilation = recorded(former.dilation, wanted)
    elif wanted is not None:
        dilation = given(scenario, wanted)
    else:
        dilation = automatic(scenario, calibration(progress).cpu_us, others_cores())
    while True:
        check_emulable(scenario, dilation.value)
        slow = at_dilation(scenario, dilation.value)
        length = format_duration(scenario_seconds(slow, dilation.value))
        progress(
            f"dilation {dilation.value:,.0f} ({dilation.chosen}; {dilation.why}): about {length}",
            0.0,
        )
        stretch = Stretched(dilation=dilation, attempts=attempts)
        summary = run_scenario(
            slow, directory, progress=progress, resume=resume, stretched=stretch, **settings
        )
        reasons = too_slow(summary)
        slower = (
            next_step(dilation, scenario)
            if dilation.chosen == AUTO and not attempts and reasons
            else None
        )
        if slower is None or summary.verdict == INTERRUPTED:
            return summary
        why = f"At dilation {dilation.value:,.0f} the machine was too slow ({reasons[0]})"
        progress(f"{why}; all runs are repeated once, slower", 0.0)
        aside = set_aside(directory, len(attempts) + 1)
        attempt = Attempt(
            directory=aside.name,
            dilation=dilation,
            verdict=summary.verdict,
            why=why,
            reasons=reasons,
        )
        attempts = [*attempts, attempt]
        dilation, resume = slower, False
