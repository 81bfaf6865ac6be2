"""``mrcbed head``: the place where workers and sweeps of several machines meet. It carries out nothing, and keeps nothing."""

from __future__ import annotations

import re
import signal
import sys

import click

from mrcbed.cli.run import tls_option
from mrcbed.cli.sweep import identity_of
from testbed.errors import UserError
from testbed.options import option


@click.command(name="head")
@option("--listen", metavar="HOST:PORT", default="127.0.0.1:8786", show_default=True, help="Listen on this address of the machine.")
@tls_option()
def command(listen: str, tls: str | None) -> None:
    """Wait for workers (mrcbed worker) and sweeps (mrcbed sweep --on) of other machines. Ctrl-C ends it."""
    from scenarios.sweeps.cluster import serve_head

    parts = re.fullmatch(r"(\[[\w.:%-]+\]|[\w.-]+):([0-9]{1,5})", listen, re.ASCII)
    if parts is None or int(parts[2]) > 65535:
        raise UserError(f"--listen {listen}: write it like --listen 10.0.0.1:8786")

    def ready(address: str) -> None:
        print(f"head: {address}", file=sys.stderr, flush=True)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        serve_head(parts[1].strip("[]"), int(parts[2]), identity_of(tls), ready)
    except KeyboardInterrupt:
        print("mrcbed: ended", file=sys.stderr)
