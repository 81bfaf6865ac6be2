"""``mrcbed launch PROGRAM``: a program of the user's own on every host of a fabric, as ranks that talk over MRC or a baseline."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from mrcbed.cli.common import carry_out, needs_root, say, session_options
from testbed.errors import UserError
from testbed.machine.caller import made
from testbed.machine.sandbox import caller_uid
from testbed.options import argument, option
from testbed.reconvergence import usual
from testbed.session import Session
from testbed.streams import verbatim
from testbed.world import SIMULATED, Program, World


@click.command(name="launch", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@argument("program")
@argument("arguments", nargs=-1, type=click.UNPROCESSED)
@session_options(option("--fabric", default="demo", show_default=True, help="A fabric file, or the name of one."))
@option("-n", "--ranks", type=click.IntRange(2), metavar="N", help="Number of ranks, on hosts from h0 on. Default: every host.")
@option("--log", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep the agents' logs there.")
def command(program: str, arguments: tuple[str, ...], session: Session, twin: str, ranks: int | None, log: Path | None) -> None:
    """Run PROGRAM (a Python file, or any command) with its ARGUMENTS on every host; it uses mrcbed.Communicator. See docs/jobs.md.

    What rank 3 prints begins with "3: ". Exit status 0, or 1 if a rank failed.
    """
    hosts = session.fabric.host_count
    count = hosts if ranks is None else ranks
    if count > hosts:
        raise UserError(f"--ranks {count}: fabric {session.fabric.name!r} has {hosts} hosts")
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise UserError(f"{program}: there is no such file")
        program = str(Path(program).resolve())
    elif session.world != SIMULATED and shutil.which(program) is None:
        raise UserError(f"{program}: no such command, and no Python file (.py)")
    started = Program((program, *arguments), caller_uid())

    def work() -> int:
        with session.up(log) as cluster:
            sys.stderr.write(twin)
            return run(cluster, started, list(range(count)), session.transport)

    needs_root(session.world)
    if log is not None:
        made(log)
    sys.exit(carry_out(session.world, work, measures=False))


def run(cluster: World, program: Program, hosts: list[int], transport: str) -> int:
    """Run a program on some hosts of a living cluster to its end; the exit status."""
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
        say(f"rank {rank} (h{hosts[rank]}): {reason}")
    return 1 if failed else 0
