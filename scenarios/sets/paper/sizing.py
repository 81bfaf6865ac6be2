"""Section 2: what a split of the NIC into planes saves, computed by topologies.sizing; nothing is run."""

from __future__ import annotations

from fractions import Fraction

from scenarios.sets.paper import plots
from scenarios.sets.paper.claims import Claim, Evidence, Row, judged
from scenarios.sets.paper.figure import PaperFigure
from topologies.sizing import GBIT, NIC_RATE, PAPER_NICS, SWITCH_RATE, Size, splits


def paper_size(planes: int, tiers: int, nics: int = PAPER_NICS) -> Size:
    return Size(nics, NIC_RATE, SWITCH_RATE, planes, tiers)


def rows(_: Evidence) -> list[Row]:
    """Compare the claims of section 2 with the formulae."""
    two, three = paper_size(8, 2), paper_size(1, 3)
    most_nics = three.most_nics  # compared at a size that both reach
    sizes = paper_size(8, 2, most_nics), paper_size(1, 3, most_nics)
    optics = Fraction(sizes[0].optics, sizes[1].optics)
    switches = Fraction(sizes[0].switches, sizes[1].switches)
    links = 100 * float(two.uplink_share), 100 * float(three.uplink_share)
    return [
        judged(
            Claim(1, "two tiers of eight planes of 100 Gb/s connect 131,072 NICs"),
            "the same number",
            f"{two.most_nics:,} NICs at {two.radix} ports per switch",
            two.most_nics == PAPER_NICS,
            value=float(two.most_nics),
            unit="NICs",
        ),
        judged(
            Claim(1, "three tiers of switches with 64 ports of 800 Gb/s connect 64K NICs"),
            "the same number",
            f"{most_nics:,} NICs",
            most_nics == 65_536,
            value=float(most_nics),
            unit="NICs",
        ),
        judged(
            Claim(2, "2/3 of the optics"),
            "the same ratio",
            f"{optics} at {most_nics:,} NICs",
            optics == Fraction(2, 3),
            value=float(optics),
            unit="of three tiers",
        ),
        judged(
            Claim(2, "3/5 of the switches"),
            "the same ratio",
            f"{switches} at {most_nics:,} NICs",
            switches == Fraction(3, 5),
            value=float(switches),
            unit="of three tiers",
        ),
        judged(
            Claim(3, "a lost T0-T1 link takes 3 % of a node's capacity in a plane of 800 Gb/s ports, 0.4 % with ports of 100 Gb/s"),
            "the same, rounded",
            f"{links[1]:.1f} % and {links[0]:.1f} %",
            (round(links[1]), round(links[0], 1)) == (3, 0.4),
            value=links[0],
            unit="%",
        ),
        judged(
            Claim(3, "a lost NIC-T0 link takes about 12 % of the NIC"),
            "the same, rounded down",
            f"1/{two.planes} = {100 / two.planes:.1f} %",
            int(100 / two.planes) == 12,
            value=100 / two.planes,
            unit="%",
        ),
        judged(
            Claim(2, "the longest path has 3 switches instead of 5 or 7; 256 nodes instead of 32 are one hop away"),
            "the same numbers",
            f"{two.longest_path} instead of {three.longest_path} (three tiers) or {paper_size(1, 4).longest_path} (four); "
            f"{two.one_hop_nics} instead of {three.one_hop_nics}",
            (two.longest_path, three.longest_path, paper_size(1, 4).longest_path, two.one_hop_nics, three.one_hop_nics)
            == (3, 5, 7, 256, 32),
            value=float(two.longest_path),
            unit="switches",
        ),
    ]


def table() -> tuple[list[str], list[list[str]]]:
    """Return (heads, rows): the paper's NICs, split in 1, 2, 4 and 8, each with the fewest tiers possible, and three tiers of one plane."""
    heads = [
        "planes",
        "port",
        "switch ports",
        "tiers",
        "most NICs",
        "NICs",
        "switches",
        "optics",
        "longest path",
        "one hop",
        "T0-T1 link",
        "NIC link",
    ]
    three = paper_size(1, 3, paper_size(1, 3).most_nics)
    table_rows = [
        [
            str(size.planes),
            f"{size.port_rate // GBIT} Gb/s",
            str(size.radix),
            str(size.tiers),
            f"{size.most_nics:,}",
            f"{size.nics:,}",
            f"{size.switches:,}",
            f"{size.optics:,}",
            str(size.longest_path),
            str(size.one_hop_nics),
            f"{100 * float(size.uplink_share):.2f} %",
            f"{100 * float(size.nic_link_share):.1f} %",
        ]
        for size in [three, *splits()]
    ]
    return heads, table_rows


FIGURES = (
    PaperFigure(
        "sizing",
        "Two tiers for 131,072 NICs",
        rows,
        plots.sizing,
        (),
        "Computed by topologies/sizing.py; full bisection, two transceivers a link, counted at the NIC's full rate.",
        section="2",
    ),
)
