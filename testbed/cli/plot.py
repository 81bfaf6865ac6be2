"""``mrcbed plot DIR``: draw a results directory's plots again, from its files alone."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.errors import UserError


@click.command(name="plot")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the files' names as JSON.")
def command(directory: Path, as_json: bool) -> None:
    """Draw the plots of results directory DIR again. Needs no root."""
    if not (directory / "summary.json").is_file():
        raise UserError(f"{directory} holds no results (no summary.json): give a directory that mrcbed run wrote")
    from scenarios.plots import draw_all

    made = draw_all(directory)
    if as_json:
        import json

        click.echo(json.dumps([str(path) for path in made]))
    else:
        for path in made:
            click.echo(path)
