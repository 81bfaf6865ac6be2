"""``mrcbed train``: ``mrcbed run`` of the scenario train."""

from __future__ import annotations

from typing import Any

import click

from mrcbed.cli import run
from testbed.options import option
from testbed.world import SIMULATED
from topologies import load_fabric

WHEN = (0.15, 0.4, 0.6, 0.8)  # of the steps, where each fault of the scenario begins [ours]


@click.command(name="train")
@option(
    "--steps",
    type=click.IntRange(8, 10_000),
    default=40,
    show_default=True,
    metavar="N",
    help="Measured steps; one comes before.",
)
@option("--quick", is_flag=True, help="MRC alone.")
def command(
    steps: int, quick: bool, transports: tuple[str, ...], fabric: str | None, **options: Any
) -> None:
    """Train a model through a cable cut, a flapping NIC port, a rebooting switch and a silent one:
    run the scenario train, with the options of mrcbed run. See docs/how/jobs.md.

    Exit status: that of mrcbed run; 1 if parameters differ between ranks or transports.
    """
    fabric = fabric or "demo"
    names = transports or (
        ("mrc",) if quick else ("mrc", "roce-1p") if options["world"] == SIMULATED else ()
    )
    faults = (f"fault.{number}.step={int(steps * share)}" for number, share in enumerate(WHEN))
    ranks = load_fabric(fabric).host_count
    options["overrides"] = (
        f"workload.steps={steps}",
        f"workload.job.gpt.ranks={ranks}",
        *faults,
        *options["overrides"],
    )
    assert run.command.callback is not None
    run.command.callback("train", names, fabric, **options)


command.params += run.command.params[1:]
