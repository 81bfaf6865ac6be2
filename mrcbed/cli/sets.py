"""How commands run each scenario of a set: emulated ones in a sandbox of their own.

Code that reads tables runs in a process of its own, too: the front process must not load anything
with threads before it forks again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from typing import Any

import click

from mrcbed.cli.common import ProgressBar, parse_seeds
from scenarios.sets.series import INTERRUPTED, Form
from testbed import terminal
from testbed.errors import UserError
from testbed.machine.exclusive import measuring
from testbed.options import option
from testbed.world import SIMULATED


def set_options(items: str, quick: str, seeds: str, data: str) -> Callable[[Any], Any]:
    """Add the options of both sets. The command gets ``form`` for ``--quick`` and ``--seeds``.

    ``items``: figures, say. ``quick``: what that does. ``seeds``: the usual ones. ``data``: the
    file that ``--json`` prints.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_form(quick: bool, seed_range: str | None, **others: Any) -> Any:
            return command(
                form=Form(quick, tuple(parse_seeds(seed_range)) if seed_range else ()), **others
            )

        options = (
            option(
                "--list",
                "as_list",
                is_flag=True,
                help=f"List the {items}, what they run and how long it takes; run nothing.",
            ),
            option("--quick", is_flag=True, help=quick),
            option(
                "--seeds",
                "seed_range",
                metavar="A-B",
                help=f"Use these seeds instead of {seeds}: 1-5, or 1,3,7-9.",
            ),
            option(
                "--out",
                metavar="DIR",
                help="Write results to DIR (default: results/<command>-<time>).",
            ),
            option(
                "--resume",
                is_flag=True,
                help="Continue in --out DIR and keep what is finished there.",
            ),
            option(
                "--report",
                metavar="DIR",
                help="Evaluate and draw the results in DIR again, without root; run nothing.",
            ),
            option("--json", "as_json", is_flag=True, help=f"Print {data} instead of the table."),
        )
        for one in reversed(options):
            with_form = one(with_form)
        return with_form

    return add


def set_directory(command: str, out: str | None, resume: bool) -> Path:
    """Raises :class:`UserError`."""
    if resume and out is None:
        raise UserError("--resume needs --out DIR, the directory to go on in")
    return Path(out) if out else Path("results") / f"{command}-{time.strftime('%Y%m%d-%H%M%S')}"


def show_set(
    page: Any, directory: Path, results: Any, width: int, as_json: bool, more: Sequence[Any] = ()
) -> None:
    """``more``: lines and tables between table and summary."""
    path = page.write_page(directory)
    if as_json:
        click.echo(
            json.dumps(json.loads((directory / page.DATA).read_text(encoding="utf-8")), indent=2)
        )
        return
    console = terminal.console(width)
    for part in (page.table(results), *more, page.summary_line(results)):
        console.print(part)
    console.print(f"Page: {path}", soft_wrap=True)


def run_part(part: Any, scenario: Any, directory: Path, resume: bool) -> int:
    """A simulated part runs on all cores."""
    from scenarios.run.processes import cores

    if part.simulated(scenario):
        return run_one(
            scenario, directory, resume, SIMULATED, apart=os.geteuid() == 0, jobs=cores()
        )
    return run_one(scenario, directory, resume)


def run_stamped(part: Any, scenario: Any, directory: Path, resume: bool) -> int:
    """As :func:`run_part`, with a note of the runs' code."""
    from scenarios.sets import provenance

    provenance.begin(part, scenario, directory)
    return run_part(part, scenario, directory, resume)


def run_one(
    scenario: Any,
    directory: Path,
    resume: bool,
    world: str = "emulated",
    apart: bool = True,
    jobs: int = 1,
) -> int:
    """Return the exit status, 130 if the user stopped it. ``apart``: in a sandbox, which needs
    root."""
    from testbed.machine import sandbox

    def work() -> int:
        from scenarios.run.runner import run_scenario
        from scenarios.run.simulate import simulate

        with ProgressBar() as progress:
            command_line = ["mrcbed", *sys.argv[1:]]
            if world == SIMULATED:
                summary = simulate(
                    scenario,
                    directory,
                    jobs=jobs,
                    progress=progress,
                    command_line=command_line,
                    resume=resume,
                )
            else:
                summary = run_scenario(
                    scenario, directory, progress=progress, command_line=command_line, resume=resume
                )
        return INTERRUPTED if summary.verdict == "interrupted" else 0

    if not apart:
        return work()
    with nullcontext() if world == SIMULATED else measuring(directory):
        return sandbox.run(work)


def conclude_apart(conclude: Callable[[Any, Path], Any]) -> Callable[[Any, Path], None]:
    from testbed.machine import sandbox

    def apart(item: Any, out: Path) -> None:
        def work() -> int:
            conclude(item, out)
            return 0

        if os.geteuid() != 0:
            work()
        elif sandbox.run(work):
            raise UserError("could not be concluded")

    return apart


def show_list(
    items: Sequence[Any],
    form: Form,
    heads: tuple[str, str],
    scenarios: Callable[[Any], str],
    note: str,
) -> None:
    """``heads``: headings of items and of what they run; ``scenarios``: those of an item."""
    from scenarios.sets import estimate

    rows: list[list[terminal.Cell] | None] = []
    times = {quick: estimate.seconds(items, quick, form.seeds) for quick in (False, True)}
    for item in items:
        cells = [
            (
                f"{estimate.runs(item, quick, form.seeds)}, "
                f"{estimate.format_duration(times[quick][item.id])}"
            )
            if item.parts
            else "computed"
            for quick in (False, True)
        ]
        rows.append([item.id, item.title, scenarios(item), *cells])
    rows += [
        None,
        [
            "",
            "all of these",
            "",
            *(estimate.format_duration(sum(times[quick].values())) for quick in (False, True)),
        ],
    ]
    columns = (heads[0], "what", heads[1], "full\nruns, about", "--quick\nruns, about")
    terminal.console(120).print(terminal.table(columns, rows, words=("what", heads[1])))
    click.echo(note)


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
