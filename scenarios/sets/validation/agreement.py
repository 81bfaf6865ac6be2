"""Holds columns against each other: theory beside simulation, simulation beside emulation. A row per figure, a verdict per row. Pure.

The bounds are the issue's and fixed: 5 % for medians, 15 % for tails. A row within them agrees, whatever is known about it; one beyond
them needs a cause that ``causes`` knows, for this figure, this pair of columns and this direction.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.sets.validation.causes import CAUSES, Cause, Parting, cause_of
from scenarios.sets.validation.observed import BOUNDS, COUNT, FIGURES, Figure, Seen
from testbed.simulated import EMULATED, SIMULATED

THEORY = "theory"
AGREES, CHANCE, EXPLAINED, DIFFERS = "agrees", "by chance", "explained", "DIFFERS"
ALONE, NO_DATA = "alone", "no data"
"""One column has nothing to be held against; a world that was asked for lacks the figure."""
VERDICTS = (AGREES, CHANCE, EXPLAINED, DIFFERS, ALONE, NO_DATA)
SIGMAS = 2
"""Counts of packets, and figures of a failure, that lie nearer than so many standard deviations are not told apart [ours]."""


@dataclass(frozen=True)
class Row:
    """One figure of a case at a setting. ``partings``: those of its pairs of columns that were held against each other."""

    case: str
    where: str
    figure: Figure
    columns: dict[str, Seen]  # THEORY and worlds, those that are there
    partings: tuple[Parting, ...]
    verdict: str
    causes: tuple[Cause, ...] = ()

    def value(self, column: str) -> float | None:
        return self.columns[column].value if column in self.columns else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for validation.json."""
        return {
            "case": self.case,
            "where": self.where,
            "figure": self.figure.id,
            "title": self.figure.title,
            "unit": self.figure.unit,
            "bound": BOUNDS[self.figure.kind],
            **{name: self.value(name) for name in (THEORY, SIMULATED, EMULATED)},
            "n": {name: seen.n for name, seen in self.columns.items() if seen.n},
            "partings": [
                {"of": p.of, "from": p.against, "by": p.by if math.isfinite(p.by) else None, "beyond": p.beyond} for p in self.partings
            ],
            "verdict": self.verdict,
            "why": "; ".join(dict.fromkeys(cause.words for cause in self.causes)),
            "sections": list(dict.fromkeys(cause.section for cause in self.causes)),
        }


def rows_of(
    case: str, where: str, columns: Mapping[str, Mapping[str, Seen]], wanted: Sequence[str], causes: Sequence[Cause] = CAUSES
) -> list[Row]:
    """``columns``: THEORY and worlds -> figures. ``wanted``: worlds that should be there. Rows in the order of :data:`FIGURES`."""
    rows = []
    for id, figure in FIGURES.items():
        here = {name: figures[id] for name, figures in columns.items() if id in figures}
        if set(here) & set(wanted) and not _too_few(figure, columns, wanted, here):
            rows.append(_row(case, where, figure, here, wanted, causes))
    return rows


def _too_few(figure: Figure, columns: Mapping[str, Mapping[str, Seen]], wanted: Sequence[str], here: Mapping[str, Seen]) -> bool:
    """A percentile that one world has just not the samples for, though it has the median, is left out in all."""
    return figure.id in ("p90", "p99") and any(world not in here and "p50" in columns.get(world, {}) for world in wanted)


def _row(case: str, where: str, figure: Figure, here: dict[str, Seen], wanted: Sequence[str], causes: Sequence[Cause]) -> Row:
    partings = tuple(_parting(case, figure, of, against, here[of], here[against]) for of, against in pairs(here))
    beyond = [p for p in partings if p.beyond]
    if any(world not in here for world in wanted):
        return Row(case, where, figure, here, partings, NO_DATA)
    if not partings:
        return Row(case, where, figure, here, partings, ALONE)
    if not beyond:
        return Row(case, where, figure, here, partings, CHANCE if any(p.chance for p in partings) else AGREES)
    found = [cause_of(p, causes) for p in beyond]
    known = tuple(cause for cause in found if cause is not None)
    return Row(case, where, figure, here, partings, EXPLAINED if len(known) == len(beyond) else DIFFERS, known)


def pairs(here: Mapping[str, Seen]) -> list[tuple[str, str]]:
    """(column, what it is held against). Each world is held against theory where that says zero, or where it is the only world."""
    there = [world for world in (SIMULATED, EMULATED) if world in here]
    out = []
    if THEORY in here:
        alone = there if here[THEORY].value == 0 else there[:1]
        out += [(world, THEORY) for world in alone]
    if len(there) == 2:
        out.append((EMULATED, SIMULATED))
    return out


def _parting(case: str, figure: Figure, of: str, against: str, a: Seen, b: Seen) -> Parting:
    by = a.value / b.value - 1 if b.value else (0.0 if not a.value else math.inf)
    beyond = abs(by) > BOUNDS[figure.kind]
    chance = beyond and (by_chance(a.counts, b.counts) if figure.kind == COUNT else alike(a.values, b.values))
    return Parting(case, figure.id, of, against, by, beyond and not chance, chance)


def by_chance(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two worlds' counts of packets, over as many runs, may be of one process: then their difference says nothing.

    Sums of both are held against the deviation that independent events have, or that the runs of a world show among themselves if that is
    more: what comes in bursts varies more than events that do not know of each other.
    """
    if not a or len(a) != len(b):
        return False
    variance = sum(max(float(sum(counts)), len(counts) * _variance(counts)) for counts in (a, b))
    return abs(sum(a) - sum(b)) <= SIGMAS * math.sqrt(variance)


def alike(a: Sequence[float], b: Sequence[float]) -> bool:
    """The same for a figure that a run has once: whether two worlds' means are as near as their seeds' spread lets them be told apart."""
    if len(a) < 2 or len(b) < 2:
        return False
    error = math.sqrt(sum(statistics.variance(values) / len(values) for values in (a, b)))
    return abs(statistics.mean(a) - statistics.mean(b)) <= SIGMAS * error


def _variance(counts: Sequence[int]) -> float:
    return statistics.variance(counts) if len(counts) > 1 else 0.0


def counts_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Verdict -> rows, of plain ones."""
    return {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}
