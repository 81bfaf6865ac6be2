"""Lesson 3: incast and trimming. Seven hosts send to one; an eighth sends to its neighbour."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.figures.results import Results
from scenarios.lessons.question import Lesson, Planned, Question, figure
from testbed.results.summary import Run

RUN = Planned(
    "lesson-3",
    "mrcbed run incast-victim --world simulated -t mrc -t mrc-no-trim -t roce --seed 1 --all "
    "--out results/lesson-3",
    "incast-victim",
    ("mrc", "mrc-no-trim", "roce"),
)
PORT_BPS = 100e9  # of the fabric rack16


def of(results: Mapping[str, Results], transport: str) -> Run:
    return results[RUN.folder].run(transport)


def wait_us(results: Mapping[str, Results], transport: str) -> float:
    """Return a packet's wait in the mean queue of the target's last hop."""
    mean_bytes = figure(of(results, transport), "groups.incast.queue_mean_bytes")
    return mean_bytes * 8 / PORT_BPS * 1e6


def kept_percent(results: Mapping[str, Results], transport: str) -> float:
    return 100 * figure(of(results, transport), "groups.victim.kept")


LESSON = Lesson(
    3,
    "incast and trimming",
    "docs/start/lessons/3-incast.md",
    (RUN,),
    (
        Question(
            "a",
            "Under MRC, what share of the target's line do the seven flows carry together, in %?",
            lambda results: 100 * figure(of(results, "mrc"), "groups.incast.of_line"),
            "The first table, row 'mrc 7 × incast', column 'of line'.",
            "An incast is no reason to waste the line. The seven share it, and it stays full.",
            unit="%",
            slack=1.0,
        ),
        Question(
            "b",
            "Under MRC, how long does a packet wait in the mean queue of the last hop, in µs? A "
            "port sends 100 Gb/s.",
            lambda results: wait_us(results, "mrc"),
            "The table 'Queues on the last hop', row 'mrc incast', column 'queue mean' in kB. "
            "Time = bytes × 8 / 100e9.",
            "Switches trim what comes above 187.5 kB. So the queue cannot grow, and no packet "
            "waits longer than 15 µs.",
            unit="µs",
            within=0.05,
        ),
        Question(
            "c",
            "The same without trimming (mrc-no-trim), in µs?",
            lambda results: wait_us(results, "mrc-no-trim"),
            "The same table, row 'mrc-no-trim incast'.",
            "Now the senders' windows fill the buffer. Packets wait for several base RTTs (10 µs "
            "each).",
            unit="µs",
            within=0.05,
        ),
        Question(
            "d",
            "Under MRC, how many packets did the switches trim?",
            lambda results: figure(of(results, "mrc"), "packets.trimmed"),
            "The table 'Packets', row mrc, column 'trims'.",
            "A trimmed packet is not lost: its header arrives, and the receiver asks for its "
            "data at once. Compare the column 'retransmitted'. No timer had to expire.",
        ),
        Question(
            "e",
            "Under MRC, how much of its goodput without the incast does the victim keep, in %?",
            lambda results: kept_percent(results, "mrc"),
            "The first table, row 'mrc victim', column 'kept vs alone'.",
            "The victim's last hop is free. Its packets are sprayed over all T1s, and the queue "
            "of the incast is only at the target.",
            unit="%",
            slack=1.0,
        ),
        Question(
            "f",
            "The same under RoCE, in %?",
            lambda results: kept_percent(results, "roce"),
            "The first table, row 'roce victim', column 'kept vs alone'.",
            "Under RoCE the victim has one path. If the hash puts it on a cable with a flow of "
            "the incast, marks on this cable slow both, and DCQCN gives the rate back slowly. If "
            "not, the victim keeps all. Another seed, another victim.",
            unit="%",
            slack=1.0,
        ),
    ),
)
