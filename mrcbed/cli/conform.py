"""``mrcbed conform TARGET [CASE...]``: scripted packets for any MRC endpoint."""

from __future__ import annotations

import fnmatch
import json
import sys
from pathlib import Path

import click

from testbed import terminal
from testbed.conform.cases import SHIPPED, Case, every
from testbed.conform.play import Outcome, Play, Target
from testbed.conform.targets import Wire, virtual
from testbed.errors import UserError
from testbed.options import argument, option
from topologies import load_fabric
from topologies.clos import Fabric
from topologies.units import parse_duration

UNSUPPORTED = 127
"""Nothing failed and nothing could be played, as of the QUIC interop runner's endpoints."""


@click.command(name="conform")
@argument("target", metavar="engine|MODULE:FACTORY|IFACE[,IFACE]...")
@argument("cases", nargs=-1, metavar="[CASE]...")
@option(
    "--file",
    "-f",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Cases of your own instead of ours. Repeatable.",
)
@option(
    "--connect",
    metavar="COMMAND",
    help="For interfaces: what brings up the target's queue pair, and takes orders as lines of "
    "JSON.",
)
@option(
    "--fabric",
    default="demo",
    show_default=True,
    help="Whose planes, addresses and packet size both ends have.",
)
@option(
    "--base-rtt",
    metavar="TIME",
    help="For interfaces: the base RTT of the target, like 100ms. [default: the fabric's]",
)
@option("--list", "listed", is_flag=True, help="Only list the cases.")
@option("--json", "as_json", is_flag=True, help="Print outcomes as JSON.")
def command(
    target: str,
    cases: tuple[str, ...],
    files: tuple[Path, ...],
    connect: str | None,
    fabric: str,
    base_rtt: str | None,
    listed: bool,
    as_json: bool,
) -> None:
    """Send scripted packets to TARGET, an MRC endpoint, and hold it to what docs/why/protocol.md
    says must come back.

    TARGET is engine (ours), MODULE:FACTORY (an endpoint in Python without sockets), or interfaces,
    one per plane, on which one is reached. CASE is a name or a pattern, like 'sack/*'. Exit status
    0, 1 if a case failed, 127 if none could be played.
    """
    chosen = wanted(every(list(files)), cases)
    if listed:
        terminal.console().print(
            terminal.table(
                ["case", "says", "section"],
                [[case.name, case.title, case.source] for case in chosen],
                words=["says"],
            )
        )
        return
    plan = load_fabric(fabric)
    try:
        rtt = parse_duration(base_rtt) if base_rtt else plan.base_rtt_ps
    except ValueError as error:
        raise UserError(f"--base-rtt {base_rtt} {error}") from None
    outcomes = []
    for case in chosen:
        outcomes.append(played(case, opened(target, connect, plan), plan, rtt))
        if not as_json and outcomes[-1].verdict != "pass":
            show(outcomes[-1])
    count = {
        verdict: sum(outcome.verdict == verdict for outcome in outcomes)
        for verdict in ("pass", "fail", "unsupported")
    }
    if as_json:
        print(
            json.dumps(
                [
                    {"case": o.case.name, "verdict": o.verdict, "why": o.why, "fields": o.sides}
                    for o in outcomes
                ],
                indent=2,
            )
        )
    else:
        print(
            f"{len(outcomes)} cases: {count['pass']} passed, {count['fail']} failed, "
            f"{count['unsupported']} unsupported"
        )
    sys.exit(1 if count["fail"] else 0 if count["pass"] else UNSUPPORTED)


def wanted(cases: list[Case], names: tuple[str, ...]) -> list[Case]:
    """Raises :class:`UserError` on a name that fits no case."""
    for name in names:
        if not any(fnmatch.fnmatchcase(case.name, name) for case in cases):
            raise UserError(
                f"no case is called {name!r}: see mrcbed conform engine --list, or {SHIPPED}"
            )
    return [
        case
        for case in cases
        if not names or any(fnmatch.fnmatchcase(case.name, name) for name in names)
    ]


def opened(target: str, connect: str | None, fabric: Fabric) -> Target:
    """Return a new target for each case. Raises :class:`UserError`."""
    if target == "engine" or ":" in target:
        if connect is not None:
            raise UserError(f"--connect is for interfaces, and {target} is none: drop it")
        return virtual(target, fabric, 0, fabric.host_count - 1)
    if connect is None:
        raise UserError(
            f"{target}: give --connect, the command that brings up the queue pair of what is on "
            "an interface"
        )
    return Wire(target.split(","), connect)


def played(case: Case, target: Target, fabric: Fabric, rtt: int) -> Outcome:
    """Play a case. A target in Python that raises has failed it, and ends no other."""
    try:
        return Play(case, target, fabric, rtt).run()
    except (UserError, KeyboardInterrupt):
        raise
    except Exception as error:
        return Outcome(
            case, "fail", f"the target raised {type(error).__name__}: {str(error)[:200]}"
        )
    finally:
        target.close()


def show(outcome: Outcome) -> None:
    out = terminal.console()
    out.print(
        f"{outcome.verdict}: {outcome.case.name}: {outcome.case.title} (section "
        f"{outcome.case.source})",
        markup=False,
        soft_wrap=True,
    )
    out.print(f"  {outcome.why}", markup=False, soft_wrap=True)
    if outcome.sides:
        out.print(
            terminal.table(
                ["field", "asked", "came"],
                [list(row) for row in outcome.sides],
                names=["asked", "came"],
            )
        )
