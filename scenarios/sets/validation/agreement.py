"""Compares theory with simulation, simulation with emulation: a verdict per figure.

A row within the fixed bounds agrees, whatever is known about it. A row beyond them needs a cause
from ``causes`` for this figure, this pair of columns and this direction.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.sets.validation.cases import SLOWER
from scenarios.sets.validation.causes import CAUSES, Cause, Parting, cause_of
from scenarios.sets.validation.observed import BOUNDS, COUNT, FIGURES, Figure, Seen
from testbed.world import EMULATED, SIMULATED

THEORY = "theory"
AGREES, CHANCE, EXPLAINED, DIFFERS = "agrees", "by chance", "explained", "DIFFERS"
ALONE, NO_DATA = "alone", "no data"
"""ALONE: nothing to compare with. NO_DATA: a requested world lacks the figure."""
VERDICTS = (AGREES, CHANCE, EXPLAINED, DIFFERS, ALONE, NO_DATA)
SIGMAS = 2
"""Standard deviations within which counts, and figures of a failure, are equal [ours]."""
IN_BURSTS = 4
"""Variance of a count over its mean where a single run per world cannot show it [ours]: 4.0 for the
trims of ``incast``, 2.0 for the marks of ``link-failure`` (quick forms, simulated, seeds 1 to 20
and 1 to 12)."""


@dataclass(frozen=True)
class Row:
    case: str
    where: str
    figure: Figure
    columns: dict[str, Seen]  # THEORY and worlds, as far as available
    partings: tuple[Parting, ...]
    verdict: str
    causes: tuple[Cause, ...] = ()

    def value(self, column: str) -> float | None:
        return self.columns[column].value if column in self.columns else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "where": self.where,
            "figure": self.figure.id,
            "title": self.figure.title,
            "unit": self.figure.unit,
            "bound": BOUNDS[self.figure.kind],
            **{name: self.value(name) for name in (THEORY, SIMULATED, EMULATED, SLOWER)},
            "n": {name: seen.n for name, seen in self.columns.items() if seen.n},
            "partings": [
                {
                    "of": p.of,
                    "from": p.against,
                    "by": p.by if math.isfinite(p.by) else None,
                    "beyond": p.beyond,
                }
                for p in self.partings
            ],
            "verdict": self.verdict,
            "why": "; ".join(dict.fromkeys(cause.words for cause in self.causes)),
            "sections": list(dict.fromkeys(cause.section for cause in self.causes)),
        }


def rows_of(
    case: str,
    where: str,
    columns: Mapping[str, Mapping[str, Seen]],
    wanted: Sequence[str],
    causes: Sequence[Cause] = CAUSES,
) -> list[Row]:
    """``columns``: THEORY and worlds -> figures. ``wanted``: worlds that must have the figure."""
    rows = []
    for id, figure in FIGURES.items():
        available = {name: figures[id] for name, figures in columns.items() if id in figures}
        if set(available) & set(wanted) and not _too_few(figure, columns, wanted, available):
            rows.append(_row(case, where, figure, available, wanted, causes))
    return rows


def _too_few(
    figure: Figure,
    columns: Mapping[str, Mapping[str, Seen]],
    wanted: Sequence[str],
    available: Mapping[str, Seen],
) -> bool:
    """Whether a world has too few samples for this percentile, though enough for the median. Then
    all columns drop it."""
    return figure.id in ("p90", "p99") and any(
        world not in available and "p50" in columns.get(world, {}) for world in wanted
    )


def _row(
    case: str,
    where: str,
    figure: Figure,
    available: dict[str, Seen],
    wanted: Sequence[str],
    causes: Sequence[Cause],
) -> Row:
    partings = tuple(
        _parting(case, figure, a, b, available[a], available[b]) for a, b in pairs(available)
    )
    beyond = [p for p in partings if p.beyond]
    if any(world not in available for world in wanted):
        return Row(case, where, figure, available, partings, NO_DATA)
    if not partings:
        return Row(case, where, figure, available, partings, ALONE)
    if not beyond:
        return Row(
            case,
            where,
            figure,
            available,
            partings,
            CHANCE if any(p.chance for p in partings) else AGREES,
        )
    matches = [cause_of(p, causes) for p in beyond]
    known_causes = tuple(cause for cause in matches if cause is not None)
    return Row(
        case,
        where,
        figure,
        available,
        partings,
        EXPLAINED if len(known_causes) == len(beyond) else DIFFERS,
        known_causes,
    )


def pairs(columns: Mapping[str, Seen]) -> list[tuple[str, str]]:
    """Return (column, reference). Both worlds are compared with theory where it says zero, else the
    first only; emulated runs at a larger dilation with usual ones."""
    worlds = [world for world in (SIMULATED, EMULATED) if world in columns]
    result = []
    if THEORY in columns:
        compared = worlds if columns[THEORY].value == 0 else worlds[:1]
        result += [(world, THEORY) for world in compared]
    if len(worlds) == 2:
        result.append((EMULATED, SIMULATED))
    if SLOWER in columns and EMULATED in columns:
        result.append((SLOWER, EMULATED))
    return result


def _parting(case: str, figure: Figure, column: str, reference: str, a: Seen, b: Seen) -> Parting:
    deviation = a.value / b.value - 1 if b.value else (0.0 if not a.value else math.inf)
    beyond = abs(deviation) > BOUNDS[figure.kind]
    chance = beyond and (
        by_chance(a.counts, b.counts) if figure.kind == COUNT else alike(a.values, b.values)
    )
    return Parting(case, figure.id, column, reference, deviation, beyond and not chance, chance)


def by_chance(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether packet counts of two worlds, over equally many runs, may come from one random
    process.

    The difference of the sums is compared with the standard deviation of independent events, or of
    a world's runs if larger: bursts vary more. One run per world is taken to vary :data:`IN_BURSTS`
    times as much.
    """
    if not a or len(a) != len(b):
        return False
    if len(a) == 1:
        variance = float(IN_BURSTS * sum((*a, *b)))
    else:
        variance = sum(
            max(float(sum(counts)), len(counts) * statistics.variance(counts)) for counts in (a, b)
        )
    return abs(sum(a) - sum(b)) <= SIGMAS * math.sqrt(variance)


def alike(a: Sequence[float], b: Sequence[float]) -> bool:
    """As :func:`by_chance`, for a figure that a run has once."""
    if len(a) < 2 or len(b) < 2:
        return False
    error = math.sqrt(sum(statistics.variance(values) / len(values) for values in (a, b)))
    return abs(statistics.mean(a) - statistics.mean(b)) <= SIGMAS * error


def counts_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}
