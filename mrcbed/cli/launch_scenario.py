"""``mrcbed launch --scenario``: what a launch takes from a scenario file, and its faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mrcbed.cli.common import lasting_faults, parse_dilation, say, session_of
from scenarios.run.breaking import Breaking
from scenarios.run.timeline import Timeline
from scenarios.schema.dilation import check_faults, check_rates, needs_simulation
from scenarios.schema.scenario import USED_BY_QP, Scenario, Transport, load_scenario
from testbed import terminal
from testbed.errors import UserError
from testbed.faults.kinds import KINDS
from testbed.session import Session
from testbed.world import SIMULATED, World
from topologies.units import NS

JOURNAL = "runner.jsonl"  # beside the agents' logs, as a run has it


@dataclass(frozen=True)
class Planned(Session):
    scenario: Scenario | None = None

    @property
    def planned(self) -> Transport:
        assert self.scenario is not None
        return self.scenario.transports[0]


def session_or_scenario(
    name: str, dilation: str, transport: str, world: str, faults: tuple[str, ...], seed: int
) -> tuple[Session, str]:  # fmt: skip
    """With --scenario, what is not on the command line is the scenario's. Raises
    :class:`UserError`, :class:`topologies.FabricError`."""
    context = click.get_current_context()
    file: str | None = context.params["scenario"]
    if file is None:
        return session_of(name, dilation, transport, world, faults, seed)
    given = {
        key
        for key in ("fabric", "transport", "seed")
        if context.get_parameter_source(key) is not ParameterSource.DEFAULT
    }
    scenario = load_scenario(
        file,
        fabric=name if "fabric" in given else None,
        transports=[transport] if "transport" in given else [],
        seeds=[seed] if "seed" in given else [],
    )
    scenario = replace(scenario, transports=scenario.transports[:1])
    slower = parse_dilation(dilation, scenario.dilation) or scenario.dilation
    _check(scenario, world, slower)
    used = scenario.transports[0]
    broken, first, count = lasting_faults(faults), scenario.seeds[0], len(scenario.faults)
    counted = f"{count} fault{'s' * (count != 1)}"
    line = (
        f"mrcbed: of {scenario.file}: fabric {used.fabric.name}, transport {used.name}, seed "
        f"{first}, {counted}\n"
    )
    return Planned(
        used.fabric, world, used.kind, broken, first, slower, used.options, scenario
    ), line


def _check(scenario: Scenario, world: str, dilation: float) -> None:
    """Raises :class:`UserError`, :class:`topologies.FabricError` for what a launch cannot have."""
    if scenario.swept:
        raise UserError(
            f"{scenario.file}: a launch has one setting, and [sweep] makes "
            f"{len(scenario.swept)}: drop [sweep]"
        )
    for fault in scenario.faults:
        kind, where = KINDS[fault.kind], f"{scenario.file}: fault {fault.name!r}"
        if fault.step is not None:
            raise UserError(
                f'{where}: step = {fault.step}: a program has no steps: say at = "...", how long '
                "after the ranks started"
            )
        if fault.on == USED_BY_QP:
            raise UserError(
                f"{where}: on = {USED_BY_QP!r}: a program makes its queue pairs by itself: name "
                f"a {kind.on}"
            )
        if world == SIMULATED and (problem := kind.not_simulated(fault.on)):
            raise UserError(
                f"{where} {problem}, which the {SIMULATED} world does not have: drop --world "
                f"{SIMULATED}"
            )
    used = scenario.transports[0]
    if absent := Timeline(used.fabric, scenario.faults, scenario.seeds[0]).absent:
        raise UserError(f"{scenario.file}: fault {absent[0]}")
    if world == SIMULATED:
        return
    if reason := needs_simulation(scenario):
        raise UserError(f"{scenario.file}: {reason}: add --world {SIMULATED}")
    check_rates(used.fabric, dilation)
    check_faults(scenario, dilation)


@contextmanager
def breaking(cluster: World, session: Planned, logs: Path | None) -> Iterator[Breaking]:
    """Break a living cluster as the scenario says. Faults that begin before all are there, others
    come when the caller acts; all are taken back at the end. ``logs``: folder of the journal, or
    None."""
    assert session.scenario is not None
    with open(
        logs / JOURNAL if logs is not None else "/dev/null", "w", encoding="utf-8", buffering=1
    ) as file:
        begun = cluster.clock.now()

        def journal(t: int, kind: str, **fields: Any) -> None:
            nonlocal begun
            begun = t if kind == "start" else begun
            print(json.dumps({"t": t, "kind": kind, **fields}), file=file)
            if kind == "fault" and fields["phase"] in ("begin", "heal"):
                say(
                    f"after {terminal.duration(max(0, t - begun) / NS)} of network time: "
                    f"{fields['name']}, {fields['phase']}"
                )

        faults = Breaking(
            cluster, Timeline(session.fabric, session.scenario.faults, session.seed), journal
        )
        try:
            faults.begin_before()
            yield faults
        finally:
            faults.heal()
