"""``mrcbed compare DIR DIR...``: runs that were made apart, side by side in a new results directory. Reads files alone."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from testbed import terminal


@click.command(name="compare")
@click.argument("directories", metavar="DIR DIR...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--out", metavar="DIR", help="Where the comparison goes (default: results/compare-<scenario>-<time>).")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json on stdout instead of tables.")
def command(directories: tuple[Path, ...], out: str | None, as_json: bool) -> None:
    """Put the runs of results directories DIR side by side: one scenario, workload and fabric; other transports, seeds or days.

    Writes tables, comparison, plots and report into a new directory and changes nothing in the old ones. Needs no root.
    """
    from scenarios.run.runner import results_directory
    from scenarios.sets.merging import merge, read_all
    from scenarios.show.html import write_report
    from scenarios.show.plots import draw_all
    from scenarios.show.report import show

    wholes = read_all(directories)
    directory = results_directory(f"compare-{wholes[0].summary['scenario']}", out)
    summary = merge(wholes, directory, ["mrcbed", *sys.argv[1:]])
    draw_all(directory)
    write_report(directory)
    if as_json:
        import json

        click.echo(json.dumps(summary, indent=2))
    else:
        show(terminal.console(120), summary, directory)
