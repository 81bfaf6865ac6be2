"""Lesson 4: a port lost and a lossy link: what a host notices at once, and what it cannot know."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.figures.results import Results
from scenarios.lessons.question import Lesson, Planned, Question, figure
from testbed.results.summary import Run

PORTS = Planned(
    "lesson-4-ports",
    "mrcbed run nic-ports-one-by-one --world simulated --seed 1 --all --out results/lesson-4-ports",
    "nic-ports-one-by-one",
    ("mrc",),
)
LOSSY = Planned(
    "lesson-4-lossy",
    "mrcbed run nic-link-lossy --world simulated -t mrc -t mrc-mapped --seed 1 --all --out "
    "results/lesson-4-lossy",
    "nic-link-lossy",
    ("mrc", "mrc-mapped"),
)


def of(results: Mapping[str, Results], planned: Planned, transport: str) -> Run:
    return results[planned.folder].run(transport)


def share_percent(results: Mapping[str, Results], live: int) -> float:
    phases = of(results, PORTS, "mrc").ports
    shares = [
        p.share or 0.0
        for p in phases
        if (p.host, p.direction, p.phase, p.live) == ("h0", "sent", "down", live)
    ]
    return 100 * shares[0]


def denied_link(results: Mapping[str, Results]) -> str:
    events = results[LOSSY.folder].events
    denials = events[
        (events["transport"] == "mrc-mapped") & (events["kind"] == "deny") & (events["host"] == -1)
    ]
    return str(denials.sort_values("t_ns")["on"].iloc[0])


LESSON = Lesson(
    4,
    "a port lost and a lossy link",
    "docs/start/lessons/4-ports.md",
    (PORTS, LOSSY),
    (
        Question(
            "a",
            "h0 has lost one of its four ports. What share of its line does it send then, in %?",
            lambda results: share_percent(results, 3),
            "The figure 'A host whose NIC ports change', upper half: the first step down. Or "
            "calculate: three of four ports, less 3 % for headers and SACKs.",
            "The three ports that are left carry what they can. No queue pair failed, and no "
            "message was lost.",
            unit="%",
            slack=2.5,
        ),
        Question(
            "b",
            "h0 has one port left. What share of its line does it send then, in %?",
            lambda results: share_percent(results, 1),
            "The same figure: the lowest step.",
            "One plane of four is enough to go on, at a quarter of the rate.",
            unit="%",
            slack=2.0,
        ),
        Question(
            "c",
            "How many base RTTs after the loss of a port has the goodput settled, in the worst "
            "case?",
            lambda results: figure(of(results, PORTS, "mrc"), "port_down_rtts"),
            "The list of checks at the end: the line 'within 20 RTTs of the loss of carrier', "
            "after 'seen'.",
            "A host sees its own port go down. It leaves the plane at once, and tells its peers "
            "to leave it, too.",
            unit="RTTs",
            slack=0.2,
        ),
        Question(
            "d",
            "Now the link that loses 20 %. How many packets die on it under mrc, without "
            "Clustermapper?",
            lambda results: of(results, LOSSY, "mrc").packets.lost,
            "The table 'Packets', row mrc, column 'packets lost'.",
            "The link is up, so nobody is told. Paths are given up after losses, pass a probe, "
            "come back, and lose again. Each time they stay away longer.",
        ),
        Question(
            "e",
            "How many under mrc-mapped, with Clustermapper?",
            lambda results: of(results, LOSSY, "mrc-mapped").packets.lost,
            "The same table, row mrc-mapped.",
            "Clustermapper probes every link, finds the lossy one and denies it. After that no "
            "packet goes there.",
        ),
        Question(
            "f",
            "Which link did Clustermapper deny? Write its name, like h1:p1-t0-0.",
            denied_link,
            "Run the Python lines of the page, and read the column 'on'.",
            "MRC sees that a path loses packets, but not where on the path. Clustermapper "
            "compares probes of many links, and finds where.",
            choices=tuple(
                f"h{host}:p{plane}-t0-{host // 4}" for host in range(8) for plane in range(4)
            ),
        ),
        Question(
            "g",
            "Under mrc, what share of its goodput did the worst flow keep in the second half of "
            "the fault, in %?",
            lambda results: 100 * figure(of(results, LOSSY, "mrc"), "kept_late"),
            "The table 'Faults' has the whole fault; the Python lines of the page have its "
            "second half, kept_late.",
            "Even alone, MRC loses little more than the share of the bad plane, a quarter. "
            "Clustermapper saves packets, not goodput.",
            unit="%",
            slack=1.5,
        ),
    ),
)
