"""``mrcbed results compare DIR DIR...``: runs side by side in a new results directory."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mrcbed.cli.common import all_option
from testbed import terminal
from testbed.options import argument, option


@click.command(name="compare")
@argument("directories", metavar="DIR DIR...", nargs=-1, type=click.Path(path_type=Path))
@option(
    "--out",
    metavar="DIR",
    help="Write the comparison to DIR (default: results/compare-<scenario>-<time>).",
)
@option("--json", "as_json", is_flag=True, help="Print summary.json instead of tables.")
@all_option()
def command(
    directories: tuple[Path, ...], out: str | None, as_json: bool, everything: bool
) -> None:
    """Compare the runs of several results directories of one scenario and fabric, with different
    transports, seeds or days.

    Writes tables, plots and a report of all runs into a new directory; leaves the old ones
    unchanged. Needs no root.
    """
    from scenarios.run.runner import results_directory
    from scenarios.sets.merging import merge, read_all
    from scenarios.show.html import write_report
    from scenarios.show.plots import draw_all
    from scenarios.show.run_tables import show
    from testbed.results.reading import believing

    with believing(directories[0] if directories else Path()):
        wholes = read_all(directories)
    directory = results_directory(f"compare-{wholes[0].summary.scenario}", out)
    with believing(directory):
        summary = merge(wholes, directory, ["mrcbed", *sys.argv[1:]])
        draw_all(directory)
        write_report(directory)
    if as_json:
        import json

        from topologies.structs import plain

        click.echo(json.dumps(plain(summary), indent=2))
    else:
        show(terminal.console(120), summary, directory, everything)
