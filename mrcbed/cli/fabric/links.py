"""``mrcbed fabric links``: every link of a running fabric."""

from __future__ import annotations

import json

import click
from rich.text import Text

from mrcbed.cli.fabric.running_fabric import WIDTH, json_option, reach, url_option
from testbed import terminal
from testbed.options import option
from testbed.terminal import duration
from topologies.units import NS


@click.command(name="links")
@option("--bad", is_flag=True, help="Only failed or denied links.")
@url_option
@json_option
def command(bad: bool, url: str | None, as_json: bool) -> None:
    """List the links of a running fabric: state, since when, which denials cover them, and how many
    paths use them."""
    every = reach(url).get("links")
    rows = [row for row in every if not bad or row["state"] != "up" or row["denied"]]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    cells: list[list[terminal.Cell]] = []
    for row in rows:
        state = Text(row["state"], "green" if row["state"] == "up" else "red")
        cells.append(
            [
                row["link"],
                state,
                duration(row["since_ps"] / NS),
                Text(", ".join(row["denied"]), "magenta"),
                str(row["paths"]),
            ]
        )
    if cells:
        heads = ("link", "state", "since", "denied by", "paths")
        terminal.console(WIDTH).print(
            terminal.table(heads, cells, names=("state",), words=("denied by",))
        )
    failed, denied = (
        sum(row["state"] != "up" for row in every),
        sum(bool(row["denied"]) for row in every),
    )
    click.echo(f"{len(every)} links, {failed} failed, {denied} denied")
