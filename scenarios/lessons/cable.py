"""Lesson 2: a cable of 32 that leave a rack dies for good under an all-reduce."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.figures.results import Results
from scenarios.lessons.question import Lesson, Planned, Question, figure
from testbed.results.summary import Run

RUN = Planned(
    "lesson-2",
    "mrcbed run one-cable --world simulated --seed 1 --all --out results/lesson-2",
    "one-cable",
    ("mrc", "roce"),
)


def of(results: Mapping[str, Results], transport: str) -> Run:
    return results[RUN.folder].run(transport)


def what_ended_the_wait(results: Mapping[str, Results]) -> str:
    run = of(results, "roce")
    waited_on = (
        figure(run, "step_time_ns.max") > 2 * figure(run, "reconvergence_ns")
        and run.timeouts.rto > 0
    )
    return "timer" if waited_on else "route"


LESSON = Lesson(
    2,
    "a cable dies, MRC and RoCE",
    "docs/start/lessons/2-cable.md",
    (RUN,),
    (
        Question(
            "a",
            "Under MRC, how long is a healthy step, in µs?",
            lambda results: figure(of(results, "mrc"), "failure_cost.healthy_step_ns") / 1e3,
            "The table 'What the failure cost', row mrc, column 'healthy step'.",
            "It is the median of the steps before the cable died. All later figures are measured "
            "against it.",
            unit="µs",
            within=0.03,
        ),
        Question(
            "b",
            "Under MRC, how many healthy steps long is the slowest step after the failure?",
            lambda results: figure(of(results, "mrc"), "failure_cost.slowdown"),
            "The table 'What the failure cost', row mrc, column 'slowest step'.",
            "Part of this is not the failure but the missing cable: all four planes get the same "
            "load, so each gets what the plane with the dead cable can carry, 7 of 8 parts. 8 / "
            "7 = 1.14.",
            unit="×",
            within=0.05,
        ),
        Question(
            "c",
            "Under RoCE, how long is the slowest step, in ms?",
            lambda results: figure(of(results, "roce"), "step_time_ns.max") / 1e6,
            "The table 'all-reduce under each transport', row roce, column 'slowest'. It is in "
            "µs; the answer is in ms.",
            "A step of a few hundred µs became hundreds of times as long. In an all-reduce one "
            "late rank makes all ranks wait.",
            unit="ms",
            within=0.03,
        ),
        Question(
            "d",
            "The network re-routes RoCE after 10 ms. What ended RoCE's slowest step, that new "
            "route or RoCE's own retry timer? Answer route or timer.",
            what_ended_the_wait,
            "Compare your answer c with the 10 ms of the route, and with the timer: RoCE waits "
            "67 ms for an acknowledgement.",
            "A lost packet in the middle of a message is found when the next one arrives. If the "
            "last packet is lost, nothing follows it: only the timer finds that. The new route "
            "was there long before.",
            choices=("route", "timer"),
        ),
        Question(
            "e",
            "Under MRC, how many data packets were found lost on the dead cable?",
            lambda results: sum(fault.lost for fault in of(results, "mrc").failovers),
            "The table 'Faults', row mrc, column 'packets lost there'.",
            "They were on the cable when it died, or left before their senders had noticed. MRC "
            "sent each again, on another path.",
        ),
        Question(
            "f",
            "Under MRC, how many base RTTs after the failure had the last sender left the dead "
            "paths? (The table has subtracted one rotation.)",
            lambda results: figure(of(results, "mrc"), "last_on_dead_over_rotation"),
            "The table 'Faults', row mrc, column 'dead paths left after [RTTs]'.",
            "Nobody told the senders. Each one saw that packets on a path were not acknowledged "
            "while later ones on other paths were.",
            unit="RTTs",
            slack=0.1,
        ),
    ),
)
