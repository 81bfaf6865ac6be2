"""``mrcbed check FILE|NAME``: what is wrong with a file, or what it would do and how long that
takes."""

from __future__ import annotations

import json
import sys
from typing import Any, TypedDict

import click

from testbed import terminal
from testbed.errors import UserError
from testbed.options import argument, option


@click.command(name="check")
@argument("file", metavar="FILE|NAME")
@option(
    "--as",
    "kind",
    type=click.Choice(["scenario", "fabric"]),
    help="Take FILE for this, where a name is both or a file is neither.",
)
@option(
    "--transport", "-t", "transports", multiple=True, metavar="T", help="As for run. Repeatable."
)
@option("--fabric", metavar="NAME-OR-FILE", help="Use this fabric instead of the scenario's.")
@option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key, as for run. Repeatable.",
)
@option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON: whether it is right, errors, warnings, runs, seconds in each world.",
)
def command(
    file: str,
    kind: str | None,
    transports: tuple[str, ...],
    fabric: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Check a scenario or fabric file, or a shipped one by name; print what it would do, and how
    long that takes.

    Exit status: 0 it is right; 2 it is not, and every line on stderr is a mistake.
    """
    from scenarios.schema.complaints import check_fabric, check_scenario
    from scenarios.show.plan import fabric_lines, show_plan, warnings
    from topologies import FabricError
    from topologies.fabrics import usual_dilation

    out = terminal.console(120)
    kind = kind or kind_of(file)
    scenario, lines, runs, worlds = None, [], 0, {}
    more: dict[str, object] = {}
    if kind == "fabric":
        loaded, errors = check_fabric(file)
        if loaded is not None:
            more["description"] = lines = fabric_lines(loaded, usual_dilation(file))
    else:
        scenario, errors = check_scenario(
            file, transports=transports, fabric=fabric, overrides=overrides
        )
        if scenario is not None:
            from scenarios.run.planning import plan

            try:
                runs, worlds = len(plan(scenario)), seconds(scenario)
                more = {"runs": runs, "seconds": worlds, "warnings": warnings(scenario)}
            except (UserError, FabricError) as error:
                errors = [str(error)]
    if as_json:
        print(
            json.dumps(
                {"file": file, "kind": kind, "errors": errors, **more, "ok": not errors},
                indent=2,
                ensure_ascii=False,
            )
        )
        return UserError.status if errors else 0
    for line in errors:
        print(f"mrcbed: {line}", file=sys.stderr)
    if errors:
        return UserError.status
    out.print(f"{file}: ok, a {kind}")
    for line in lines:
        out.print(line)
    if scenario is not None:
        show_plan(out, scenario, runs)
        show_seconds(out, worlds)
    return 0


class Estimate(TypedDict, total=False):
    """``dilation`` and its ``why`` are the emulated world's."""

    seconds: float
    dilation: float
    why: str
    refused: str


def kind_of(file: str) -> str:
    from scenarios.schema.scenario import HERE, named_scenarios
    from topologies.fabrics import named_fabrics
    from topologies.toml_files import STDIN, find_file, read_toml

    if file in named_scenarios():
        return "scenario"
    if file in named_fabrics():
        return "fabric"
    path = find_file(file, HERE)
    if path is None or file == STDIN or not path.is_file():  # a pipe can be read once
        return "scenario"
    try:
        data = read_toml(path)[1]
    except ValueError:
        return "scenario"
    return (
        "fabric"
        if {"planes", "hosts_per_t0"} & data.keys() and not {"workload", "transport"} & data.keys()
        else "scenario"
    )


def seconds(scenario: Any) -> dict[str, Estimate]:
    """Estimate all runs, emulated ones at the dilation that a run would take now."""
    from scenarios.run.simulate import check_simulable
    from scenarios.schema.dilation import at_dilation, check_emulable
    from scenarios.sets.dilation import automatic, given
    from scenarios.sets.estimate import scenario_seconds
    from testbed.bench import calibration
    from topologies import FabricError

    worlds: dict[str, Estimate] = {}
    try:
        check_simulable(scenario)
        worlds["simulated"] = {"seconds": scenario_seconds(scenario, None)}
    except UserError as error:
        worlds["simulated"] = {"refused": str(error)}
    kept = calibration.read()
    try:
        chosen = (
            given(scenario, scenario.dilation)
            if kept is None
            else automatic(scenario, kept.cpu_us, calibration.others_cores())
        )
        check_emulable(scenario, chosen.value)
        why = (
            "the fabric's own; this machine is not calibrated yet, a run may take more"
            if kept is None
            else chosen.why
        )
        worlds["emulated"] = {
            "seconds": scenario_seconds(at_dilation(scenario, chosen.value), chosen.value),
            "dilation": chosen.value,
            "why": why,
        }
    except (UserError, FabricError) as error:
        worlds["emulated"] = {"refused": str(error)}
    return worlds


def show_seconds(out: Any, worlds: dict[str, Estimate]) -> None:
    from scenarios.sets.estimate import format_duration

    for world, found in worlds.items():
        if "refused" in found:
            line = f"not in this world: {found['refused']}"
        else:
            line = f"about {format_duration(found['seconds'])}"
            line += (
                f" at dilation {found['dilation']:,.0f} ({found['why']})"
                if "dilation" in found
                else " on two cores"
            )
        out.print(f"{world:10}{line}")
