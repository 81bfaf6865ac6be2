"""What commands share: options, progress, sessions, where the work is done, and how results end."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from scenarios.schema.dilation import check_rates
from scenarios.schema.fabrics import usual_fabric
from scenarios.schema.scenario import KINDS, Scenario
from scenarios.schema.scenario_tables import MAX_SEEDS
from testbed import terminal
from testbed.emulated import ovs
from testbed.emulated.ovs import SWITCHES
from testbed.errors import UserError
from testbed.faults.kinds import FaultError, read_words
from testbed.machine import sandbox
from testbed.machine.exclusive import measuring, refuse_if_measuring
from testbed.machines.reach import REACH, REACH_ENV
from testbed.options import option
from testbed.results.summary import Summary
from testbed.session import Session
from testbed.world import EMULATED, SIMULATED, WORLDS
from topologies import Fabric, load_fabric
from topologies.fabrics import usual_dilation
from topologies.structs import plain
from topologies.toml_files import MAX_WHOLE

FAULT = '--fault "KIND ON [KEY=VALUE]...", like --fault "loss h0-p1 probability=0.01"'


def world_option() -> Callable[[Any], Any]:
    return option(
        "--world",
        type=click.Choice(WORLDS),
        default=EMULATED,
        show_default=True,
        help="Where: simulated needs no root.",
    )


def dilation_option() -> Callable[[Any], Any]:
    return option(
        "--dilation", metavar="N", default="fabric", show_default=True,
        help="Run N times slower than the real network; fabric: as its file says.",
    )  # fmt: skip


def session_options(
    fabric: Callable[[Any], Any],
    seed: int = 0,
    make: Callable[..., tuple[Session, str]] | None = None,
) -> Callable[[Any], Any]:
    """Add a session's options. The command gets ``session``, and ``twin``: a line for people if the
    fabric is one's twin.

    ``fabric``: the option or argument of that name. ``seed``: the default. ``make``: used instead
    of :func:`session_of`, which it is like.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_session(
            fabric: str,
            transport: str,
            world: str,
            faults: tuple[str, ...],
            seed: int,
            dilation: str,
            **others: Any,
        ) -> Any:
            session, twin = (make or session_of)(fabric, dilation, transport, world, faults, seed)
            return command(session=session, twin=twin, **others)

        options = (
            fabric,
            option(
                "--transport",
                "-t",
                type=click.Choice(KINDS),
                default="mrc",
                show_default=True,
                help="What carries it.",
            ),
            world_option(),
            option(
                "--fault",
                "faults",
                multiple=True,
                metavar="'KIND ON [KEY=VALUE]...'",
                help="A fault during all of it. Repeatable.",
            ),
            option(
                "--seed",
                type=click.IntRange(0),
                default=seed,
                show_default=True,
                metavar="N",
                help="Seed of all random choices.",
            ),
            dilation_option(),
        )
        for one in reversed(options):
            with_session = one(with_session)
        return with_session

    return add


def session_of(
    name: str,
    dilation: str,
    transport: str,
    world: str = EMULATED,
    faults: tuple[str, ...] = (),
    seed: int = 0,
) -> tuple[Session, str]:
    """Return (session, line for people). A transport of one path gets the fabric's twin, where a
    host's ports are one.

    ``name``, ``dilation`` and ``faults`` are as typed. Raises :class:`UserError`,
    :class:`FabricError`.
    """
    fabric, slower = dilated(name, dilation)
    broken = lasting_faults(faults)
    used = usual_fabric(transport, fabric)
    twin = ""
    if used.planes != fabric.planes:
        ports = f"where the {fabric.planes} ports of a host are one"
        twin = (
            f"mrcbed: a queue pair of {transport} has one path: it runs on {used.name}, {ports}\n"
        )
    return Session(used, world, transport, broken, seed, slower), twin


def lasting_faults(faults: tuple[str, ...]) -> list[tuple[str, str, dict[str, str]]]:
    """Return (kind, target, keys) of each ``--fault``. Raises :class:`UserError`."""
    try:
        return [read_words(text.split(), FAULT) for text in faults]
    except FaultError as error:
        raise UserError(f"--fault: {error}") from None


def dilated(name: str, dilation: str) -> tuple[Fabric, float]:
    """Raises :class:`UserError`, :class:`FabricError`."""
    fabric, usual = load_fabric(name), usual_dilation(name)
    chosen = parse_dilation(dilation, usual) or usual
    check_rates(fabric, chosen)
    return fabric, chosen


def carry_out(
    world: str, work: Callable[[], int], *, measures: bool = True, directory: Path | None = None
) -> int:
    """Do a command's work, here or, for the emulated world, as root in a sandbox; return the exit
    status.

    ``measures``: it is refused while another measures. ``directory``: others are refused meanwhile,
    and told of these results. Raises
    :class:`UserError`.
    """
    needs_root(world)
    if world == SIMULATED:
        # what was measured is written, as after Ctrl-C
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return work()
    if measures:
        refuse_if_measuring()
    with nullcontext() if directory is None else measuring(directory):
        return sandbox.run(work)


def needs_root(world: str, instead: str = f"--world {SIMULATED}, which needs none") -> None:
    """Refuse the emulated world to a user without rights. Raises :class:`UserError`."""
    if world == EMULATED and os.geteuid() != 0:
        command = click.get_current_context().command_path
        raise UserError(
            f"{command} needs root for network namespaces and eBPF: use sudo, or {instead}"
        )


def say(line: str) -> None:
    print(f"mrcbed: {line}", file=sys.stderr, flush=True)


def reach_option() -> Callable[[Any], Any]:
    return option(
        "--reach",
        metavar="COMMAND",
        envvar=REACH_ENV,
        default=REACH,
        help="With machines: the command that starts mrcbed tools machine on {host} (default: "
        f"${REACH_ENV}, or ssh with sudo).",
    )


def all_option() -> Callable[[Any], Any]:
    return option(
        "--all",
        "everything",
        is_flag=True,
        help="Print all tables, not the most telling one alone.",
    )


def conclude(
    scenario: Scenario, summary: Summary, directory: Path, as_json: bool, everything: bool
) -> int:
    from scenarios.figures.summary import INTERRUPTED, exit_status
    from scenarios.run.planning import plan
    from scenarios.run.resume import interruption_notice
    from scenarios.show.run_tables import show

    if as_json:
        print(json.dumps(plain(summary), indent=2))
    else:
        show(terminal.console(120), summary, directory, everything)
    if summary.verdict == INTERRUPTED:
        print(f"mrcbed: {interruption_notice(directory, plan(scenario))}", file=sys.stderr)
    return exit_status(summary)


class ProgressBar:
    """A progress bar on stderr if that is a terminal, else a line per stage, each once."""

    def __init__(self) -> None:
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=terminal.console(stderr=True),
            transient=True,
        )
        self.live = sys.stderr.isatty()
        self.task = self.bar.add_task("", total=1.0)
        self.said: set[str] = set()

    def __enter__(self) -> Callable[[str, float], None]:
        if self.live:
            self.bar.start()
        return self.report

    def report(self, stage: str, share: float) -> None:
        if self.live:
            self.bar.update(self.task, description=stage, completed=share)
        elif stage not in self.said:
            print(stage, file=sys.stderr, flush=True)
            self.said.add(stage)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live:
            self.bar.stop()


def parse_seeds(text: str) -> list[int]:
    """Parse ``1-5`` or ``1,3,7-9``, in this order. Raises :class:`UserError`."""
    out: list[int] = []
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not re.fullmatch(r"[0-9]{1,19}", first) or (
            dash and not re.fullmatch(r"[0-9]{1,19}", last)
        ):
            raise UserError(f"--seeds {text}: write it like --seeds 1-5 or --seeds 1,3,7-9")
        begin, end = int(first), int(last) if dash else int(first)
        if max(begin, end) > MAX_WHOLE:
            raise UserError(f"--seeds {text}: seeds are below 2^63")
        if not begin <= end < begin + MAX_SEEDS - len(out):
            raise UserError(
                f"--seeds {text}: {part.strip()} must go upwards, to {MAX_SEEDS:,} seeds at most"
            )
        out += range(begin, end + 1)
    if len(set(out)) < len(out):
        raise UserError(
            f"--seeds {text}: a seed is given twice, and would repeat the same draws: give each "
            "once"
        )
    return out


def parse_dilation(text: str, usual: float) -> float | None:
    """Return None for ``auto``, the ``usual`` one for ``fabric``, or a number. Raises
    :class:`UserError`."""
    if text in ("auto", "fabric"):
        return None if text == "auto" else usual
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text) or float(text) <= 0:
        raise UserError(
            f"--dilation {text}: write auto, fabric, or how many times slower, like 25000"
        )
    return float(text)


def check_switch_is_simulated(switch: str) -> None:
    """Raises :class:`UserError` for a switch of the emulated world."""
    if switch != SWITCHES[0]:
        raise UserError(
            f"--switch {switch}: the {SIMULATED} world has switches of its own: drop --switch or "
            f"--world {SIMULATED}"
        )


def check_switch(switch: str) -> None:
    """Raises :class:`UserError` if Open vSwitch is not installed; else prints what it cannot do."""
    if switch == "ovs":
        ovs.require()
        if limits := ovs.limits(ovs.datapath()):
            print(f"mrcbed: {limits}", file=sys.stderr)
