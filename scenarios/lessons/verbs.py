"""Lesson 6: an RDMA program while a plane dies. Answers are in the agents' logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from scenarios.lessons.question import Lesson, Planned, Question
from testbed.errors import UserError

LAUNCH = "sudo mrcbed launch --fabric tiny --verbs -n 2 --log results/"
CLIENT = "h1"


class Logs:
    """The client's log of a launch. A program has no seed: 0 stands for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.seeds = {0}

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    def rate(self, planes: int) -> float:
        """Return Gb/s while the client used so many planes: median of bins. Raises
        :class:`UserError`."""
        bins = [
            line for line in self.of("goodput") if sum(size > 0 for size in line["tx"]) == planes
        ]
        if not bins:
            raise UserError(
                f"{self.path} has no time in which {planes} of the planes carried data: delete "
                "its folder, and run again"
            )
        return float(median(sum(line["tx"]) * 8000 / line["bin_ps"] for line in bins))

    def failed(self) -> int:
        """Count queue pairs that used up their retries; one "unknown at the peer" met the end of
        the other program."""
        return sum(
            line["state"] == "ERROR" and line["cause"] == "retries exhausted"
            for line in self.of("qp")
        )


class Launched(Planned):
    def open(self, parent: Path) -> Any:
        path = parent / self.folder / f"{CLIENT}.jsonl"
        if not path.is_file():
            raise UserError(f"{path.parent} has no logs yet: run this first: {self.command}")
        logs = Logs(path)
        if not logs.of("verbs"):
            raise UserError(
                f"{path} has no line of a program that uses verbs: delete {path.parent}, then "
                f"run: {self.command}"
            )
        return logs


MRC = Launched(
    "lesson-6-mrc",
    f'{LAUNCH}lesson-6-mrc --at "4s fault plane p1" --at "8s heal" -- '
    "timeout 14 ib_write_bw --run_infinitely -D 2 --report_gbits {server}",
)
ROCE = Launched(
    "lesson-6-roce",
    f'{LAUNCH}lesson-6-roce --transport roce --at "4s fault link h1:p0-t0-0" -- '
    "timeout 60 ib_write_bw -u 3 --run_infinitely -D 2 --report_gbits {server}",
)


def log(results: Mapping[str, Any], run: Launched) -> Logs:
    found: Logs = results[run.folder]
    return found


LESSON = Lesson(
    6,
    "an RDMA program while a plane dies",
    "docs/start/lessons/6-verbs.md",
    (MRC, ROCE),
    (
        Question(
            "a",
            "Under MRC, what does the client send with both planes, in Gb/s of the network?",
            lambda results: log(results, MRC).rate(2),
            "The lines of rank 1 before the fault: BW average times the dilation. Or the Python "
            "lines of the page.",
            "Two ports of 100 Gb/s, less what headers and SACKs take.",
            unit="Gb/s",
            within=0.1,
        ),
        Question(
            "b",
            "And while plane p1 is gone?",
            lambda results: log(results, MRC).rate(1),
            "The line of rank 1 whose 2 s lie wholly between the fault and the heal. Or the "
            "Python lines of the page.",
            "Half. The program saw nothing else: its queue pair went on over the plane that was "
            "left.",
            unit="Gb/s",
            within=0.1,
        ),
        Question(
            "c",
            "How many queue pairs of the client used up their retries under MRC?",
            lambda results: log(results, MRC).failed(),
            "The last line that the Python lines print for mrc.",
            "Packets were lost, but no message.",
        ),
        Question(
            "d",
            "And under RoCE?",
            lambda results: log(results, ROCE).failed(),
            "The last line that the Python lines print for roce, and what rank 1 printed.",
            "Eight timeouts without an answer, and the adapter gives up. A collective library "
            "then ends the whole job.",
        ),
        Question(
            "e",
            "How many packets of the client were found lost under MRC?",
            lambda results: len(log(results, MRC).of("loss")),
            "The last line that the Python lines print for mrc.",
            "They were on their way in the plane that died. MRC sent them again over the other "
            "one.",
        ),
    ),
)
