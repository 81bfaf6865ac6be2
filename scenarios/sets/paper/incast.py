"""Fig 18: an incast, and a flow to the target's neighbour that shares everything with it but the last hop."""

from __future__ import annotations

from scenarios.sets.paper.claims import Evidence, Found, all_hold, at_least, at_most, found, is_more


def victim(e: Evidence) -> dict[str, Found]:
    kept, one_plane, one_qp, eight_qps = (e.median("main", name, "groups.victim.kept") for name in ("mrc", "mrc-1p", "roce-1p", "roce-8"))
    jain, last_hop = (e.median("main", "mrc-no-penalty", key) for key in ("groups.incast.jain", "groups.incast.of_line"))
    with_ours = e.median("main", "mrc", "groups.incast.jain")
    fair = None if jain is None or last_hop is None else jain >= 0.98 and last_hop >= 0.95
    return {
        "fair": found(fair, jain, last_hop=last_hop, with_ours=with_ours),
        "untouched": found(at_least(kept, 0.95), kept, one_plane=one_plane),
        "one-qp": found(all_hold([at_least(one_qp, 0.6), at_most(one_qp, 0.9)]), one_qp),
        "eight-qps": found(is_more(eight_qps, one_qp), eight_qps, one_qp=one_qp),
    }
