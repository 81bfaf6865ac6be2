"""``mrcbed perf OPERATION``: bandwidth and latency of a fabric, in nccl-tests' and perftest's tables."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from testbed.cli.run import ProgressBar, parse_dilation
from testbed.errors import UserError
from testbed.faults.kinds import FaultError, read_words
from testbed.machine.exclusive import refuse_if_measuring
from testbed.perf.measure import Failed
from testbed.perf.options import OPTIONS, request_of
from testbed.perf.run import OPERATIONS, check_request, perf
from testbed.simulated import SIMULATED, WORLDS
from testbed.world import World
from topologies import load_fabric

FAULT = '--fault "KIND ON [KEY=VALUE]...", like --fault "link p0-t0-0:p0-t1-0"'


@click.command(name="perf")
@click.argument("operation")
@click.argument("fabric", default="demo")
@click.option("--transport", "-t", default="mrc", show_default=True, metavar="T", help="mrc, roce, tcp or mptcp.")
@click.option("--world", type=click.Choice(WORLDS), default=WORLDS[0], show_default=True, help="Where: simulated needs no root.")
@click.option("--fault", "faults", multiple=True, metavar="'KIND ON [KEY=VALUE]...'", help="A fault during all of it. Repeatable.")
@click.option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Seed of all random choices.")
@click.option("--dilation", metavar="N", default="fabric", show_default=True, help="Run N times slower than the real network.")
@click.option("--json", "as_json", is_flag=True, help="Print figures as JSON instead of a table.")
def command(
    operation: str, fabric: str, transport: str, world: str, faults: tuple[str, ...], seed: int, dilation: str, as_json: bool, **given: Any
) -> None:  # fmt: skip
    """Measure OPERATION on FABRIC (a file or a name; demo). See docs/jobs.md.

    Exit status 0, or 1 if an element was wrong or a rank was lost.
    """
    request = request_of(operation, given, seed)
    chosen = load_fabric(fabric)
    chosen = chosen.slowed((parse_dilation(dilation, chosen) or chosen.dilation) / chosen.dilation)
    check_request(request, chosen)
    try:
        wanted = [read_words(text.split(), FAULT) for text in faults]
    except FaultError as error:
        raise UserError(f"--fault: {error}") from None

    def work(cluster: World) -> int:
        with tempfile.TemporaryDirectory() as logs:
            try:
                with ProgressBar():
                    cluster.start()
                    cluster.start_agents(transport, {}, Path(logs), seed)
                for kind, on, keys in wanted:
                    cluster.inject(kind, on, run_seed=seed, **keys)
                out = (lambda text: None) if as_json else (lambda text: print(text, flush=True))
                figures = perf(cluster, request, transport, world, out, lambda text: print(f"mrcbed: {text}", file=sys.stderr))
            except Failed as error:
                print(f"mrcbed: {operation}: {error}", file=sys.stderr)
                return 1
            finally:
                cluster.stop()
        if as_json:
            print(json.dumps({**figures, "faults": list(faults)}, indent=2))
        return 1 if figures["wrong"] else 0

    if world == SIMULATED:
        from testbed.simulated.cluster import SimulatedCluster

        sys.exit(work(SimulatedCluster(chosen)))
    if os.geteuid() != 0:
        raise UserError(f"mrcbed perf needs root for network namespaces and eBPF: use sudo, or --world {SIMULATED}, which needs none")
    refuse_if_measuring()
    from testbed.machine import sandbox

    def emulated() -> int:
        from testbed.emulated.cluster import Cluster

        return work(Cluster(chosen))

    sys.exit(sandbox.run(emulated))


command.params += OPTIONS
command.params[0].metavar = "|".join(OPERATIONS)
