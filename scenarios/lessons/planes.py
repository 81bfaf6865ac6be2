"""Lesson 1: planes and spraying. Every host sends to one host of the other rack; who gets how
much?"""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.figures.results import Results
from scenarios.lessons.question import Lesson, Planned, Question

RUN = Planned(
    "lesson-1",
    "mrcbed run permutation --world simulated -t mrc -t roce-1p --seed 1 --all --out "
    "results/lesson-1",
    "permutation",
    ("mrc", "roce-1p"),
)
CROWDED = 0.6
"""Below it a flow shares its path: two on one path have 48 % each, one alone has more than 90 %."""


def shares(results: Mapping[str, Results], transport: str) -> list[float]:
    """Return each flow's share of what a host's links carry in payload."""
    return [flow.share or 0.0 for flow in results[RUN.folder].run(transport).flows.values()]


def paths_used(results: Mapping[str, Results], transport: str) -> int:
    evs = results[RUN.folder].evs
    used = evs[(evs["transport"] == transport) & (evs["host"] == 0)]
    return len(used[["plane", "uplink"]].drop_duplicates())


LESSON = Lesson(
    1,
    "planes and spraying",
    "docs/start/lessons/1-planes.md",
    (RUN,),
    (
        Question(
            "a",
            "On how many paths does h0 send its data under MRC?",
            lambda results: paths_used(results, "mrc"),
            "Multiply: how many planes, and how many T1s in each plane? Or run the Python lines "
            "of the page.",
            "There are 4 planes, and 8 T1s in each: 4 × 8 paths. MRC uses all of them, one "
            "packet after the other. This is spraying.",
        ),
        Question(
            "b",
            "On how many paths does h0 send its data under roce-1p?",
            lambda results: paths_used(results, "roce-1p"),
            "A RoCE queue pair must keep its packets in order. Can it use two paths at once?",
            "A hash of the addresses picks one path for a RoCE queue pair. All its packets take "
            "this path, so they stay in order.",
        ),
        Question(
            "c",
            "Under MRC, what share of the line does the slowest flow get, in %?",
            lambda results: 100 * min(shares(results, "mrc")),
            "The first table that mrcbed run prints: row mrc, column 'least'.",
            "Every flow gets nearly all of its line. The rest is headers and acknowledgements.",
            unit="%",
            slack=1.0,
        ),
        Question(
            "d",
            "Under roce-1p, what share of the line does the slowest flow get, in %?",
            lambda results: 100 * min(shares(results, "roce-1p")),
            "The first table that mrcbed run prints: row roce-1p, column 'least'.",
            "Several flows were hashed onto one cable. They share it, while other cables stand "
            "idle.",
            unit="%",
            slack=1.0,
        ),
        Question(
            "e",
            "Under roce-1p, how many of the 16 flows get less than 60 % of the line?",
            lambda results: sum(share < CROWDED for share in shares(results, "roce-1p")),
            "The table 'Goodput per flow', column roce-1p: count the rows below 60 %.",
            "8 flows of a rack are hashed onto 8 paths. It is unlikely that no two of them meet: "
            "8! / 8^8, one chance in 416.",
        ),
        Question(
            "f",
            "A job waits for its slowest flow. How many times as fast is the slowest flow of MRC "
            "as the slowest of roce-1p?",
            lambda results: min(shares(results, "mrc")) / min(shares(results, "roce-1p")),
            "Divide your answer c by your answer d.",
            "Both networks have the same number of bits per second. Only the use of the paths "
            "differs.",
            unit="×",
            within=0.08,
        ),
    ),
)
