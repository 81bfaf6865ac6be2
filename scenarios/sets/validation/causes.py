"""Known causes of differences between columns; docs/why/fidelity.md argues them, ``section`` by
section.

A cause holds for the figures, columns and direction that it names, and up to a size. Causes change
no bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Parting:
    """Column ``of`` deviates from ``against`` by ``by`` (relative). ``beyond``: by more than the
    bound, and not by ``chance``."""

    case: str
    figure: str
    of: str
    against: str
    by: float
    beyond: bool
    chance: bool = False


@dataclass(frozen=True)
class Cause:
    """``cases``, ``figures`` and ``of``: shell patterns with "|" between. ``low`` to ``high``: the
    deviation that the cause explains."""

    cases: str
    figures: str
    of: str
    against: str
    low: float
    high: float
    words: str
    section: str

    def explains(self, parting: Parting) -> bool:
        return (
            _matches(parting.case, self.cases)
            and _matches(parting.figure, self.figures)
            and (_matches(parting.of, self.of) and parting.against == self.against)
            and self.low <= parting.by <= self.high
        )


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split("|"))


_SPRAY = (
    "packets of hosts that send in step meet at an uplink and queue; with one host under each "
    "T0, the step is that of theory"
)
_MEET = (
    "packets of the two flows may meet at an uplink, which costs a frame's time; with some "
    "seeds most messages are hit"
)
_RINGS = "ring-50|ring-80|ring-100|link-failure"
_BUCKET = (
    "an idle port may catch up 0.5 ms of wall time, so packets that meet wait less; simulated "
    "ports with the same token bucket agree"
)
_FIND = "theory leaves out the step in which hosts find out, and those in which paths return"
_LAST = (
    "the last use of a dead path is random: of simulated seeds, 20 give 2.0 to 3.7 µs and two "
    "give 13.9 and 26.4 µs"
)
_MEAN = (
    "theory is a mean, by Little's law, and some messages wait for packets trimmed twice: the "
    "mean agrees, the median is below it"
)
_START = (
    "simulated hosts begin at one instant, emulated ones some milliseconds of wall time apart, "
    "and fewer of their first packets meet"
)
_LATE = (
    "late timers sometimes cost a full port more than its token bucket returns, and its queue grows"
)
CAUSES: tuple[Cause, ...] = (
    Cause(_RINGS, "p50|healthy", "*", "theory", 0.0, 0.20, _SPRAY, "Spraying in step"),
    Cause(_RINGS, "goodput", "*", "theory", -0.17, 0.0, _SPRAY, "Spraying in step"),
    Cause("idle", "p50", "*", "theory", 0.0, 0.08, _MEET, "Spraying in step"),
    Cause("idle", "goodput", "*", "theory", -0.08, 0.0, _MEET, "Spraying in step"),
    Cause(
        "link-failure",
        "cost",
        "*",
        "theory",
        -0.15,
        0.0,
        _SPRAY + ", so there is less to lose",
        "Spraying in step",
    ),
    Cause("link-failure", "cost", "*", "theory", 0.0, 0.35, _FIND, "Finding out"),
    Cause(
        _RINGS,
        "p50|p90|healthy|slowest",
        "emulated",
        "simulated",
        -0.10,
        0.0,
        _BUCKET,
        "What a port catches up",
    ),
    Cause(_RINGS, "goodput", "emulated", "simulated", 0.0, 0.10, _BUCKET, "What a port catches up"),
    Cause(
        "link-failure",
        "found",
        "emulated",
        "simulated",
        -0.30,
        0.0,
        _BUCKET + ", and losses show sooner",
        "What a port catches up",
    ),
    Cause("link-failure", "left", "emulated", "simulated", -0.50, 0.90, _LAST, "The last packet"),
    Cause("link-failure", "left", "slower", "emulated", -0.50, 0.90, _LAST, "The last packet"),
    Cause(
        "link-failure", "found|cost", "slower", "emulated", -0.10, 0.10, _LAST, "The last packet"
    ),
    Cause("incast", "p50", "*", "theory", -0.10, 0.0, _MEAN, "A median beside a mean"),
    Cause(
        "link-failure",
        "marked",
        "emulated",
        "simulated",
        0.0,
        0.90,
        _BUCKET + ", and more are marked",
        "What a port catches up",
    ),
    Cause(
        "all-to-all",
        "marked",
        "emulated",
        "simulated",
        -0.60,
        0.0,
        _BUCKET + ", and fewer are marked",
        "What a port catches up",
    ),
    Cause(
        "incast",
        "trimmed",
        "emulated",
        "simulated",
        0.0,
        0.15,
        _BUCKET + ", and more are trimmed",
        "What a port catches up",
    ),
    Cause(
        "permutation", "marked", "emulated", "simulated", -0.60, 0.0, _START, "The first packets"
    ),
    Cause(
        "permutation", "marked", "emulated", "simulated", 0.0, 10.0, _LATE, "What a port catches up"
    ),
    Cause(
        "ring-roce",
        "goodput",
        "*",
        "theory",
        -0.12,
        0.0,
        "where the hash puts two flows on one cable, DCQCN cuts their rates and needs some steps "
        "to recover",
        "DCQCN's saw",
    ),
)


def cause_of(parting: Parting, causes: Sequence[Cause] = CAUSES) -> Cause | None:
    return next((cause for cause in causes if cause.explains(parting)), None)
