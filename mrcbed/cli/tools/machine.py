"""``mrcbed tools machine``: one machine's part of a fabric, by orders from elsewhere."""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from testbed.emulated.cluster import Cluster


@click.command(name="machine")
def command() -> None:
    """Build and steer a part of a fabric by orders on standard input; ends, with all that it built,
    when its input ends.

    Not for people: mrcbed up --on and run --on start it on each machine, by ssh.
    """
    from scenarios.run.manifest import cpu_model, version
    from scenarios.run.watch import Watch
    from testbed.machines.far import serve

    def watch(cluster: Cluster, interval: int) -> Any:
        return Watch(cluster.clock, cluster.processes, cluster.port_watch(), interval)

    cores = len(os.sched_getaffinity(0))
    sys.exit(
        serve(
            {"mrcbed": version(), "kernel": platform.release(), "cpu": cpu_model(), "cores": cores},
            watch,
        )
    )
