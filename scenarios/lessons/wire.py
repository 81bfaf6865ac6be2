"""Lesson 5: packets of one cable, read from a capture; then a failure that the student designs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from scenarios.figures.results import Results
from scenarios.lessons.question import Lesson, Planned, Question, figure
from scenarios.schema.scenario import named_scenarios
from testbed.errors import UserError
from testbed.results.summary import Run
from testbed.results.values import known
from testbed.wireshark.packets import read, row

LINK = "p0-t0-0:p0-t1-0"
WIRE = Planned(
    "lesson-5",
    f"mrcbed run smoke --world simulated --seed 1 --all --pcap {LINK} --out results/lesson-5",
    "smoke",
    ("mrc",),
)
OWN = Planned(
    "lesson-5-own",
    "mrcbed run mine.toml --world simulated --seed 1 --all --out results/lesson-5-own",
    transports=("mrc",),
)
HEALTHY_STEPS = 5  # before the failure: fewer do not measure its cost (scenarios.figures.cost)
_KINDS = {"write": ("WRITE",), "probe": ("Reliability Probe", "Endpoint request")}


def packets(results: Mapping[str, Results]) -> list[dict[str, Any]]:
    """Raises :class:`UserError` if the run has no capture of the pulled cable."""
    directory = results[WIRE.folder].directory
    capture = Path(directory, "pcap", "tiny", f"{LINK.replace(':', '_')}.pcap")
    if not capture.is_file():
        raise UserError(f"{capture} is missing: delete {directory}, then run: {WIRE.command}")
    return [row(packet) for packet in read(capture)]


def sizes(results: Mapping[str, Results]) -> int:
    return max(int(packet["bytes"]) for packet in packets(results))


def gap(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Return the longest time in which no packet crossed the cable, ns, and the place of the packet
    that ended it."""
    return max(
        (after["at_ns"] - before["at_ns"], place)
        for place, (before, after) in enumerate(pairwise(rows), 1)
    )


def first_after(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what comes first after the gap: data or a probe. A host that only receives sends
    endpoint requests as probes."""
    types = [str(packet["type"]) for packet in rows[gap(rows)[1] :]]
    return next(kind for name in types for kind, names in _KINDS.items() if name.startswith(names))


def own(results: Mapping[str, Results]) -> Run:
    """Raises :class:`UserError` for a scenario not the student's own, or that measures nothing."""
    mine = results[OWN.folder]
    name = mine.summary.scenario
    fix = f"change mine.toml, delete {mine.directory}, then run: {OWN.command}"
    run = mine.run("mrc")
    if name in named_scenarios():
        raise UserError(
            f"{mine.directory} holds the shipped scenario {name!r}: write one of your own"
        )
    if not run.failovers:
        raise UserError(f"{mine.directory}: nothing failed in it, a [[fault]] is missing: {fix}")
    if not mine.summary.checks:
        raise UserError(f"{mine.directory}: it expects nothing, an [[expect]] is missing: {fix}")
    if (
        run.failure_cost is None
        or (run.failure_cost.healthy_steps or 0) < HEALTHY_STEPS
        or known(run.failure_cost.extra_steps) is None
    ):
        raise UserError(
            f"{mine.directory}: fewer than {HEALTHY_STEPS} healthy steps before the fault, so "
            f"its cost is unknown: {fix}"
        )
    return run


def held(results: Mapping[str, Results]) -> int:
    own(results)
    return sum(check.ok is True for check in results[OWN.folder].summary.checks)


LESSON = Lesson(
    5,
    "the wire, and a scenario of your own",
    "docs/start/lessons/5-wire.md",
    (WIRE, OWN),
    (
        Question(
            "a",
            "How many bytes has a full data packet on the wire?",
            sizes,
            "mrcbed results packets, column 'bytes': a WRITE Middle.",
            "The outer header has the path, the inner header has the hosts. Then come UDP, and "
            "the headers that say where in the memory the data go.",
        ),
        Question(
            "b",
            "What share of a full data packet is payload, in %? The payload is 4096 bytes.",
            lambda results: 100 * 4096 / sizes(results),
            "Divide 4096 by your answer a.",
            "This is why no flow of lesson 1 got 100 % of the line. With small packets the share "
            "is much worse.",
            unit="%",
            slack=0.3,
        ),
        Question(
            "c",
            "How many data packets crossed the cable? Count all types that begin with WRITE.",
            lambda results: sum(packet["type"].startswith("WRITE") for packet in packets(results)),
            "mrcbed results packets with --summary: add the lines that begin with WRITE.",
            "Data and acknowledgements share the cable, but a SACK acknowledges many packets and "
            "is small.",
        ),
        Question(
            "d",
            "What is the longest time in which no packet crossed the cable, in µs?",
            lambda results: gap(packets(results))[0] / 1e3,
            "In the list, look for a step of more than 100 µs in the column µs. Or run the "
            "Python lines of the page.",
            "The cable was dead for 120 µs. The rest is the time until somebody tried it again.",
            unit="µs",
            slack=1.0,
        ),
        Question(
            "e",
            "What came first over the cable after that gap, data (a WRITE) or a probe? Answer "
            "write or probe.",
            lambda results: first_after(packets(results)),
            "Begin at the line after the large step, and read the column 'type'. Both kinds of "
            "probes count.",
            "MRC does not risk data on a path that failed. It sends a probe without data first, "
            "and waits for the answer.",
            choices=("write", "probe"),
        ),
        Question(
            "f",
            "Your own scenario: how many healthy steps long is the slowest step after the "
            "failure, under mrc?",
            lambda results: figure(own(results), "failure_cost.slowdown"),
            "The table 'What the failure cost', row mrc, column 'slowest step'.",
            "You have broken a network, and measured what it cost. That is what this testbed is "
            "for.",
            unit="×",
            within=0.05,
        ),
        Question(
            "g",
            "Your own scenario: how many of its checks held?",
            held,
            "The lines 'ok' after the tables.",
            "A check says what you believe, before you look. A check that cannot fail says "
            "nothing: try to make one of yours fail.",
        ),
    ),
)
