"""Section 2: what a split of the NIC into planes saves, computed by topologies.sizing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from scenarios.sets.paper.claims import Evidence
from topologies.sizing import GBIT, NIC_RATE, PAPER_NICS, SWITCH_RATE, Size, splits


def paper_size(planes: int, tiers: int, nics: int = PAPER_NICS) -> Size:
    return Size(nics, NIC_RATE, SWITCH_RATE, planes, tiers)


def sizes(_: Evidence, part: str) -> dict[str, Any]:
    two, three, four = paper_size(8, 2), paper_size(1, 3), paper_size(1, 4)
    nics = three.most_nics  # compared at a size that both reach
    small, large = paper_size(8, 2, nics), paper_size(1, 3, nics)
    optics, switches = (
        Fraction(small.optics, large.optics),
        Fraction(small.switches, large.switches),
    )
    links = {
        "uplink": 100 * float(two.uplink_share),
        "uplink_three": 100 * float(three.uplink_share),
        "nic_link": 100 / two.planes,
    }
    hops = {
        "hops": float(two.longest_path),
        "hops_three": three.longest_path,
        "hops_four": four.longest_path,
    }
    near = {"near": two.one_hop_nics, "near_three": three.one_hop_nics}
    shares = {
        "optics": float(optics),
        "optics_ratio": optics,
        "switches": float(switches),
        "switches_ratio": switches,
    }
    most = {
        "two": float(two.most_nics),
        "three": float(nics),
        "nics": nics,
        "radix": two.radix,
        "planes": two.planes,
    }
    return {**most, **shares, **links, **hops, **near}


def table() -> tuple[list[str], list[list[str]]]:
    """Return (heads, rows): the paper's NICs, split in 1, 2, 4 and 8, with the fewest tiers, and
    three tiers of one plane."""
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
