"""``mrcbed perf OPERATION``: bandwidth and latency of a fabric, in nccl-tests' and perftest's tables."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from mrcbed.cli.run import ProgressBar, fabric_for, stalled
from mrcbed.perf.measure import Failed
from mrcbed.perf.options import OPTIONS, Measurement, request_of
from mrcbed.perf.run import OPERATIONS, check_request, perf
from scenarios.run.watch import Doubts
from scenarios.schema.scenario import KINDS
from testbed.errors import UserError
from testbed.faults.kinds import FaultError, read_words
from testbed.machine.exclusive import refuse_if_measuring
from testbed.options import argument, option
from testbed.simulated import SIMULATED, WORLDS
from testbed.world import World

FAULT = '--fault "KIND ON [KEY=VALUE]...", like --fault "link p0-t0-0:p0-t1-0"'


@click.command(name="perf", cls=Measurement)
@argument("operation")
@argument("fabric", default="demo")
@option("--transport", "-t", type=click.Choice(KINDS), default="mrc", show_default=True, help="What carries it.")
@option("--world", type=click.Choice(WORLDS), default=WORLDS[0], show_default=True, help="Where: simulated needs no root.")
@option("--fault", "faults", multiple=True, metavar="'KIND ON [KEY=VALUE]...'", help="A fault during all of it. Repeatable.")
@option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Seed of all random choices.")
@option("--dilation", metavar="N", default="fabric", show_default=True, help="Run N times slower than the real network.")
@option("--json", "as_json", is_flag=True, help="Print figures as JSON instead of a table.")
def command(
    operation: str, fabric: str, transport: str, world: str, faults: tuple[str, ...], seed: int, dilation: str, as_json: bool, **given: Any
) -> None:  # fmt: skip
    """Measure OPERATION on FABRIC (a file or a name; demo). See docs/jobs.md.

    Exit status 0, 1 if an element was wrong or a rank was lost, or 130 after Ctrl-C; the rows before are there.
    """
    request = request_of(operation, given, seed)
    chosen, slower, twin = fabric_for(fabric, dilation, transport)
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
                sys.stderr.write(twin)
                for kind, on, keys in wanted:
                    cluster.inject(kind, on, run_seed=seed, **keys)
                out = (lambda text: None) if as_json else (lambda text: print(text, flush=True))
                figures: dict[str, Any]
                with Doubts(cluster, stalled(wanted, chosen)) as doubts:
                    figures = perf(cluster, request, transport, out, lambda text: print(f"mrcbed: {text}", file=sys.stderr), doubts.look)
                    figures["doubtful"] = doubts.reasons()
                for reason in figures["doubtful"]:
                    print(f"mrcbed: doubtful: {reason}", file=sys.stderr)
                status = 1 if figures["wrong"] else 0
            except Failed as error:
                print(f"mrcbed: {operation}: {error}", file=sys.stderr)
                figures, status = {**(error.figures or {}), "failed": str(error)}, error.status
            finally:
                cluster.stop()
        if as_json:
            print(json.dumps({**figures, "faults": list(faults)}, indent=2))
        return status

    if world == SIMULATED:
        from testbed.simulated.cluster import SimulatedCluster

        sys.exit(work(SimulatedCluster(chosen)))
    if os.geteuid() != 0:
        raise UserError(f"mrcbed perf needs root for network namespaces and eBPF: use sudo, or --world {SIMULATED}, which needs none")
    refuse_if_measuring()
    from testbed.machine import sandbox

    def emulated() -> int:
        from testbed.emulated.cluster import Cluster

        return work(Cluster(chosen, dilation=slower))

    sys.exit(sandbox.run(emulated))


command.params += OPTIONS
command.params[0].metavar = "|".join(OPERATIONS)
