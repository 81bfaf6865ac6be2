"""Section 2: what a split of the NIC into planes saves, computed by topologies.sizing; nothing is run."""

from __future__ import annotations

from fractions import Fraction

from scenarios.sets.paper.claims import Evidence, Found, found
from topologies.sizing import GBIT, NIC_RATE, PAPER_NICS, SWITCH_RATE, Size, splits


def paper_size(planes: int, tiers: int, nics: int = PAPER_NICS) -> Size:
    return Size(nics, NIC_RATE, SWITCH_RATE, planes, tiers)


def sizes(_: Evidence) -> dict[str, Found]:
    """Compare the claims of section 2 with the formulae."""
    two, three, four = paper_size(8, 2), paper_size(1, 3), paper_size(1, 4)
    most_nics = three.most_nics  # compared at a size that both reach
    small, large = paper_size(8, 2, most_nics), paper_size(1, 3, most_nics)
    optics, switches = Fraction(small.optics, large.optics), Fraction(small.switches, large.switches)
    uplink, uplink_three, nic_link = 100 * float(two.uplink_share), 100 * float(three.uplink_share), 100 / two.planes
    hops = (two.longest_path, three.longest_path, four.longest_path, two.one_hop_nics, three.one_hop_nics)
    return {
        "two-tiers": found(two.most_nics == PAPER_NICS, float(two.most_nics), radix=two.radix),
        "three-tiers": found(most_nics == 65_536, float(most_nics)),
        "optics": found(optics == Fraction(2, 3), float(optics), ratio=optics, nics=most_nics),
        "switches": found(switches == Fraction(3, 5), float(switches), ratio=switches, nics=most_nics),
        "uplink": found((round(uplink_three), round(uplink, 1)) == (3, 0.4), uplink, three=uplink_three),
        "nic-link": found(int(nic_link) == 12, nic_link, planes=two.planes),
        "hops": found(hops == (3, 5, 7, 256, 32), float(hops[0]), three=hops[1], four=hops[2], near=hops[3], near_three=hops[4]),
    }


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
