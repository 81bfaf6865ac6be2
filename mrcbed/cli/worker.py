"""``mrcbed worker tls://HEAD:PORT``: carries out blocks of sweeps, one at a time, as a user without rights."""

from __future__ import annotations

import os
import signal
import sys

import click

from mrcbed.cli.run import tls_option
from mrcbed.cli.sweep import identity_of
from testbed.errors import UserError
from testbed.options import argument, option
from testbed.simulated import EMULATED, SIMULATED, WORLDS


@click.command(name="worker")
@argument("address", metavar="tls://HEAD:PORT")
@option("--world", type=click.Choice(WORLDS), default=SIMULATED, show_default=True, help="The world of its blocks.")
@tls_option()
def command(address: str, world: str, tls: str | None) -> None:
    """Work for the head at the address. One worker carries out one block at a time: start one per core for the simulated world.

    Emulated blocks run through `sudo mrcbed block -`, one worker per machine. Ctrl-C ends it.
    """
    from scenarios.sweeps.cluster import serve_worker
    from scenarios.sweeps.work import check_root

    if world == EMULATED:
        if os.geteuid() == 0:
            raise UserError("a worker carries out what a head sends, so it must not be root: run it as a user who may sudo mrcbed block -")
        check_root()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        serve_worker(address, identity_of(tls), world, lambda line: print(f"worker: {line}", file=sys.stderr, flush=True))
    except KeyboardInterrupt:
        print("mrcbed: ended", file=sys.stderr)
