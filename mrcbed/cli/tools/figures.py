"""``mrcbed tools figures``: stored figures and tables, made again where missing or stale."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from mrcbed.cli.sets import conclude_apart, run_stamped, tell
from testbed import terminal
from testbed.errors import UserError
from testbed.installation import is_clone
from testbed.options import argument, option
from testbed.world import SIMULATED, WORLDS


@click.command(name="figures")
@argument("ids", nargs=-1, metavar="[ID]...")
@option(
    "--check",
    is_flag=True,
    help="Make nothing; exit with 1 if something is missing, stale or without a stamp, or a page "
    "differs.",
)
@option(
    "--list",
    "as_list",
    is_flag=True,
    help="List what is missing or stale, and how long it takes; make nothing.",
)
@option(
    "--pages",
    "pages_only",
    is_flag=True,
    help="Only write the fingerprints of the source, and the pages' tables from what is stored.",
)
@option(
    "--world",
    type=click.Choice(WORLDS),
    default=None,
    help="Only what runs in this world alone; simulated needs no root.",
)
@option(
    "--out",
    metavar="DIR",
    default="results/figures",
    show_default=True,
    help="Where runs are kept; what is finished there is not run again.",
)
def command(
    ids: tuple[str, ...], check: bool, as_list: bool, pages_only: bool, world: str | None, out: str
) -> None:
    """Make the figures and tables of the paper and of the pages, and the cases of the validation,
    that are missing or stale (all, or ID like 16, one-of-many, validate-idle).

    Each is written to results/reference, and its page, when its runs have ended. Stop it at any
    time and call it again.

    Exit status: 0 all are as they must be, 1 some could not be made or (--check) are not, 2 bad
    input, 130 stopped.
    """
    from scenarios.sets import provenance
    from scenarios.sets.reference import Reference, chosen

    if not is_clone():
        raise UserError(
            "figures are stored in a clone, and this is an installed package: make them with "
            "mrcbed paper and mrcbed run"
        )
    if not (check or as_list):
        provenance.write()
    reference = Reference()
    if pages_only:
        reference.write_pages()
        return
    due = [(item, state) for item in chosen(ids, world or "") if (state := reference.state(item))]
    if as_list or check:
        _show(due)
        troubles = (
            [*(f"{path}: without a stamp" for path in reference.unstamped())] if check else []
        )
        troubles += (
            [
                f"{path.name}: its tables are not those that are stored"
                for path, _ in reference.rewritten()
            ]
            if check
            else []
        )
        for line in troubles:
            click.echo(line)
        sys.exit(int(check and bool(due or troubles)))
    if os.geteuid() != 0 and (
        first := next((item.id for item, _ in due if not _simulated(item)), None)
    ):
        raise UserError(
            f"{first} needs root for network namespaces and eBPF: use sudo, or --world {SIMULATED}"
        )
    reference.write_pages()
    _show(due)
    sys.exit(_made([item for item, _ in due], Path(out), reference))


def _simulated(item: Any) -> bool:
    return all(part.simulated(part.load()) for part in item.parts)


def _show(due: list[tuple[Any, str]]) -> None:
    from scenarios.sets import estimate

    if not due:
        click.echo("Nothing is missing or stale.")
        return
    times = estimate.seconds([item for item, _ in due], False)
    rows: list[list[terminal.Cell] | None] = [
        [item.id, item.title, state, estimate.format_duration(times[item.id])]
        for item, state in due
    ]
    rows += [None, ["", "all of these", "", estimate.format_duration(sum(times.values()))]]
    terminal.console(120).print(
        terminal.table(("figure", "what", "state", "about"), rows, words=("what", "state"))
    )


def _made(due: list[Any], work: Path, reference: Any) -> int:
    from scenarios.sets import reference as sets
    from scenarios.sets.paper import series

    status = 0
    series.open_directory(work, series.Form(), True)
    for item in due:
        sets.discard_stale(item, work, reference.now)
        one = series.run_series(
            [item], work, series.Form(), run_stamped, conclude_apart(sets.conclude_any), tell
        )
        if one == series.INTERRUPTED:
            return one
        status = max(status, one)
        if not one:
            reference.keep(item, work)
            reference.write_pages()
            tell(f"{item.id}: stored in {reference.file(item).parent}")
    return status
