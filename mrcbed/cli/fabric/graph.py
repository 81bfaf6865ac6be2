"""``mrcbed fabric graph FABRIC``: the fabric drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from testbed.machine.caller import writing
from testbed.options import argument, option


@click.command(name="graph")
@argument("fabric")
@option(
    "--format",
    "form",
    type=click.Choice(["svg", "mermaid", "dot"]),
    default="svg",
    show_default=True,
    help="What to write.",
)
@option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to FILE instead of standard output.",
)
def command(fabric: str, form: str, out: Path | None) -> None:
    """Draw FABRIC, a named fabric or a TOML file: planes, T0s, T1s, hosts and cables."""
    from topologies import load_fabric

    loaded = load_fabric(fabric)
    if form == "svg":
        from scenarios.show.fabric_svg import fabric_svg as draw
    elif form == "mermaid":
        from scenarios.show.fabric_text import mermaid as draw
    else:
        from scenarios.show.fabric_text import dot as draw
    text = draw(loaded)
    if out is None:
        sys.stdout.write(text)
    else:
        with writing(out):
            out.write_text(text, encoding="utf-8")
