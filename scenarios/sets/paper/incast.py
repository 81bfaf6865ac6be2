"""Fig 18: an incast, and a flow to the target's neighbour that shares everything with it but the last hop."""

from __future__ import annotations

from scenarios.sets.paper import plots
from scenarios.sets.paper.claims import Claim, Evidence, Row, at_least, cannot, judged, number, percent
from scenarios.sets.paper.collectives import is_more
from scenarios.sets.paper.figure import PaperFigure, Part

SHARES = Claim(33, "MRC shares the incast almost perfectly")
NO_IMPACT = Claim(33, "MRC leaves the victim untouched")
ONE_QP = Claim(33, "RoCE with 1 QP (PFC, DCQCN): the victim loses about 25 %")
EIGHT_QPS = Claim(33, "RoCE with 8 QPs: the victim's average loss is smaller")
SECONDS = Claim(33, "but single seconds have a quarter of the line")
NOTE = (
    "The paper's cluster has one plane of 400 Gb/s. MRC is shown on four planes, as it is meant, and on one; RoCE on one plane of the "
    "same rate. Switches mark at the same fractions of a BDP for all; RoCE drops at a full buffer, as there is no PFC here."
)
NO_PFC = "RoCE loses packets here that PFC would hold back, and go-back-N repeats them into the incast: who is hurt is decided by drops"


def victim(e: Evidence) -> list[Row]:
    kept, with_ours = (e.median("main", "mrc", key) for key in ("groups.victim.kept", "groups.incast.jain"))
    of_line, jain = (e.median("main", "mrc-no-penalty", key) for key in ("groups.incast.of_line", "groups.incast.jain"))
    one_plane = e.median("main", "mrc-1p", "groups.victim.kept")
    one_qp, eight_qps = e.median("main", "roce-1p", "groups.victim.kept"), e.median("main", "roce-8", "groups.victim.kept")
    collision = "its path collides with the incast's, or does not, by ECMP's hash; "
    return [
        judged(
            SHARES,
            "Jain's index of the seven at least 0.98, and 95 % of the last hop used, without what is ours (receiver_penalty)",
            f"{number(jain, '.3f')}, {percent(of_line, 1)}; with receiver_penalty {number(with_ours, '.3f')}",
            None if jain is None or of_line is None else jain >= 0.98 and of_line >= 0.95,
            ideal="1.000, 100 %",
            value=jain,
            unit="Jain",
            why="windows grow and shrink out of step",
        ),
        judged(
            NO_IMPACT,
            "the victim keeps 95 % of what it gets alone",
            f"{percent(kept, 1)} (on one plane: {percent(one_plane, 1)})",
            at_least(kept, 0.95),
            ideal="100 %",
            value=kept,
            unit="of alone",
            why="marks and trims of the incast's spill over to its paths",
        ),
        judged(
            ONE_QP,
            "the victim loses 10 to 40 %",
            f"keeps {percent(one_qp)} of what it gets alone",
            None if one_qp is None else 0.6 <= one_qp <= 0.9,
            value=one_qp,
            unit="of alone",
            why=collision + NO_PFC,
        ),
        judged(
            EIGHT_QPS,
            "the victim keeps more than with 1 QP, on average",
            f"keeps {percent(eight_qps)}, with 1 QP {percent(one_qp)}",
            is_more(eight_qps, one_qp),
            value=eight_qps,
            unit="of alone",
            why=NO_PFC,
        ),
        cannot(SECONDS, "a second of the network is hours here; averages over less than DCQCN's periods say nothing about its seconds"),
    ]


FIGURES = (
    PaperFigure(
        "18",
        "Incast of 7 to 1 with a victim flow",
        victim,
        plots.incast,
        (Part("main", "incast.toml", quick=("workload.duration=500us",), seeds=(1, 2)),),
        NOTE,
    ),
)
