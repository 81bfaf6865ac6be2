"""``mrcbed results plot DIR``: a results directory's plots again."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.errors import UserError
from testbed.machine.caller import written
from testbed.options import argument, option


@click.command(name="plot")
@argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@option("--tables", is_flag=True, help="First write the Parquet tables again from raw/.")
@option("--json", "as_json", is_flag=True, help="Print the names of the files as JSON.")
def command(directory: Path, tables: bool, as_json: bool) -> None:
    """Draw the plots of results directory DIR again. Needs no root."""
    if not (directory / "summary.json").is_file():
        raise UserError(
            f"{directory} holds no results (no summary.json): give a directory that mrcbed run "
            "wrote"
        )
    written(directory)
    from scenarios.show.plots import draw_all
    from testbed.results.reading import believing

    with believing(directory):
        if tables:
            _tables(directory)
        paths = draw_all(directory)
    if as_json:
        import json

        click.echo(json.dumps([str(path) for path in paths]))
    else:
        for path in paths:
            click.echo(path)


def _tables(directory: Path) -> None:
    from scenarios.figures.measure import load_runs, write_tables

    runs = load_runs(directory)
    if not runs:
        raise UserError(
            f"{directory / 'raw'} holds no runs: without the raw files tables cannot be made again"
        )
    write_tables(runs, directory)
