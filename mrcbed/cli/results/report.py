"""``mrcbed results report DIR``: a results directory's ``report.html`` again."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.machine.caller import written
from testbed.options import argument


@click.command(name="report")
@argument("directory", metavar="DIR", type=click.Path(path_type=Path))
def command(directory: Path) -> None:
    """Write report.html of results directory DIR again and print its path. The page needs no
    network; the command needs no root."""
    from scenarios.show.html import write_report
    from testbed.results.reading import believing

    with believing(directory):
        click.echo(write_report(written(directory)))
