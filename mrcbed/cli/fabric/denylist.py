"""``mrcbed fabric denylist``: what the hosts of a running fabric must not use."""

from __future__ import annotations

import json

import click

from mrcbed.cli.fabric.running_fabric import WIDTH, json_option, reach, url_option
from testbed import terminal
from testbed.errors import UserError
from testbed.options import argument, option
from testbed.terminal import duration
from topologies.units import NS


@click.group(name="denylist", invoke_without_command=True)
@url_option
@json_option
@click.pass_context
def command(context: click.Context, url: str | None, as_json: bool) -> None:
    """Show or change what the hosts of a running fabric must not use.

    An ENTRY is a link (p0-t0-0:p0-t1-3), a switch (p0-t1-3), a plane (p0) or a path in one
    direction (h0>h5@p0/3).
    """
    context.obj = url, as_json
    if context.invoked_subcommand is None:
        show(url, as_json)


@command.command(name="list")
@url_option
@json_option
@click.pass_obj
def show_command(group: tuple[str | None, bool], url: str | None, as_json: bool) -> None:
    """Show the denylist (the default)."""
    show(url or group[0], as_json or group[1])


@command.command(name="add")
@argument("entry")
@option("--reason", default="", metavar="TEXT", help="Reason, one line, shown with the entry.")
@url_option
@json_option
@click.pass_obj
def add(
    group: tuple[str | None, bool], entry: str, reason: str, url: str | None, as_json: bool
) -> None:
    """Deny ENTRY until it is removed or the fabric ends."""
    answer = reach(url or group[0]).deny(entry, reason)
    if as_json or group[1]:
        click.echo(json.dumps(answer, indent=2))
    else:
        click.echo(
            f"{answer['entry']} is denied"
            if answer["new"]
            else f"{answer['entry']} was denied already"
        )


@command.command(name="remove")
@argument("entry")
@url_option
@json_option
@click.pass_obj
def remove(group: tuple[str | None, bool], entry: str, url: str | None, as_json: bool) -> None:
    """Remove ENTRY, whoever denied it. Its paths must answer probes before they carry data
    again."""
    answer = reach(url or group[0]).allow(entry)
    if as_json or group[1]:
        click.echo(json.dumps(answer, indent=2))
    else:
        click.echo(
            f"{answer['entry']} is allowed again (it had been denied by "
            f"{', '.join(d['by'] for d in answer['removed'])})"
        )


@command.command(name="token")
@url_option
@click.pass_obj
def token(group: tuple[str | None, bool], url: str | None) -> None:
    """Print the token that scripts need for changes. Needs root."""
    secret = reach(url or group[0]).token
    if not secret:
        raise UserError("the token is for the fabric's owner: use sudo")
    click.echo(secret)


def show(url: str | None, as_json: bool) -> None:
    denials = reach(url).get("denylist")
    if as_json:
        click.echo(json.dumps(denials, indent=2))
        return
    if not denials:
        click.echo("nothing is denied")
        return
    rows = [
        [denial["entry"], denial["by"], duration(denial["since_ps"] / NS), denial["reason"]]
        for denial in denials
    ]
    terminal.console(WIDTH).print(
        terminal.table(("entry", "by", "since", "reason"), rows, names=("by",), words=("reason",))
    )
