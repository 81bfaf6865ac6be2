"""``mrcbed train``: a small GPT, data-parallel over all hosts, through failures, under MRC and what people run today."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from mrcbed.cli.common import ProgressBar, carry_out, dilation_option, needs_root, parse_dilation, world_option
from testbed import terminal
from testbed.errors import UserError
from testbed.machine.caller import made
from testbed.machine.sandbox import caller_uid
from testbed.options import option

VERDICTS = {True: "holds", False: "DOES NOT HOLD", None: "not judged"}


@click.command(name="train")
@world_option()
@option("--fabric", default="demo", show_default=True, help="A fabric file, or the name of one.")
@option("--steps", type=click.IntRange(8, 10_000), metavar="N", help="Default: 100, or what fits 12 minutes: 40, 20 or 8.")
@option("--seed", type=click.IntRange(0), default=1, show_default=True, metavar="N", help="Seed of the model and its data.")
@option("--quick", is_flag=True, help="MRC alone, without and with failures, 40 steps: some 4 minutes.")
@option("--transport", "-t", "transports", multiple=True, metavar="T", help="Only these runs: mrc, roce, tcp. Repeatable.")
@dilation_option("auto")
@option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Where results go.")
@option("--json", "as_json", is_flag=True, help="Print summary.json instead of a table.")
def command(
    world: str, fabric: str, steps: int | None, seed: int, quick: bool, transports: tuple[str, ...], dilation: str, out: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Train a model through a cable cut, a flapping NIC port, a rebooting switch and a silent one. See docs/jobs.md.

    Exit status 0, or 1 if a check failed: parameters differ, or failures cost MRC more than the lost capacity explains.
    """
    from scenarios.train.compare import LEGS, compare, plan_of
    from topologies import load_fabric
    from topologies.fabrics import usual_dilation

    for name in transports:
        if name not in LEGS:
            raise UserError(f"--transport {name}: there are {', '.join(LEGS)}")
    chosen, usual = load_fabric(fabric), usual_dilation(fabric)
    wanted = parse_dilation(dilation, usual)
    directory = out or Path("results") / f"train-{time.strftime('%Y%m%d-%H%M%S')}"
    if directory.exists() and any(directory.iterdir()):
        raise UserError(f"--out {directory}: it is not empty: name another directory")
    needs_root(world)
    made(directory, whole=True)

    def work() -> int:
        from scenarios.train.page import table

        with ProgressBar() as progress:
            plan = plan_of(chosen, usual, world, steps, quick, transports, wanted, progress)
            summary: dict[str, Any] = compare(plan, directory, seed, caller_uid(), progress)
        if as_json:
            print(json.dumps(summary, indent=2))
        else:
            console = terminal.console(120)
            console.print(table(summary))
            for check in summary["checks"]:
                console.print(f"{VERDICTS[check['ok']]}: {check['check']} ({check['seen']})", markup=False, highlight=False)
            console.print(f"report: {directory / 'report.html'}", markup=False, highlight=False)
        return 0 if summary["verdict"] == "ok" else 1

    sys.exit(carry_out(world, work, directory=directory))
