"""A coordinator for test_machines_die.py: ``python -m tests.emulated.machines_holder ON REACH``;
sleeps once all machines are up."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from scenarios.run.manifest import version
from testbed.errors import UserError
from testbed.machines.reach import places
from testbed.machines.world import Machines
from topologies import load_fabric
from topologies.fabrics import DILATION


def main(on: str, reach: str) -> int:
    try:
        with (
            tempfile.TemporaryDirectory() as logs,
            Machines(load_fabric("tiny"), places(on, reach), version(), dilation=DILATION) as world,
        ):
            world.start_agents("mrc", {}, Path(logs), 1)
            print("ready", flush=True)
            while True:
                world.check()
                time.sleep(0.02)
    except UserError as error:
        print(error, flush=True)
        return error.status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
