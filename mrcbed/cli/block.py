"""``mrcbed block -``: root's part of a sweep. One block as JSON on standard input, one archive on standard output."""

from __future__ import annotations

import os
import sys

import click

from testbed.errors import UserError
from testbed.options import argument


@click.command(name="block")
@argument("source", metavar="-")
def command(source: str) -> None:
    """Carry out one emulated block (a line of JSON on standard input) and write its results (an archive) to standard output.

    Workers call it through sudo. Exit status: 0 done, 75 the fabric did not come up, else as mrcbed run.
    """
    from scenarios.sweeps.work import block_as_root

    if source != "-":
        raise UserError(f"block {source}: a block comes from standard input: write mrcbed block -")
    if os.geteuid() != 0:
        raise UserError("mrcbed block needs root for network namespaces and eBPF: mrcbed worker calls it through sudo")
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints meanwhile must not get into the archive
    sys.exit(block_as_root(0, answer))
