"""``mrcbed fabric size``: the switches, optics and watts of a cluster."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from testbed import terminal
from testbed.errors import UserError
from testbed.machine.caller import writing
from testbed.options import option

SPLITS = (1, 2, 4, 8)


@click.command(name="size")
@option(
    "--nics",
    type=click.IntRange(1, 10_000_000),
    default=65_536,
    show_default=True,
    help="NICs of the cluster.",
)
@option(
    "--nic-rate",
    default="800Gbit",
    show_default=True,
    metavar="RATE",
    help="Rate of a NIC, all its ports together.",
)
@option(
    "--switch-rate",
    default="51200Gbit",
    show_default=True,
    metavar="RATE",
    help="Capacity of a switch, one direction.",
)
@option(
    "--planes",
    type=click.IntRange(1, 256),
    multiple=True,
    metavar="N",
    help="Planes. Repeatable.  [default: 1 2 4 8]",
)
@option(
    "--oversubscription",
    default="1",
    show_default=True,
    metavar="R",
    help="Ports of a T0 down to ports up, like 2 or 1.5.",
)
@option(
    "--part",
    "parts",
    multiple=True,
    metavar="KEY=N",
    help="Watts, price or failures of a part; --part help lists them.",
)
@option("--json", "as_json", is_flag=True, help="Print JSON.")
@option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw designs over the NICs (PNG, SVG, PDF).",
)
def command(
    nics: int,
    nic_rate: str,
    switch_rate: str,
    planes: tuple[int, ...],
    oversubscription: str,
    parts: tuple[str, ...],
    as_json: bool,
    plot: Path | None,
) -> None:
    """Size a cluster: tiers, switches, optics, power and cost, and how many failures to expect at a
    time.

    Every design has as few tiers as it needs. Nothing is run. Where the numbers come from:
    docs/how/fabrics.md.
    """
    from topologies.sizing import fewest_tiers

    if "help" in parts:
        terminal.console(120).print(
            terminal.table(["part", "default", "means"], _listed(), words=["means"])
        )
        return
    given, rates = (
        _parts(parts),
        (_rate("--nic-rate", nic_rate), _rate("--switch-rate", switch_rate)),
    )
    try:
        if not re.fullmatch(r"[0-9]{1,6}([./][0-9]{1,6})?", oversubscription):
            raise ValueError
        ratio = Fraction(oversubscription)
    except (ValueError, ZeroDivisionError):
        raise UserError(
            f"--oversubscription {oversubscription}: write a number, like 2 or 1.5"
        ) from None
    # a single plane is what all others are compared with
    splits = dict.fromkeys((*planes, 1) if planes else SPLITS)
    designs = [fewest_tiers(nics, *rates, count, ratio) for count in splits]
    rows = [_row(size, given) for size in designs]
    if as_json:
        print(
            json.dumps({"nics": nics, "oversubscription": float(ratio), "designs": rows}, indent=2)
        )
    else:
        _print(rows, nics)
    if plot is not None:
        from scenarios.show.plots.computed import draw_sizes

        with writing(plot, ".png") as file:
            draw_sizes(
                lambda count, split: fewest_tiers(count, *rates, split, ratio),
                [size.planes for size in designs],
                given,
                nics,
                file,
            )
        if not as_json:
            print(f"Plot: {file}")


def _rate(option: str, text: str) -> int:
    from topologies.units import parse_rate

    try:
        return parse_rate(text)
    except ValueError as error:
        raise UserError(f"{option} {text}: {error}") from None


def _parts(words: tuple[str, ...]) -> Any:
    from topologies.budget import Parts
    from topologies.structs import Refused, convert

    pairs = dict(word.partition("=")[::2] for word in words)
    try:
        return convert(pairs, Parts, strict=False)
    except Refused as error:
        raise UserError(f"--part {error}; --part help lists them") from None


def _listed() -> list[list[str]]:
    from typing import get_type_hints

    from topologies.budget import Parts
    from topologies.structs import Doc

    hints = get_type_hints(Parts, include_extras=True)
    docs = {
        name: next(item for item in hints[name].__metadata__ if isinstance(item, Doc))
        for name in Parts.__struct_fields__
    }
    return [[name, f"{getattr(Parts(), name):g}", doc.meaning] for name, doc in docs.items()]


def _row(size: Any, parts: Any) -> dict[str, Any]:
    """The 99th percentile is of a Poisson variable: failures are taken for independent."""
    from scipy.stats import poisson

    from topologies import budget

    down = {"links": budget.links_down(size, parts), "switches": budget.switches_down(size, parts)}
    return {
        "planes": size.planes,
        "port_gbps": size.port_rate / 1e9,
        "ports_per_switch": size.radix,
        "tiers": size.tiers,
        "most_nics": size.most_nics,
        "switches": size.switches,
        "optics": size.optics,
        "links": size.links,
        "longest_path": size.longest_path,
        "paths": size.paths,
        "watts": budget.watts(size, parts),
        "price": budget.price(size, parts),
        "lost_with_nic_link": float(size.nic_link_share),
        "lost_with_uplink": float(size.uplink_share),
        "down": {
            what: {"mean": mean, "p99": int(poisson.ppf(0.99, mean)) if mean else 0}
            for what, mean in down.items()
        },
    }


def _print(rows: list[dict[str, Any]], nics: int) -> None:
    priced = any(row["price"] for row in rows)
    takes = [
        [
            str(row["planes"]),
            f"{row['port_gbps']:g} Gb/s",
            str(row["tiers"]),
            f"{row['most_nics']:,}",
            f"{row['switches']:,}",
            f"{row['optics']:,}",
            f"{row['watts'] / 1e6:.2f} MW",
            *([f"{row['price']:,.0f}"] if priced else []),
            str(row["longest_path"]),
        ]
        for row in rows
    ]
    heads = [
        "planes",
        "port",
        "tiers",
        "NICs at most",
        "switches",
        "optics",
        "power",
        *(["price"] if priced else []),
        "path",
    ]
    caption = (
        "optics: transceivers of the NIC's full rate, two a link. path: switches on the longest."
    )
    fails = [
        [
            str(row["planes"]),
            f"{100 * row['lost_with_nic_link']:.3g} %",
            f"{100 * row['lost_with_uplink']:.2g} %",
            f"{row['links']:,}",
            *(
                f"{row['down'][what]['mean']:.3g} ({row['down'][what]['p99']})"
                for what in ("links", "switches")
            ),
        ]
        for row in rows
    ]
    meaning = (
        "NIC link: of a NIC's rate, lost with one link to its T0. T0-T1 link: of a T0's uplinks "
        "in a plane. down: at a time, on average; in brackets, not more in 99 % of the time."
    )
    out = terminal.console(100)
    out.print(terminal.table(heads, takes, title=f"{nics:,} NICs: what they take", caption=caption))
    heads = ["planes", "NIC link", "T0-T1 link", "links", "links down", "switches down"]
    out.print(terminal.table(heads, fails, title="What fails", caption=meaning))
