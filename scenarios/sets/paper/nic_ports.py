"""Fig 9a and 9b: a host's NIC ports go down and come back under flows, one by one and four of eight together."""

from __future__ import annotations

from functools import partial

from scenarios.sets.paper import plots
from scenarios.sets.paper.claims import Claim, Evidence, Row, Run, at_most, cannot, judged, or_never, percent, rtts, value_of
from scenarios.sets.paper.failures import ride
from scenarios.sets.paper.figure import PaperFigure, Part
from scenarios.sets.paper.pairs import PAIR, pair

REMAP = Claim(14, "after a port's failure remapping takes a few seconds in the NIC")
PLANES_EQUAL = Claim(16, "planes are loaded exactly equally")


def ports(e: Evidence) -> list[Row]:
    return [*port_rows(e, 22), *port_rows(e, 22, PAIR, "two hosts of cluster B: "), planes_equal(e), remap(e)]


def four_of_eight(e: Evidence) -> list[Row]:
    return port_rows(e, 23)


def settled(run: Run, key: str, phase: str) -> float | None:
    """Return the longest time until goodput was steady at what the live ports carry, over phases of a kind, in base RTTs; infinite if one
    never was."""
    return or_never(value_of(run, key), any(row["phase"] == phase for row in run.get("ports", ())))


def port_rows(e: Evidence, claim: int, part: str = "main", who: str = "") -> list[Row]:
    """``who``: to which hosts of which fabric the part's statements belong, if there is another part."""
    error = e.median(part, "mrc", "port_down_error")
    down_rtts = e.median(part, "mrc", partial(settled, key="port_down_rtts", phase="down"))
    up_rtts = e.median(part, "mrc", partial(settled, key="port_back_rtts", phase="up"))
    shares = {
        (row["live"], row["expected"]): row["share"]
        for run in e.runs(part, "mrc")
        for row in run.get("ports", ())
        if row["phase"] == "down" and row["share"] is not None
    }
    ladder = ", ".join(f"{live} ports: {percent(share, 1)}" for (live, _), share in sorted(shares.items(), reverse=True))
    ideal = ", ".join(f"{live} ports: {percent(expected, 1)}" for live, expected in sorted(shares, reverse=True))
    asked = "both directions within 3 % of what the live ports carry"
    why = "short phases: what a window's edges cut off counts more than 3 %"
    return [
        ride(e, part, claim),
        judged(
            Claim(claim, f"{who}throughput follows the live links in both directions"),
            asked,
            f"of line rate with {ladder}",
            at_most(error, 0.03),
            ideal=ideal,
            value=error,
            unit="largest deviation",
            why=why,
        ),
        judged(
            Claim(claim, f"{who}all of it is back when the links are"),
            "full rate within 50 RTTs of the link's return",
            f"{rtts(up_rtts)} (loss: settled after {rtts(down_rtts)})",
            at_most(up_rtts, 50),
            value=up_rtts,
            unit="base RTTs",
            why="windows regrow by a packet or two per RTT",
        ),
    ]


def planes_equal(e: Evidence) -> Row:
    value = e.median("main", "mrc", "plane_deviation")
    seen = f"first transmissions differ by at most {percent(value, 2)}"
    why = "planes rotate strictly; more than a packet's difference means that one of them was passed over"
    asked = "live planes carry the same within 1 %"
    return judged(PLANES_EQUAL, asked, seen, at_most(value, 0.01), value=value, unit="deviation", why=why)


def remap(e: Evidence) -> Row:
    value = e.median("main", "mrc", partial(settled, key="port_down_rtts", phase="down"))
    why = "seconds are the NIC firmware's; the engine here moves in-flight packets within the tick in which it hears of the lost carrier"
    return cannot(REMAP, why, f"settled {rtts(value)} after the carrier was lost", value=value, unit="base RTTs")


PORTS_QUICK = (
    "workload.duration=2.88ms",
    "fault.0.at=400us",
    "fault.0.for=2ms",
    "fault.1.at=800us",
    "fault.1.for=1.2ms",
    "fault.2.at=1.2ms",
    "fault.2.for=400us",
)

FIGURES = (
    PaperFigure(
        "9a",
        "NIC ports go down one by one, and come back",
        ports,
        plots.and_two_hosts(plots.host_ports),
        (Part("main", "nic-ports-one-by-one", quick=PORTS_QUICK), pair("pair-ports")),
        "On four planes each port is a quarter of the NIC. Two hosts of cluster B, simulated, have eight as in the paper, whose phases of "
        "seconds are 400 us here.",
    ),
    PaperFigure(
        "9b",
        "Four of eight NIC links flap together",
        four_of_eight,
        plots.host_ports,
        (Part("main", "transceiver-flap", fabric="wide", quick=("workload.duration=3ms", "fault.0.for=1.6ms")),),
    ),
)
