"""``mrcbed launch PROGRAM``: a program of the user's own on every host of a fabric, as ranks that talk over MRC or a baseline."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from mrcbed.cli.run import fabric_for
from scenarios.schema.scenario import KINDS
from testbed.errors import UserError
from testbed.faults.kinds import FaultError, read_words
from testbed.machine.caller import made
from testbed.machine.sandbox import caller_uid
from testbed.options import argument, option
from testbed.reconvergence import usual
from testbed.simulated import SIMULATED, WORLDS
from testbed.streams import verbatim
from testbed.world import Program, World


@click.command(name="launch", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@argument("program")
@argument("arguments", nargs=-1, type=click.UNPROCESSED)
@option("--fabric", default="demo", show_default=True, help="A fabric file, or the name of one.")
@option("-n", "--ranks", type=click.IntRange(2), metavar="N", help="Number of ranks, on hosts from h0 on. Default: every host.")
@option("--transport", type=click.Choice(KINDS), default="mrc", show_default=True, help="What carries it.")
@option("--world", type=click.Choice(WORLDS), default=WORLDS[0], show_default=True, help="Where: simulated needs no root.")
@option("--fault", "faults", multiple=True, metavar="'KIND ON [KEY=VALUE]...'", help="A fault during all of it. Repeatable.")
@option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Seed of all random choices.")
@option("--dilation", metavar="N", default="fabric", show_default=True, help="Run N times slower than the real network.")
@option("--log", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep the agents' logs there.")
def command(
    program: str, arguments: tuple[str, ...], fabric: str, ranks: int | None, transport: str, world: str, faults: tuple[str, ...],
    seed: int, dilation: str, log: Path | None,
) -> None:  # fmt: skip
    """Run PROGRAM (a Python file, or any command) with its ARGUMENTS on every host; it uses agents.communicator. See docs/jobs.md.

    What rank 3 prints begins with "3: ". Exit status 0, or 1 if a rank failed.
    """
    chosen, slower, twin = fabric_for(fabric, dilation, transport)
    count = chosen.host_count if ranks is None else ranks
    if count > chosen.host_count:
        raise UserError(f"--ranks {count}: fabric {chosen.name!r} has {chosen.host_count} hosts")
    try:
        wanted = [
            read_words(text.split(), '--fault "KIND ON [KEY=VALUE]...", like --fault "loss h0-p1 probability=0.01"') for text in faults
        ]
    except FaultError as error:
        raise UserError(f"--fault: {error}") from None
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise UserError(f"{program}: there is no such file")
        program = str(Path(program).resolve())
    elif world != SIMULATED and shutil.which(program) is None:
        raise UserError(f"{program}: no such command, and no Python file (.py)")
    started = Program((program, *arguments), caller_uid())

    def work(cluster: World) -> int:
        with tempfile.TemporaryDirectory() as temporary:
            try:
                cluster.start()
                cluster.start_agents(transport, {}, log or Path(temporary), seed)
                sys.stderr.write(twin)
                return run(cluster, started, list(range(count)), wanted, seed, transport)
            finally:
                cluster.stop()

    if world != SIMULATED and os.geteuid() != 0:
        raise UserError(f"mrcbed launch needs root for network namespaces and eBPF: use sudo, or --world {SIMULATED}, which needs none")
    if log is not None:
        made(log)
    if world == SIMULATED:
        from testbed.simulated.cluster import SimulatedCluster

        sys.exit(work(SimulatedCluster(chosen)))
    from testbed.machine import sandbox

    def emulated() -> int:
        from testbed.emulated.cluster import Cluster

        return work(Cluster(chosen, dilation=slower))

    sys.exit(sandbox.run(emulated))


def run(
    cluster: World, program: Program, hosts: list[int], faults: list[tuple[str, str, dict[str, Any]]], seed: int, transport: str
) -> int:
    """A program on some hosts of a living cluster, to its end; the exit status."""
    for kind, on, keys in faults:
        cluster.inject(kind, on, run_seed=seed, **keys)
    network = usual(cluster, transport)
    programs = cluster.programs(program, hosts)
    out = verbatim(sys.stdout)  # the user's own program may steer the terminal
    try:
        failed = programs.run(
            lambda rank, line: print(f"{rank}: {line}", file=out, flush=True),
            lambda rank, note: None,
            lambda: None if network is None else network.look(),
        )
    finally:
        programs.end()
    for rank, reason in failed.items():
        print(f"mrcbed: rank {rank} (h{hosts[rank]}): {reason}", file=sys.stderr)
    return 1 if failed else 0
