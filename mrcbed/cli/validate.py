"""``mrcbed validate [NAME...]``: the same scenarios in both worlds, beside theory."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click

from mrcbed.cli.run import parse_seeds
from mrcbed.cli.sets import conclude_apart, run_one, show_list, tell
from testbed import terminal
from testbed.errors import UserError
from testbed.machine.caller import written
from testbed.options import argument, option
from testbed.simulated import EMULATED, WORLDS


@click.command(name="validate")
@argument("names", nargs=-1, metavar="[NAME]...")
@option("--list", "as_list", is_flag=True, help="List the cases and how long they take; run nothing.")
@option("--quick", is_flag=True, help="Use one seed and shorter runs.")
@option("--seeds", "seed_range", metavar="A-B", help="Use these seeds instead of 1-3: 1-5, or 1,3,7-9.")
@option("--worlds", default=",".join(WORLDS), show_default=True, metavar="W", help="Run only this world; simulated needs no root.")
@option("--out", metavar="DIR", help="Write results to DIR (default: results/validate-<time>).")
@option("--resume", is_flag=True, help="Continue in --out DIR, also with another world, and keep what is finished there.")
@option("--report", metavar="DIR", help="Evaluate and draw the results in DIR again, without root; run nothing.")
@option("--json", "as_json", is_flag=True, help="Print validation.json instead of the table.")
def command(
    names: tuple[str, ...],
    as_list: bool,
    quick: bool,
    seed_range: str | None,
    worlds: str,
    out: str | None,
    resume: bool,
    report: str | None,
    as_json: bool,
) -> None:
    """Run small scenarios (all, or NAME like ring, idle, incast) in both worlds and compare theory, simulation and emulation; some are
    emulated at twice the dilation, too.

    Exit status: 0 all figures agree or differ for a known cause; 1 one differs without, or a run failed; 2 bad input; 130 stopped.
    """
    from scenarios.sets.series import Form
    from scenarios.sets.validation import concluding
    from scenarios.sets.validation.cases import chosen, parse_worlds

    cases = chosen(names, parse_worlds(worlds))
    seeds = tuple(parse_seeds(seed_range)) if seed_range else ()
    if as_list:
        _list(cases, seeds)
        return
    if report is not None:
        sys.exit(_report(chosen(names, ()), written(Path(report)), as_json))
    emulated = any(EMULATED in case.worlds for case in cases)
    if emulated and os.geteuid() != 0:
        raise UserError("mrcbed validate needs root for the emulated world: use sudo, or --worlds simulated (--list, --report need none)")
    if resume and out is None:
        raise UserError("--resume needs --out DIR, the directory to go on in")
    directory = Path(out) if out else Path("results") / f"validate-{time.strftime('%Y%m%d-%H%M%S')}"
    form = Form(quick, seeds)
    concluding.open_directory(directory, form, resume)
    if not emulated:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was run is written, as after Ctrl-C

    def run_case(part: Any, scenario: Any, destination: Path, resuming: bool) -> int:
        return run_one(scenario, destination, resuming, part.world, apart=emulated)

    def conclude(case: Any, destination: Path) -> None:
        concluding.conclude(case, destination, form)

    status = concluding.run_series(cases, directory, form, run_case, conclude_apart(conclude) if emulated else conclude, tell)
    _show(directory, as_json)
    case_ids = [case.id for case in cases]
    sys.exit(status or concluding.exit_status(concluding.concluded(directory), case_ids))


def _report(cases: list[Any], directory: Path, as_json: bool) -> int:
    """Conclude and show the cases that were run, in whatever worlds; the exit status."""
    from scenarios.sets.validation import concluding

    form = concluding.read_form(directory)
    finished = [case for case in cases if any((directory / case.id / world / "summary.json").is_file() for world in WORLDS)]
    if not finished:
        names = ", ".join(case.id for case in cases)
        raise UserError(f"{directory} holds no results of {names}: run them with --out {directory} --resume")
    for case in finished:
        concluding.conclude(case, directory, form)
    _show(directory, as_json)
    return concluding.exit_status(concluding.concluded(directory), [case.id for case in finished])


def _list(cases: list[Any], seeds: tuple[int, ...]) -> None:
    note = f"Of {' and '.join(cases[0].worlds)} runs together."
    show_list(cases, seeds, ("case", "scenario"), lambda case: str(case.scenario), note)


def _show(directory: Path, as_json: bool) -> None:
    from scenarios.sets.validation import page
    from scenarios.sets.validation.concluding import concluded

    path = page.write_page(directory)
    if as_json:
        click.echo(json.dumps(json.loads((directory / page.DATA).read_text(encoding="utf-8")), indent=2))
        return
    results = concluded(directory)
    console = terminal.console(170)
    console.print(page.table(results))
    for line in page.notes(results):
        console.print(line, style="yellow")
    console.print(page.summary_line(results))
    console.print(f"Page: {path}", soft_wrap=True)
