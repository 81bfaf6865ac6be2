"""``mrcbed tools clean``: what a run left behind."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import click

from testbed import terminal
from testbed.errors import UserError
from testbed.machine.cleanup import end, find
from testbed.options import option


@click.command(name="clean")
@option("--dry-run", is_flag=True, help="Only list it.")
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(dry_run: bool, as_json: bool) -> int:
    """Remove what a dead run left behind, and nothing else.

    A run normally ends all its processes, and its interfaces, namespaces and pins vanish with them;
    this command is for the day on which that failed. It does not touch runs whose mrcbed still
    lives. Exit status 1 if a process could not be ended.
    """
    if os.geteuid() != 0:
        raise UserError("mrcbed needs root: run it with sudo")
    leftovers = find()
    remaining = leftovers if dry_run else end(leftovers)
    if as_json:
        print(
            json.dumps(
                {"found": [*map(asdict, leftovers)], "left": [*map(asdict, remaining)]}, indent=2
            )
        )
    elif not leftovers:
        print("nothing to clean")
    else:
        rows = [
            [item.run, str(item.pid), item.name, str(item.interfaces), item.command]
            for item in leftovers
        ]
        heads = ("run", "pid", "process", "interfaces", "command")
        terminal.console().print(
            terminal.table(heads, rows, names=("process",), words=("command",))
        )
        print(
            f"{len(leftovers)} processes of dead runs; "
            + ("--dry-run ended none" if dry_run else f"{len(leftovers) - len(remaining)} ended")
        )
    return 1 if remaining and not dry_run else 0
