"""What commands on a living fabric share: the options that make a :class:`testbed.session.Session`, and where the work is carried out."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from typing import Any

import click

from mrcbed.cli.run import parse_dilation
from scenarios.schema.dilation import check_rates
from scenarios.schema.fabrics import usual_fabric
from scenarios.schema.scenario import KINDS
from testbed.errors import UserError
from testbed.faults.kinds import FaultError, read_words
from testbed.machine import sandbox
from testbed.machine.exclusive import measuring, refuse_if_measuring
from testbed.options import argument, option
from testbed.session import Session
from testbed.simulated import EMULATED, SIMULATED, WORLDS
from topologies import load_fabric
from topologies.fabrics import usual_dilation

FAULT = '--fault "KIND ON [KEY=VALUE]...", like --fault "loss h0-p1 probability=0.01"'


def world_option() -> Callable[[Any], Any]:
    """``--world W``."""
    return option("--world", type=click.Choice(WORLDS), default=EMULATED, show_default=True, help="Where: simulated needs no root.")


def dilation_option(default: str = "fabric") -> Callable[[Any], Any]:
    """``--dilation N``."""
    return option(
        "--dilation", metavar="N", default=default, show_default=True,
        help="Run N times slower than the real network; fabric: as its file says.",
    )  # fmt: skip


def session_options(fabric: Callable[[Any], Any], seed: int = 0, kinds: tuple[str, ...] = KINDS) -> Callable[[Any], Any]:
    """Add the options of a session; the command gets them as ``session``, and ``twin``, a line for people if the fabric is one's twin.

    ``fabric``: the option or argument of that name. ``seed``: the default. ``kinds``: transports to choose from.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_session(
            fabric: str, transport: str, world: str, faults: tuple[str, ...], seed: int, dilation: str, **others: Any
        ) -> Any:  # fmt: skip
            session, twin = session_of(fabric, dilation, transport, world, faults, seed)
            return command(session=session, twin=twin, **others)

        options = (
            fabric,
            option("--transport", "-t", type=click.Choice(kinds), default="mrc", show_default=True, help="What carries it."),
            world_option(),
            option("--fault", "faults", multiple=True, metavar="'KIND ON [KEY=VALUE]...'", help="A fault during all of it. Repeatable."),
            option("--seed", type=click.IntRange(0), default=seed, show_default=True, metavar="N", help="Seed of all random choices."),
            dilation_option(),
        )
        for one in reversed(options):
            with_session = one(with_session)
        return with_session

    return add


def session_of(
    name: str, dilation: str, transport: str, world: str = EMULATED, faults: tuple[str, ...] = (), seed: int = 0
) -> tuple[Session, str]:  # fmt: skip
    """(session, line for people): a transport of one path gets the fabric's twin, where the ports of a host are one.

    ``name``, ``dilation`` and ``faults`` as they were typed. Raises :class:`UserError`, :class:`FabricError`.
    """
    fabric, slower = dilated(name, dilation)
    try:
        broken = [read_words(text.split(), FAULT) for text in faults]
    except FaultError as error:
        raise UserError(f"--fault: {error}") from None
    used = usual_fabric(transport, fabric)
    twin = ""
    if used.planes != fabric.planes:
        ports = f"where the {fabric.planes} ports of a host are one"
        twin = f"mrcbed: a queue pair of {transport} has one path: it runs on {used.name}, {ports}\n"
    return Session(used, world, transport, broken, seed, slower), twin


def dilated(name: str, dilation: str) -> tuple[Any, float]:
    """A fabric, and at which dilation ``--dilation`` has it. Raises :class:`UserError`, :class:`FabricError`."""
    fabric, usual = load_fabric(name), usual_dilation(name)
    chosen = parse_dilation(dilation, usual) or usual
    check_rates(fabric, chosen)
    return fabric, chosen


def carry_out(world: str, work: Callable[[], int], *, measures: bool = True, directory: Path | None = None) -> int:
    """Do the work of a command, here or, for the emulated world, as root in a sandbox; the exit status.

    ``measures``: it is refused while another measures. ``directory``: others are refused meanwhile, and told of these results.
    Raises :class:`UserError`.
    """
    needs_root(world)
    if world == SIMULATED:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was measured is written, as after Ctrl-C
        return work()
    if measures:
        refuse_if_measuring()
    with nullcontext() if directory is None else measuring(directory):
        return sandbox.run(work)


def needs_root(world: str, instead: str = f"--world {SIMULATED}, which needs none") -> None:
    """Refuse the emulated world to a user without rights. Raises :class:`UserError`."""
    if world == EMULATED and os.geteuid() != 0:
        command = click.get_current_context().command_path
        raise UserError(f"{command} needs root for network namespaces and eBPF: use sudo, or {instead}")


def say(line: str) -> None:
    """Print a line for people on stderr, at once."""
    print(f"mrcbed: {line}", file=sys.stderr, flush=True)


__all__ = ["argument", "carry_out", "dilated", "dilation_option", "needs_root", "say", "session_of", "session_options", "world_option"]
