"""``mrcbed replay TRACE``: a training job's trace on a fabric."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import click

from mrcbed.cli.common import ProgressBar, carry_out, needs_root, say, session_options
from testbed import terminal
from testbed.errors import UserError
from testbed.machine.caller import made
from testbed.machine.sandbox import caller_uid
from testbed.options import argument, option
from testbed.reconvergence import usual
from testbed.session import Session
from testbed.world import SIMULATED
from topologies.units import MAX_TIME, S, parse_duration

BRING_UP_S = 10.0  # bring-up and tear-down of a run [measured]
VIRTUAL_S = 0.7  # of this machine, for a second in which ranks compute in virtual time [measured]
LONG_S = 10.0  # A simulated replay estimated so long says it [ours].


@click.command(name="replay")
@argument("trace", type=click.Path(path_type=Path))
@session_options(argument("fabric", default="demo"), seed=1)
@option(
    "-n",
    "--ranks",
    type=click.IntRange(2, 1024),
    metavar="N",
    help="Ranks of AICB's text, or of one Chakra file for all. Default: all.",
)
@option(
    "--sigma",
    type=click.FloatRange(1),
    default=1.0,
    show_default=True,
    metavar="N",
    help="Divide all bytes and computing by N.",
)
@option(
    "--passes",
    type=click.IntRange(1, 10_000),
    default=3,
    show_default=True,
    metavar="N",
    help="Measured passes through it.",
)
@option(
    "--warmup",
    type=click.IntRange(0, 100),
    default=1,
    show_default=True,
    metavar="N",
    help="Passes before.",
)
@option(
    "--groups",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Groups of a Chakra trace, by pg_name (JSON).",
)
@option("--check", is_flag=True, help="Only read, check and estimate.")
@option(
    "--within",
    default="12min",
    show_default=True,
    metavar="T",
    help="Refuse to start what takes longer by the estimate.",
)
@option(
    "--qps",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Queue pairs between two ranks of a group.",
)
@option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep figures and the agents' logs there.",
)
@option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    trace: Path,
    session: Session,
    twin: str,
    ranks: int | None,
    sigma: float,
    passes: int,
    warmup: int,
    groups: Path | None,
    check: bool,
    within: str,
    qps: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Replay TRACE (AICB's text, or Chakra's NAME.0.et and its siblings, also JSON or gzip) on
    FABRIC. See docs/how/traces.md.

    Exit status 0, 1 if a rank was lost or an element arrived wrong, or 130 after Ctrl-C; the passes
    before count.
    """
    from scenarios.jobs.replay import Stopped, figures, play, read_trace, write_plan
    from scenarios.run.watch import Doubts
    from scenarios.sets.estimate import format_duration, job_seconds

    chosen, simulated, count = session.fabric, session.world == SIMULATED, passes + warmup
    try:
        most_s = parse_duration(within) / S
    except ValueError as error:
        raise UserError(f"--within {within}: {error}") from None
    times = count * session.dilation
    plan, rehearsal = read_trace(
        trace,
        chosen,
        ranks,
        groups,
        sigma,
        math.inf if check or simulated else (most_s - BRING_UP_S) * 1e9 / times,
    )
    seconds = BRING_UP_S + rehearsal.ns / 1e9 * times
    if simulated:
        virtual_s, most_s = count * rehearsal.ns / 1e9, MAX_TIME / S
        if virtual_s > most_s:
            took = f"{count} passes take {virtual_s:,.0f} s of the network, {most_s:,.0f} s at most"
            raise UserError(f"{trace.name}: {took}: give a --sigma, or fewer --passes")
        seconds = count * job_seconds(plan, chosen) + virtual_s * VIRTUAL_S
    lines = [
        f"{trace.name}: {len(plan.ranks)} ranks, {sum(map(len, plan.ranks)):,} nodes, "
        f"{len(plan.groups)} groups, {plan.bytes:,} bytes, "
        f"{sum(plan.compute_ns) / len(plan.ranks) / 1e3:,.0f} us of computing on each rank",
        (
            f"estimate: {rehearsal.ns / 1e3:,.0f} us a pass, of which a GPU waits "
            f"{sum(rehearsal.lost_ns) / len(plan.ranks) / 1e3:,.0f} us"
        ),
        *(
            f"not replayed: {what}{f', {often} times' if often > 1 else ''}"
            for what, often in plan.skipped.items()
        ),
    ]
    if not simulated:
        lines.append(f"at dilation {session.dilation:,.0f}: about {format_duration(seconds)}")
    elif seconds > LONG_S:
        lines.append(f"simulated: about {format_duration(seconds)} on one core")
    sys.stderr.write(twin)
    if not as_json:
        print("\n".join(lines), flush=True)
    if check:
        if as_json:
            print(
                json.dumps(
                    {**figures(plan, rehearsal, {}, 0), "estimate_seconds": seconds}, indent=2
                )
            )
        return
    if out is not None and out.exists() and any(out.iterdir()):
        raise UserError(f"--out {out}: it is not empty: name another directory")
    needs_root(session.world)
    if out is not None:
        made(out, whole=True)
    faults = list(click.get_current_context().params["faults"])

    def work() -> int:
        told: dict[int, list[list[float]]] = {}
        failed: dict[int, str] = {}
        printed: list[str] = []
        doubtful: list[str] = []
        stopped = False
        with tempfile.TemporaryDirectory(prefix="mrcbed-replay-") as temporary:
            os.chmod(temporary, 0o711)  # noqa: S103 the ranks' user reads the plan in it
            file = write_plan(plan, Path(temporary), [(range(len(plan.ranks)), count)])
            logs = out / "raw" if out is not None else Path(temporary)
            logs.mkdir(parents=True, exist_ok=True)
            try:
                with ProgressBar() as progress, session.up(logs, nullcontext(progress)) as cluster:

                    def on_pass(rank: int, number: int) -> None:
                        if number == 1 and rank == 0:
                            doubts.look(forget=True)
                        if rank == 0:
                            progress(f"pass {number} of {count}", number / count)

                    network = usual(cluster, session.transport)
                    look = (lambda: None) if network is None else network.look
                    with Doubts(cluster, session.stalled) as doubts:
                        told, failed, printed = play(
                            cluster, plan, file, caller_uid(), qps, on_pass, look
                        )
                        doubts.look()
                        doubtful = doubts.reasons()
            except Stopped as end:
                told, stopped = end.told, True
        summary = {
            "trace": str(trace),
            "fabric": chosen.name,
            "transport": session.transport,
            "world": session.world,
            "dilation": session.dilation,
            "sigma": sigma,
            "seed": session.seed,
            "faults": faults,
            **figures(plan, rehearsal, told, warmup),
            "failed": {str(rank): reason for rank, reason in failed.items()},
            "doubtful": doubtful,
        }
        if out is not None:
            (out / "summary.json").write_text(
                json.dumps(summary, indent=2) + "\n", encoding="utf-8"
            )
        if as_json:
            print(json.dumps(summary, indent=2))
        elif summary["passes"]:
            terminal.console(120).print(_table(summary))
        for rank, reason in failed.items():
            say(f"rank {rank}: {reason}")
        for line in (
            *(printed[-3:] if failed else ()),
            *(f"doubtful: {reason}" for reason in doubtful),
        ):
            say(line)
        if summary["wrong"]:
            say(f"{summary['wrong']} elements arrived wrong")
        if stopped:
            say(f"stopped after {summary['passes']} of {passes} passes")
            return 130
        return 1 if failed or summary["wrong"] or not summary["passes"] else 0

    sys.exit(carry_out(session.world, work))


def _table(summary: dict[str, object]) -> object:
    data = {key: float(value) for key, value in summary.items() if isinstance(value, (int, float))}
    heads = ("transport", "median pass", "slowest", "estimate", "GPU time lost", "wrong")
    row: list[terminal.Cell] = [
        str(summary["transport"]),
        f"{data['median_pass_us']:,.0f} us",
        f"{data['slowest_pass_us']:,.0f} us",
        f"{data['estimate_us']:,.0f} us",
        f"{100 * data['gpu_lost_us'] / (data['gpu_us'] or 1):.0f} %",
        f"{data['wrong']:.0f}",
    ]
    return terminal.table(heads, [row], words=("transport",))
