"""``mrcbed convert FILE``: rewrite a fabric or scenario file of an older version in the units of the real network."""

from __future__ import annotations

import os
from pathlib import Path

import click

from scenarios.figures.writing import replacing
from testbed.errors import UserError
from testbed.machine.caller import written
from testbed.options import argument
from topologies import FabricError


@click.command(name="convert")
@argument("files", nargs=-1, required=True, metavar="FILE...")
def command(files: tuple[str, ...]) -> None:
    """Rewrite FILEs of before format 3: times divided, rates multiplied by the dilation of their fabric. FILE.old keeps what was there.

    Convert a fabric of your own before the scenarios that name it.
    """
    from scenarios.schema.convert import converted

    for name in files:
        path, kept = Path(name), Path(f"{name}.old")
        if kept.exists():
            raise UserError(f"{kept} exists: move it away, it would be written over")
        try:
            text, dilation = converted(path)
        except FabricError as error:
            raise UserError(f"{name}: {error}") from None
        os.link(path, kept)
        with replacing(written(path)) as part:
            part.write_text(text, encoding="utf-8")
        print(f"{name}: in the real network's units now, times divided by {dilation:,.0f}; {kept} is as it was")
