"""``mrcbed fabric events``: a running fabric's controller, as it happens."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from mrcbed.cli.fabric.running_fabric import json_option, reach, url_option
from testbed.errors import UserError
from testbed.options import option
from testbed.streams import reader_gone
from testbed.terminal import duration
from topologies.units import MS, NS


@click.command(name="events")
@option("--all", "replay", is_flag=True, help="Begin with the events so far.")
@option(
    "--since", type=click.IntRange(0), metavar="T_PS", help="Begin with the events after this t_ps."
)
@url_option
@json_option
def command(replay: bool, since: int | None, url: str | None, as_json: bool) -> None:
    """Follow the events of a running fabric's controller, one line each, until Ctrl-C or the end of
    the fabric."""
    client = reach(url)
    for entry in client.events(0 if replay and since is None else since):
        try:
            line = json.dumps(entry) if as_json else event_line(entry)
        except (KeyError, TypeError, ValueError):
            raise UserError(f"what answers at {client.url} is no controller of ours") from None
        print(line, flush=True)
        if reader_gone():  # as in `mrcbed fabric events | head`
            return
    print("mrcbed: the controller is gone", file=sys.stderr)


def event_line(entry: dict[str, Any]) -> str:
    return f"{entry['t_ps'] / MS:12,.6f} ms  {entry['event']:<15}  {_details(entry)}".rstrip()


def _details(entry: dict[str, Any]) -> str:
    match entry["event"]:
        case "link-down" | "link-up":
            return f"{entry['link']} (heard at {entry['port']})"
        case "deny":
            return f"{entry['entry']} by {entry['by']}" + (
                f": {entry['reason']}" if entry["reason"] else ""
            )
        case "allow":
            return f"{entry['entry']} by {entry['by']}"
        case "hint-pushed" | "denylist-pushed":
            listed = entry["links"] if "links" in entry else entry["entries"]
            took = (
                ""
                if entry["effect_ps"] is None
                else f" after {duration((entry['effect_ps'] - entry['heard_ps']) / NS)}"
            )
            return (
                f"{', '.join(listed) or 'nothing'}; {entry['agents']} of {entry['of']} agents "
                f"took it{took}"
            )
        case "agents-joined":
            return f"{len(entry['agents'])} agents, policy {entry['policy']}"
        case "agents-left":
            return f"{len(entry['agents'])} agents"
        case "missed":
            return f"{entry['count']} entries, for reading too slowly"
    return ", ".join(
        f"{key}={value}" for key, value in entry.items() if key not in ("t_ps", "event")
    )
