"""``mrcbed results view DIR``: a page with the runs path by path."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.machine.caller import writing
from testbed.options import argument, option


@click.command(name="view")
@argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@option(
    "--run",
    "keys",
    multiple=True,
    metavar="RUN",
    help="Show this run of raw/. Repeatable. Default: one of each transport.",
)
@option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write the page. Default: DIR/replay.html.",
)
def command(directory: Path, keys: tuple[str, ...], out: Path | None) -> None:
    """Write replay.html of results directory DIR and print its path: open it in a browser. The page
    needs no network; the command needs no root."""
    from scenarios.show.replay_page import replay
    from testbed.results.reading import believing

    with believing(directory), writing(out or directory / "replay.html") as page:
        click.echo(replay(directory, keys, page))
