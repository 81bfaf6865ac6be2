"""Launches the controller process: ``python -m testbed.controller --config FILE.json``. It prints
``ready PORT`` when all tables are verified and the REST view answers, or one line to stderr (exit
2). It dies with the thread that started it, and ignores Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.machine.parent import die_with_parent

if TYPE_CHECKING:
    from testbed.controller.config import Config
    from testbed.controller.confine import Doors
    from testbed.controller.southbound.base import Southbound


def main() -> int:
    die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        # a link event takes a millisecond of work and must not wait behind agents that load every
        # core
        os.nice(-10)
    logging.basicConfig(
        level=logging.WARNING,
        stream=sys.stderr,
        format="controller: %(levelname)s %(name)s: %(message)s",
    )

    parser = argparse.ArgumentParser(
        prog="python -m testbed.controller", description="The fabric's Ryu controller."
    )
    parser.add_argument("--config", required=True, type=Path, metavar="FILE.json")
    path: Path = parser.parse_args().config

    from testbed.controller.config import load
    from testbed.controller.confine import confine, open_doors, seal
    from testbed.errors import UserError

    try:
        config = load(path)
        doors = open_doors(config)
        confine()
        # patches the standard library: before all that follows
        from testbed.controller import ryu_base
        from testbed.controller.app import FabricController

        southbound = _southbound(config, doors)
        seal()
        ryu_base.run(FabricController, config=config, southbound=southbound, doors=doors)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _southbound(config: Config, doors: Doors) -> Southbound:
    """Import one southbound alone: Ryu's OpenFlow takes half a second."""
    if doors.routes is None:
        from testbed.controller.southbound.openflow import OpenFlowSouthbound

        return OpenFlowSouthbound(config)
    from testbed.controller.southbound.ebpf import EbpfSouthbound

    return EbpfSouthbound(config, doors.routes, doors.links)


if __name__ == "__main__":
    sys.exit(main())
