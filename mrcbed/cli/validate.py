"""``mrcbed validate [NAME...]``: the same scenarios in both worlds, beside theory."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from mrcbed.cli.common import needs_root
from mrcbed.cli.sets import (
    conclude_apart,
    run_one,
    set_directory,
    set_options,
    show_list,
    show_set,
    tell,
)
from scenarios.sets.series import Form
from testbed.errors import UserError
from testbed.machine.caller import written
from testbed.options import argument, option
from testbed.world import EMULATED, WORLDS


@click.command(name="validate")
@argument("names", nargs=-1, metavar="[NAME]...")
@option(
    "--worlds",
    default=",".join(WORLDS),
    show_default=True,
    metavar="W",
    help="Run only this world; simulated needs no root.",
)
@set_options("cases", "Use one seed and shorter runs.", "1-3", "validation.json")
def command(
    names: tuple[str, ...],
    form: Form,
    worlds: str,
    as_list: bool,
    out: str | None,
    resume: bool,
    report: str | None,
    as_json: bool,
) -> None:
    """Run small scenarios (all, or NAME like ring, idle, incast) in both worlds and compare theory,
    simulation and emulation; some are emulated at twice the dilation, too.

    Exit status: 0 all figures agree or differ for a known cause; 1 one differs without, or a run
    failed; 2 bad input; 130 stopped.
    """
    from scenarios.sets.validation import concluding
    from scenarios.sets.validation.cases import chosen, parse_worlds

    cases = chosen(names, parse_worlds(worlds))
    if as_list:
        note = f"Of {' and '.join(cases[0].worlds)} runs together."
        show_list(cases, form, ("case", "scenario"), lambda case: str(case.scenario), note)
        return
    if report is not None:
        sys.exit(_report(chosen(names, ()), written(Path(report)), as_json))
    emulated = any(EMULATED in case.worlds for case in cases)
    if emulated:
        needs_root(EMULATED, "--worlds simulated (--list, --report need none)")
    directory = set_directory("validate", out, resume)
    concluding.open_directory(directory, form, resume)
    if not emulated:
        # what was run is written, as after Ctrl-C
        signal.signal(signal.SIGTERM, signal.default_int_handler)

    def run_case(part: Any, scenario: Any, destination: Path, resuming: bool) -> int:
        return run_one(scenario, destination, resuming, part.world, apart=emulated)

    def conclude(case: Any, destination: Path) -> None:
        concluding.conclude(case, destination, form)

    status = concluding.run_series(
        cases, directory, form, run_case, conclude_apart(conclude) if emulated else conclude, tell
    )
    sys.exit(status or _show(directory, [case.id for case in cases], as_json))


def _report(cases: list[Any], directory: Path, as_json: bool) -> int:
    from scenarios.sets.validation import concluding

    form = concluding.read_form(directory)
    finished = [
        case
        for case in cases
        if any((directory / case.id / world / "summary.json").is_file() for world in WORLDS)
    ]
    if not finished:
        names = ", ".join(case.id for case in cases)
        raise UserError(
            f"{directory} holds no results of {names}: run them with --out {directory} --resume"
        )
    for case in finished:
        concluding.conclude(case, directory, form)
    return _show(directory, [case.id for case in finished], as_json)


def _show(directory: Path, ids: list[str], as_json: bool) -> int:
    from scenarios.sets.validation import page
    from scenarios.sets.validation.concluding import concluded, exit_status

    results = concluded(directory)
    show_set(
        page,
        directory,
        results,
        170,
        as_json,
        [Text(line, style="yellow") for line in page.notes(results)],
    )
    return exit_status(results, ids)
