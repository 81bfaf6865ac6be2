"""``mrcbed fabric paths SRC DST``: every path between two hosts of a running fabric."""

from __future__ import annotations

import json

import click
from rich.text import Text

from mrcbed.cli.fabric.running_fabric import WIDTH, json_option, reach, url_option
from testbed import terminal
from testbed.options import argument

STYLES = {"up": "green", "down": "red", "denied": "magenta"}


@click.command(name="paths")
@argument("src")
@argument("dst")
@url_option
@json_option
def command(src: str, dst: str, url: str | None, as_json: bool) -> None:
    """List the paths (EVs) from host SRC to host DST of a running fabric, as its controller sees
    them.

    The hosts' own view of their paths is `evs` at the prompt of mrcbed up.
    """
    client = reach(url)
    rows = client.get(f"paths/{src}/{dst}")
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    failed = set(client.get("failed-links"))
    cells: list[list[terminal.Cell]] = []
    for row in rows:
        causes = [
            *row["denied_by"],
            *(link for link in row["links"] if link in failed and link not in row["denied_by"]),
        ]
        state = Text(row["state"], STYLES[row["state"]])
        cells.append(
            [
                f"{row['plane']}:{row['uplink']}",
                row["address"],
                " ".join(row["switches"]),
                state,
                ", ".join(causes),
            ]
        )
    heads, names = (
        ("EV", "outer address", "switches", "state", "because of"),
        ("outer address", "switches", "state"),
    )
    terminal.console(WIDTH).print(terminal.table(heads, cells, names=names, words=("because of",)))
