"""``mrcbed doctor``: what this machine can and cannot do."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from rich.console import Console
from rich.text import Text

from mrcbed.doctor import Check, examine, well
from testbed import terminal
from testbed.options import option

MARKS = {
    "ok": ("ok", "green"),
    "missing": ("MISSING", "bold red"),
    "limited": ("limited", "yellow"),
    "optional": ("not needed", "dim"),
    "unknown": ("unknown", "yellow"),
}


@click.command(name="doctor")
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """Check what this machine can do, and print a fix for what it lacks. Exit status 2 if something
    required is missing."""
    checks = examine()
    if as_json:
        print(json.dumps({"ok": well(checks), "checks": [*map(asdict, checks)]}, indent=2))
    else:
        show(checks, terminal.console(140))
    return 0 if well(checks) else 2


def show(checks: list[Check], console: Console) -> None:
    rows: list[list[terminal.Cell] | None] = []
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            rows += [None, [Text(group, "bold"), "", "", ""]]
        mark, style = MARKS[check.status]
        why = Text(check.why, "dim" if check.status in ("ok", "optional") else "")
        if check.fix:
            why.append(f"\nfix: {check.fix}", "bold")
        rows.append([Text(mark, style), check.name, check.found, why])
    heads = ("", "what", "found", "why, and the fix")
    console.print(terminal.table(heads, rows, names=("what",), words=("found", "why, and the fix")))
    console.print()
    lacking = [check.name for check in checks if check.status == "missing"]
    unknown = sum(check.status == "unknown" for check in checks)
    if lacking:
        console.print(Text(f"Not ready: {', '.join(lacking)} missing.", "bold red"))
    else:
        console.print(
            Text(
                "Everything required is here"
                + (f"; {unknown} things could not be checked." if unknown else "."),
                "bold green",
            )
        )
