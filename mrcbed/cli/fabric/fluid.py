"""``mrcbed fabric fluid``: step times of huge clusters, healthy and with dead links, without
packets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed import terminal
from testbed.errors import UserError
from testbed.machine.caller import writing
from testbed.options import option

if TYPE_CHECKING:
    from testbed.fluid.study import Failures, Job, Steps
    from topologies.sizing import Size

NICS = (1024, 8192, 32_768, 131_072)
PLANES = (8, 1)


@click.command(name="fluid")
@option(
    "--nics",
    type=click.IntRange(2, 1_000_000),
    multiple=True,
    default=NICS,
    show_default=True,
    help="NICs. Repeatable.",
)
@option(
    "--planes",
    type=click.IntRange(1, 256),
    multiple=True,
    default=PLANES,
    show_default=True,
    help="Planes. Repeatable.",
)
@option(
    "--ranks",
    type=click.IntRange(2),
    default=64,
    show_default=True,
    help="Hosts of a ring; every host is in one.",
)
@option(
    "--message",
    default="1GiB",
    show_default=True,
    metavar="SIZE",
    help="What each rank has to reduce.",
)
@option(
    "--dead-links",
    type=click.FloatRange(0, 1),
    default=0.001,
    show_default=True,
    help="Share of the T0-T1 links that are dead.",
)
@option(
    "--draws",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Draws of dead links.",
)
@option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of all draws.")
@option("--json", "as_json", is_flag=True, help="Print JSON.")
@option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw steps over the size (PNG, SVG, PDF).",
)
def command(
    nics: tuple[int, ...],
    planes: tuple[int, ...],
    ranks: int,
    message: str,
    dead_links: float,
    draws: int,
    seed: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Compute steps of large clusters: ring all-reduces, healthy and with dead links, with equal
    and weighted planes.

    Nothing is run and there are no packets: rates of flows between failures. What the model leaves
    out: docs/why/fluid.md.
    """
    from testbed.fluid.study import Job, failures, steps
    from topologies.sizing import NIC_RATE, SWITCH_RATE, fewest_tiers
    from topologies.units import parse_size

    try:
        job = Job(ranks, parse_size(message))
    except ValueError as error:
        raise UserError(f"--message {message}: {error}") from None
    sizes = [
        fewest_tiers(count, NIC_RATE, SWITCH_RATE, split)
        for split in dict.fromkeys(planes)
        for count in sorted(set(nics))
    ]
    rows = [row for size in sizes for row in steps(size, job, dead_links, draws, seed)]
    largest = [size for size in sizes if size.nics == max(nics)]
    single = [failures(size, job, dead_links, seed) for size in largest]
    if as_json:
        print(
            json.dumps(
                {
                    "steps": [asdict(row) for row in rows],
                    "failures": [asdict(row) for row in single],
                },
                indent=2,
            )
        )
    else:
        _print(rows, single, largest, job, dead_links)
    if plot is not None:
        from scenarios.show.plots.computed import draw_steps

        with writing(plot, ".png") as file:
            draw_steps(rows, dead_links, file)
        if not as_json:
            print(f"Plot: {file}")


def _print(
    rows: list[Steps], single: list[Failures], sizes: list[Size], job: Job, dead_share: float
) -> None:
    out = terminal.console(100)
    cells = [
        [
            row.design,
            f"{row.nics:,}",
            str(row.tiers),
            f"{row.healthy_ns / 1e6:.2f}",
            f"{row.dead_links:,}",
            f"{row.median_ns / 1e6:.2f}",
            f"{row.longest_ns / 1e6:.2f}",
            f"{100 * (row.median_ns / row.healthy_ns - 1):.2f} %",
        ]
        for row in rows
    ]
    caption = (
        f"A step: all rings of {job.ranks} hosts reduce {job.message_bytes / 2**20:,.0f} MiB at "
        f"once; it ends with the slowest. {100 * dead_share:g} % of the T0-T1 links are dead: "
        "median and longest over draws. Computed, not measured."
    )
    heads = [
        "planes",
        "NICs",
        "tiers",
        "healthy ms",
        "dead links",
        "median ms",
        "longest ms",
        "slower by",
    ]
    out.print(terminal.table(heads, cells, title="Steps", caption=caption))

    def percent(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.2f} %"

    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.1f}"

    lines: list[tuple[str, Callable[[Failures], str]]] = [
        ("a T0-T1 link lost, equal planes", lambda f: percent(f.lost_link)),
        ("a T0-T1 link lost, weighted planes", lambda f: percent(f.lost_link_weighted)),
        ("a NIC port lost", lambda f: percent(f.lost_port)),
        ("a T1 dead", lambda f: percent(f.dead_t1)),
        ("queue pairs with an EV through one T1", lambda f: percent(f.touched_one_way)),
        ("the same, in either direction", lambda f: percent(f.touched_either)),
        ("dead paths at the start", lambda f: percent(f.dead_paths)),
        ("packets a queue pair then loses", lambda f: number(f.losses_per_qp)),
        ("million packets a second and NIC", lambda f: number(f.packets_per_second / 1e6)),
    ]
    names = [f"{size.planes} {'plane' if size.planes == 1 else 'planes'}" for size in sizes]
    table = [[text, *(show(f) for f in single)] for text, show in lines]
    note = (
        "The first four: of the slowest flow's rate. –: the model has no answer with more than "
        "two tiers, or fewer paths than EVs."
    )
    out.print(
        terminal.table(
            ["failure", *names], table, title=f"One failure at {sizes[0].nics:,} NICs", caption=note
        )
    )
