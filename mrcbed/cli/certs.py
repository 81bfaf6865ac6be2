"""``mrcbed certs DIR NAME...``: a CA, and a certificate for each machine of a sweep."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.machine.caller import written
from testbed.options import argument


@click.command(name="certs")
@argument("folder", metavar="DIR")
@argument("names", metavar="NAME...", nargs=-1, required=True)
def command(folder: str, names: tuple[str, ...]) -> None:
    """Make a CA in DIR, unless there is one, and DIR/NAME with a certificate for each machine: copy that folder there.

    DIR/ca.key signs further certificates: keep it to yourself.
    """
    from scenarios.sweeps.tls import make_certificates

    for place in make_certificates(written(Path(folder)), list(names)):
        print(place)
