"""Fig 20, 21 and 22 on the paper's cluster D, simulated: RoCE has PFC there, and DCQCN the time to act."""

from __future__ import annotations

from scenarios.sets.paper.claims import Evidence, Found, all_hold, at_least, at_most, found, is_more, percent, ratio

SENDERS = "workload.senders"
XOFF_BYTES = 1_000_000
"""XOFF threshold of a port on cluster D with pfc_xoff_bdp = 2: 2 BDP of 400 Gb/s and 10 us."""
SHARE = 0.95
"""Least flow's share of the payload rate: 390 of 400 Gb/s are 97.5 % of the raw rate, 100.9 % of ours; less six points for headers and
windows [ours]."""


def _within(value: float | None, least: float, most: float) -> Found:
    return found(all_hold([at_least(value, least), at_most(value, most)]), value)


def permutation(e: Evidence) -> dict[str, Found]:
    least = {name: e.median("main", name, "groups.permutation.min_share") for name in ("mrc", "roce-pfc", "roce-dcqcn")}
    pfc, pfc_8, dcqcn_8 = (e.median("main", name, "groups.permutation.of_line") for name in ("roce-pfc", "roce-pfc-8", "roce-dcqcn-8"))
    gain = ratio(pfc_8, pfc)
    lost, roce_lost = (e.median("main", name, "packets.lost") for name in ("mrc", "roce-pfc"))
    return {
        "all": found(at_least(least["mrc"], SHARE), least["mrc"]),
        "some-pfc": _within(least["roce-pfc"], 0.2, 0.55),
        "some-dcqcn": _within(least["roce-dcqcn"], 0.2, 0.55),
        "eight-pfc": _within(gain, 1.0, 1.3),
        "eight-dcqcn": found(is_more(dcqcn_8, pfc_8), dcqcn_8, pfc=pfc_8),
        "nothing-lost": found(None if lost is None or roce_lost is None else not lost and not roce_lost, lost, roce=roce_lost),
    }


def victim(e: Evidence) -> dict[str, Found]:
    names = ("mrc", "mrc-8", "roce-pfc", "roce-dcqcn", "roce-dcqcn-8")
    mrc, mrc_8, pfc, one, eight = (e.median("main", name, "groups.victim.kept") for name in names)
    jain, last_hop = (e.median("main", "mrc-no-penalty", key) for key in ("groups.incast.jain", "groups.incast.of_line"))
    fair = all_hold([at_least(jain, 0.98), at_least(last_hop, 0.95)])
    return {
        "fair": found(fair, jain, shares="–" if jain is None else f"{jain:.3f}, {percent(last_hop, 1)}"),
        "untouched": found(at_least(mrc, 0.95), mrc),
        "one-qp": _within(one, 0.6, 0.9),
        "eight-qps": found(is_more(eight, one), eight, one_qp=one),
        "pfc-alone": _within(pfc, 0.05, 0.3),
        "as-with-one": found(at_least(mrc_8, 0.95), mrc_8),
    }


def profiles(e: Evidence) -> dict[str, Found]:
    counts = e.settings("main", SENDERS)
    many = counts[-1] if counts else None
    few = [count for count in counts if count <= 10]

    def used(name: str, count: int | None) -> float | None:
        return e.median("main", name, "groups.incast.of_line", {SENDERS: count})

    held = [ratio(e.median("main", "default", "groups.incast.queue_mean_bytes", {SENDERS: count}), XOFF_BYTES) for count in few]
    queues = ", ".join(f"{count} flows: {percent(share)} of XOFF" for count, share in zip(few, held, strict=True))
    pauses, line = e.median("main", "default", "pfc.pauses", {SENDERS: many}), used("default", many)
    tenth, fifth = (
        min((share for count in counts if (share := used(name, count)) is not None), default=None)
        for name in ("aggressive", "most-aggressive")
    )
    fullest = max((share for share in held if share is not None), default=None)
    return {
        "holds": found(all_hold([at_most(share, 1.0) for share in held]), fullest, queues=queues),
        "then-pfc": found(all_hold([at_least(pauses, 1), at_least(line, 0.95)]), line, pauses=pauses, many=many),
        "tenth": _within(tenth, 0.85, 0.95),
        "fifth": _within(fifth, 0.7, 0.85),
    }
