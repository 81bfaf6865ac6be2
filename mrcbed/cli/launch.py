"""``mrcbed launch PROGRAM``: a program of the user's own on every host, as ranks."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from mrcbed.cli.common import carry_out, needs_root, say, session_options
from mrcbed.cli.launch_scenario import Planned, breaking, session_or_scenario
from testbed import terminal
from testbed.errors import UserError
from testbed.faults.kinds import KINDS
from testbed.machine.caller import made
from testbed.machine.sandbox import caller_uid
from testbed.options import argument, option
from testbed.reconvergence import RECONVERGENCE, usual
from testbed.session import Session
from testbed.streams import verbatim
from testbed.world import SIMULATED, Program, World
from topologies import Fabric, FabricError

if TYPE_CHECKING:
    from scenarios.run.breaking import Breaking
    from testbed.emulated.cluster import Cluster


@click.command(
    name="launch",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@argument("program")
@argument("arguments", nargs=-1, type=click.UNPROCESSED)
@session_options(
    option(
        "--fabric", default="demo", show_default=True, help="A fabric file, or the name of one."
    ),
    make=session_or_scenario,
)
@option(
    "--scenario",
    metavar="FILE|NAME",
    help="Take fabric, first transport, seed and faults with their times from it, where no option "
    "says otherwise; its workload, expectations and figures are not used.",
)
@option(
    "-n",
    "--ranks",
    type=click.IntRange(2),
    metavar="N",
    help="Number of ranks, on hosts from h0 on. Default: every host.",
)
@option(
    "--log",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the agents' logs there.",
)
@option(
    "--verbs",
    is_flag=True,
    help="PROGRAM uses RDMA verbs, like perftest's; {server}, {rank} and so on are filled in.",
)
@option(
    "--at",
    "timed",
    multiple=True,
    metavar="'TIME COMMAND'",
    help='Break or mend something meanwhile, like "2s break p0-t1-0", TIME in wall time. '
    "Repeatable.",
)
def command(
    program: str,
    arguments: tuple[str, ...],
    session: Session,
    twin: str,
    scenario: str | None,
    ranks: int | None,
    log: Path | None,
    verbs: bool,
    timed: tuple[str, ...],
) -> None:
    """Run PROGRAM (a Python file, or any command) with its ARGUMENTS on every host; it uses
    mrcbed.Communicator. See docs/how/jobs.md.

    What rank 3 prints begins with "3: ". Exit status 0, or 1 if a rank failed.

    With --verbs it uses RDMA verbs instead, on the host's NIC mrcbed0; {rank}, {host}, {address},
    {peer} and {server} in ARGUMENTS are filled in, addresses those of eth0, a network apart.
    {server} is rank 0's, and rank 0 itself gets no such argument: mrcbed launch --verbs -n 2 --
    ib_write_bw {server}.
    """
    hosts = session.fabric.host_count
    count = hosts if ranks is None else ranks
    if count > hosts:
        raise UserError(f"--ranks {count}: fabric {session.fabric.name!r} has {hosts} hosts")
    if verbs:
        _check_verbs(session, arguments)
    else:
        _check_no_verbs(session)
    if timed and session.world == SIMULATED:
        raise UserError(
            f"--at {timed[0]!r} is a time of the wall, of which the {SIMULATED} world has none: "
            "use --fault"
        )
    faults = sorted((_timed(text, session.fabric) for text in timed), key=lambda fault: fault[0])
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise UserError(f"{program}: there is no such file")
        program = str(Path(program).resolve())
    elif session.world != SIMULATED and shutil.which(program) is None:
        raise UserError(f"{program}: no such command, and no Python file (.py)")
    planned = session.planned if isinstance(session, Planned) else None
    started = Program(
        (program, *arguments), caller_uid(), planned.qps if planned else 1, verbs=verbs
    )

    def work() -> int:
        with session.up(log, policy=planned.controller if planned else "none") as cluster:
            sys.stderr.write(twin)
            hosts, delay = list(range(count)), planned.reconvergence_ps if planned else None
            repair = planned.repair_ps if planned else None
            with (
                breaking(cluster, session, log)
                if isinstance(session, Planned)
                else nullcontext() as broken
            ):
                return run(
                    cluster,
                    started,
                    hosts,
                    session.transport,
                    faults,
                    broken,
                    RECONVERGENCE if delay is None else delay,
                    repair,
                )

    needs_root(session.world)
    if log is not None:
        made(log)
    sys.exit(carry_out(session.world, work, measures=False))


def _check_verbs(session: Session, arguments: tuple[str, ...]) -> None:
    from testbed.emulated.verbs_words import check_words
    from testbed.verbs.build import library

    if session.world == SIMULATED:
        raise UserError(
            f"--verbs needs processes on a kernel, and the {SIMULATED} world has none: drop "
            f"--world {SIMULATED}"
        )
    if session.transport not in ("mrc", "roce"):
        raise UserError(
            f"--verbs needs a NIC, and {session.transport} is a kernel's: use --transport mrc or "
            "roce"
        )
    check_words(arguments)
    library()


def _check_no_verbs(session: Session) -> None:
    kinds = [kind for kind, _, _ in session.faults]
    kinds += (
        [fault.kind for fault in session.scenario.faults]
        if isinstance(session, Planned) and session.scenario
        else []
    )
    for kind in kinds:
        if KINDS[kind].programs:
            raise UserError(f"fault {kind} is for programs of RDMA verbs: add --verbs")


def _timed(text: str, fabric: Fabric) -> tuple[float, str]:
    """Return (seconds, command of the prompt) of ``--at``. Raises :class:`UserError`,
    FabricError."""
    from mrcbed.prompt.fault_commands import TIMED, FaultCommands

    found = re.fullmatch(
        rf"([0-9]{{1,6}}(?:\.[0-9]{{1,6}})?)s +((?:{'|'.join(TIMED)})(?: .*)?)", text.strip()
    )
    if found is None:
        raise UserError(
            f"--at {text!r}: write 'TIME COMMAND', like '2s break p0-t1-0'; the commands: "
            f"{', '.join(TIMED)}"
        )
    try:
        FaultCommands.alone(fabric, terminal.console(stderr=True)).check(found[2])
    except (UserError, FabricError) as error:
        raise UserError(f"--at {text!r}: {error}") from None
    return float(found[1]), found[2]


def run(
    cluster: World,
    program: Program,
    hosts: list[int],
    transport: str,
    faults: Sequence[tuple[float, str]] = (),
    broken: Breaking | None = None,
    delay_ps: int = RECONVERGENCE,
    repair_ps: int | None = None,
) -> int:
    """Run a program on some hosts of a living cluster to its end; return the exit status.

    ``faults``: (seconds of wall time after the start, a command of the prompt), in order.
    ``broken``: faults in network time. ``delay_ps``: until a network that re-routes has done so;
    ``repair_ps``: until the T0 at a dead cable has.
    """
    network = usual(cluster, transport, delay_ps, repair_ps)
    if cluster.name != SIMULATED:
        program = replace(
            program, faults=cast("Cluster", cluster).injections.socket_for(program.user)
        )
    programs = cluster.programs(program, hosts)
    begun, coming = time.monotonic(), list(faults)
    if broken is not None:
        broken.start()
    out = verbatim(sys.stdout)  # the user's own program may steer the terminal

    def look() -> int | None:
        while coming and coming[0][0] <= time.monotonic() - begun:
            at, line = coming.pop(0)
            say(f"after {at:g} s: {line}")
            _carry_out(cluster, line)
        dues = [] if broken is None else [broken.act(cluster.clock.now())]
        dues += [] if network is None else [network.look()]
        if coming:
            dues.append(cluster.clock.patience(max(0.0, coming[0][0] - (time.monotonic() - begun))))
        return min((due for due in dues if due is not None), default=None)

    try:
        failed = programs.run(
            lambda rank, line: print(f"{rank}: {line}", file=out, flush=True),
            lambda rank, note: None,
            look,
        )
    finally:
        programs.end()
    for rank, reason in failed.items():
        say(f"rank {rank} (h{hosts[rank]}): {reason}")
    return 1 if failed else 0


def _carry_out(cluster: World, line: str) -> None:
    """Raise what is wrong with a command of the prompt."""
    from mrcbed.prompt.fault_commands import FaultCommands

    commands = FaultCommands.alone(cluster.fabric, terminal.console(stderr=True))
    commands.cluster = cast("Cluster", cluster)
    commands.carry_out(line)
