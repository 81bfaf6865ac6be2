"""Fig 18, 20, 21 and 22 on the paper's cluster D, simulated: RoCE has PFC there, and DCQCN the time to act."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.sets.paper import plots
from scenarios.sets.paper.claims import Claim, Evidence, Row, all_hold, at_least, at_most, judged, number, percent
from scenarios.sets.paper.collectives import is_more, ratio
from scenarios.sets.paper.figure import PaperFigure, Part
from scenarios.sets.paper.incast import EIGHT_QPS, NO_IMPACT, ONE_QP, SHARES
from testbed.simulated import SIMULATED

OF_LINE = "groups.permutation.of_line"
LEAST = "groups.permutation.min_share"
KEPT = "groups.victim.kept"
ALL = Claim(35, "MRC has 390 of 400 Gb/s on all flows")
SOME_PFC = Claim(35, "RoCE with 1 QP and PFC: some flows at a half or a third")
SOME_DCQCN = Claim(35, "RoCE with 1 QP, PFC and DCQCN: some flows at a half or a third")
EIGHT_PFC = Claim(35, "8 QPs under PFC are marginally better")
EIGHT_DCQCN = Claim(35, "8 QPs under DCQCN are better than under PFC")
VICTIM_PFC = Claim(36, "with PFC alone the victim has 30 to 100 of 400 Gb/s")
AS_WITH_ONE = Claim(36, "MRC with 8 QPs is as with 1")
HOLDS = Claim(37, "the default profile holds the queue up to about 10 flows")
THEN_PFC = Claim(37, "beyond that PFC holds it, with the bottleneck at line rate")
TENTH = Claim(37, "an aggressive profile empties the queue at times and loses about 10 % of the bottleneck")
FIFTH = Claim(37, "the most aggressive one loses 20 %")
LOSSLESS = Claim(5, "MRC does without PFC what RoCE does with it: nothing is lost")
XOFF_BYTES = 1_000_000
"""XOFF threshold of a port on cluster D with pfc_xoff_bdp = 2: 2 BDP of 400 Gb/s and 10 us."""
SHARE = 0.95
"""Least flow's share of the payload rate: 390 of 400 Gb/s are 97.5 % of the raw rate, 100.9 % of ours; less six points for headers and
windows [ours]."""
FULL_LOAD = ("mrc", "roce-pfc", "roce-pfc-8", "roce-dcqcn", "roce-dcqcn-8", "adaptive")
VICTIMS = ("mrc", "mrc-8", "mrc-no-penalty", "roce-pfc", "roce-dcqcn", "roce-dcqcn-8")
NOTE = (
    "Simulated. RoCE on a lossless fabric, marked by the ramp of DCQCN's paper at 400 Gb/s; its timer is 67 ms, as deployed. In full "
    "(not in the short form) measured after the first 7 or 8 ms, when DCQCN's rates are level."
)


def _share(claim: Claim, asked: str, value: float | None, ok: Callable[[float], bool], why: str, of: str = "of line") -> Row:
    return judged(claim, asked, percent(value, 1), None if value is None else ok(value), value=value, unit=of, why=why)


def permutation(e: Evidence) -> list[Row]:
    least = {name: e.median("main", name, LEAST) for name in ("mrc", "roce-pfc", "roce-dcqcn")}
    mean = {name: e.median("main", name, OF_LINE) for name in ("roce-pfc", "roce-pfc-8", "roce-dcqcn", "roce-dcqcn-8")}
    gain = ratio(mean["roce-pfc-8"], mean["roce-pfc"])
    lost = [e.median("main", name, "packets.lost") for name in ("mrc", "roce-pfc")]
    few = "which flows collide, and how many, is a draw of the hash over four uplinks"
    settling = "few, and which, flows collide; DCQCN gives back 0.1 % of the line each 55 µs after a cut"
    return [
        _share(ALL, f"the least flow has {percent(SHARE)} of the payload rate", least["mrc"], lambda v: v >= SHARE, "windows of 4 EVs"),
        _share(SOME_PFC, "the least flow has 20 to 55 %", least["roce-pfc"], lambda v: 0.2 <= v <= 0.55, few),
        _share(SOME_DCQCN, "the least flow has 20 to 55 %", least["roce-dcqcn"], lambda v: 0.2 <= v <= 0.55, settling),
        judged(
            EIGHT_PFC,
            "the mean of all flows is 1 to 1.3 times that of 1 QP",
            f"{number(gain, '.2f')} times",
            all_hold([at_least(gain, 1.0), at_most(gain, 1.3)]),
            value=gain,
            unit="times",
            why=few,
        ),
        judged(
            EIGHT_DCQCN,
            "the mean of all flows is above that under PFC alone",
            f"{percent(mean['roce-dcqcn-8'], 1)} against {percent(mean['roce-pfc-8'], 1)}",
            is_more(mean["roce-dcqcn-8"], mean["roce-pfc-8"]),
            value=mean["roce-dcqcn-8"],
            unit="of line",
            why=settling,
        ),
        judged(
            LOSSLESS,
            "no packet lost by MRC or by RoCE under PFC, at full load",
            ", ".join("–" if count is None else f"{count:.0f}" for count in lost),
            None if None in lost else not any(lost),
            value=lost[0],
            unit="packets",
            why="a buffer was too small",
        ),
    ]


def victim(e: Evidence) -> list[Row]:
    kept = {name: e.median("main", name, KEPT) for name in ("mrc", "mrc-8", "roce-pfc", "roce-dcqcn", "roce-dcqcn-8")}
    jain, last_hop = e.median("main", "mrc-no-penalty", "groups.incast.jain"), e.median("main", "mrc-no-penalty", "groups.incast.of_line")
    one, eight = kept["roce-dcqcn"], kept["roce-dcqcn-8"]
    collides = "whether its path meets the incast's is a draw of the hash"
    return [
        judged(
            SHARES,
            "Jain's index of the seven at least 0.98, 95 % of the last hop used, without what is ours (receiver_penalty)",
            "–" if jain is None else f"{jain:.3f}, {percent(last_hop, 1)}",
            all_hold([at_least(jain, 0.98), at_least(last_hop, 0.95)]),
            ideal="1.000, 100 %",
            value=jain,
            unit="Jain",
            why="windows grow and shrink out of step",
        ),
        _share(NO_IMPACT, "it keeps 95 % of what it has alone", kept["mrc"], lambda v: v >= 0.95, "marks and trims spill over", "of alone"),
        _share(ONE_QP, "it keeps 60 to 90 % of what it has alone", one, lambda v: 0.6 <= v <= 0.9, collides, "of alone"),
        judged(
            EIGHT_QPS,
            "it keeps more than with 1 QP",
            f"{percent(eight, 1)} against {percent(one, 1)}",
            is_more(eight, one),
            value=eight,
            unit="of alone",
            why=collides,
        ),
        _share(VICTIM_PFC, "it keeps 5 to 30 % of what it has alone", kept["roce-pfc"], lambda v: 0.05 <= v <= 0.3, collides, "of alone"),
        _share(
            AS_WITH_ONE,
            "its victim keeps 95 % of what it has alone",
            kept["mrc-8"],
            lambda v: v >= 0.95,
            "eight windows for one",
            "of alone",
        ),
    ]


SENDERS = "workload.senders"


def profiles(e: Evidence) -> list[Row]:
    counts = e.settings("main", SENDERS)
    many = counts[-1] if counts else None
    few = [count for count in counts if count <= 10]

    def used(name: str, count: int | None) -> float | None:
        return e.median("main", name, "groups.incast.of_line", {SENDERS: count})

    queues = [e.median("main", "default", "groups.incast.queue_mean_bytes", {SENDERS: count}) for count in few]
    held = [None if queue is None else queue / XOFF_BYTES for queue in queues]
    pauses = e.median("main", "default", "pfc.pauses", {SENDERS: many})
    least = {name: min((v for c in counts if (v := used(name, c)) is not None), default=None) for name in ("aggressive", "most-aggressive")}
    ours = "the profiles are marking ramps of ours: the paper does not say what its own are"
    starting = "all flows begin at once and at line rate here, in the paper one after the other"
    return [
        judged(
            HOLDS,
            "up to 10 flows the mean queue of the last hop stays below XOFF",
            ", ".join(f"{count} flows: {percent(share)} of XOFF" for count, share in zip(few, held, strict=True)),
            all_hold([at_most(share, 1.0) for share in held]),
            value=max((share for share in held if share is not None), default=None),
            unit="of XOFF",
            why=starting,
        ),
        judged(
            THEN_PFC,
            f"with {many} flows there are pauses, and 95 % of the last hop is used",
            f"{number(pauses, '.0f')} pauses, {percent(used('default', many), 1)} of the line",
            all_hold([at_least(pauses, 1), at_least(used("default", many), 0.95)]),
            value=used("default", many),
            unit="of line",
            why=starting,
        ),
        _share(TENTH, "at worst 5 to 15 % of the line are unused", least["aggressive"], lambda v: 0.85 <= v <= 0.95, f"{ours}; {starting}"),
        _share(FIFTH, "at worst 15 to 30 % are unused", least["most-aggressive"], lambda v: 0.7 <= v <= 0.85, f"{ours}; {starting}"),
    ]


FIGURES = (
    PaperFigure(
        "22",
        "Ever more flows to one host under three profiles of DCQCN",
        profiles,
        plots.profiles,
        (Part("main", "dcqcn-profiles.toml", quick=("workload.duration=10ms", "workload.settle=5ms"), seeds=(1, 2), world=SIMULATED),),
        "Simulated. Every number of flows has 80 ms of its own; in the paper a flow joins every 5 s. What a profile is stands in "
        "docs/baselines.md.",
    ),
    PaperFigure(
        "20",
        "Full load: MRC, and RoCE under PFC with and without DCQCN",
        permutation,
        plots.shares,
        (
            Part(
                "main", "permutation-baselines", quick=("workload.duration=1ms", "workload.settle=0"), transports=FULL_LOAD, world=SIMULATED
            ),
        ),
        NOTE,
    ),
    PaperFigure(
        "21",
        "Incast of 7 to 1 with a victim flow, under PFC",
        victim,
        plots.incast,
        (Part("main", "incast-baselines", quick=("workload.duration=4ms", "workload.settle=1ms"), transports=VICTIMS, world=SIMULATED),),
        NOTE,
    ),
)
