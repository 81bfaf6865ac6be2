"""Verdicts on statements, and the stored figures that they depend on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from testbed.results.summary import Run, Summary
from testbed.results.values import number_at

AGREES, DIFFERS, CANNOT, NO_DATA = "agrees", "differs", "cannot be emulated here", "no data"
AT_THRESHOLD, COMPUTED = "at the threshold", "computed"
VERDICTS = (AGREES, DIFFERS, AT_THRESHOLD, COMPUTED, CANNOT, NO_DATA)

Figure = str | Callable[[Run], float | None]
"""A dotted key of a run's entry, or a function of it."""


class Row(msgspec.Struct, frozen=True):
    """A judged statement, as in paper.json. ``low`` and ``high``: interval over ``n`` seeds, None
    below two. ``why``: reason for a verdict other than "agrees"."""

    number: int  # of the claim
    claim: str  # the statement
    asked: str
    seen: str
    value: float | None
    unit: str
    ideal: str
    verdict: str
    why: str
    low: float | None = None
    high: float | None = None
    n: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: paper.json has no infinity."""
        values = msgspec.structs.asdict(self).items()
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in values
        }


def overall(verdicts: Collection[str]) -> str:
    """Return the first that any row has: differs, no data, at the threshold, agrees, computed."""
    order = (DIFFERS, NO_DATA, AT_THRESHOLD, AGREES, COMPUTED)
    return next(
        (verdict for verdict in order if verdict in verdicts), CANNOT if verdicts else NO_DATA
    )


@dataclass(frozen=True)
class Evidence:
    parts: Mapping[str, Summary] = field(default_factory=dict)
    asked: dict[str, Run] = field(default_factory=dict, compare=False)

    def unsettled(self) -> str:
        """Count the asked runs in which DCQCN's rates were not level; "" if none."""
        found = [run.dcqcn.level for run in self.asked.values() if run.dcqcn]
        return (
            f"; DCQCN unsettled in {len(found) - sum(found)} of {len(found)} runs"
            if not all(found)
            else ""
        )

    def by_seed(self) -> list[Evidence]:
        seeds = sorted({run.seed for summary in self.parts.values() for run in summary.runs})
        return [
            Evidence(
                {
                    name: replace(summary, runs=[run for run in summary.runs if run.seed == seed])
                    for name, summary in self.parts.items()
                }
            )
            for seed in seeds
        ]

    def runs(
        self, part: str, transport: str, where: Mapping[str, Any] | None = None, ended: bool = True
    ) -> list[Run]:
        """``where``: keys of a setting, or "placement". ``ended``: only runs that ended well."""
        found = [
            run
            for run in self._runs(part)
            if run.transport == transport
            and all(
                {**run.settings, "placement": run.placement}.get(key) == value
                for key, value in (where or {}).items()
            )
            and (not ended or run.outcome == "done")
        ]
        self.asked.update((f"{part}/{run.run}", run) for run in found)
        return found

    def _runs(self, part: str) -> list[Run]:
        return self.parts[part].runs if part in self.parts else []

    def median(
        self,
        part: str,
        transport: str,
        figure: Figure,
        where: Mapping[str, Any] | None = None,
        ended: bool = True,
    ) -> float | None:
        """Return the median over seeds and, unless one is given, placements."""
        samples = values(self.runs(part, transport, where, ended), figure)
        return statistics.median(samples) if samples else None

    def settings(self, part: str, key: str) -> list[Any]:
        swept_values = [run.settings.get(key) for run in self._runs(part)]
        return [value for value in dict.fromkeys(swept_values) if value is not None]


def value_of(run: Run, figure: Figure) -> float | None:
    return figure(run) if callable(figure) else number_at(run, figure)


def values(runs: Iterable[Run], figure: Figure) -> list[float]:
    candidates = (value_of(run, figure) for run in runs)
    return [value for value in candidates if value is not None]


def bus_share(run: Run) -> float | None:
    """Return bus bandwidth over the healthy ideal. A run out of time counts with its finished
    steps, or 0."""
    if not run.ideal_busbw_bps:
        return None
    if run.busbw_bps is None:
        return 0.0 if run.outcome in ("timeout", "failed") else None
    return run.busbw_bps / run.ideal_busbw_bps


def ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b


def number(value: float | None, form: str) -> str:
    """A form that ends in % writes a share in per cent."""
    if value is not None and math.isinf(value):
        return "never"
    text = "–" if value is None else format(value, form)
    return f"{text[:-1]} %" if text.endswith("%") else text


def percent(value: float | None, digits: int = 0) -> str:
    return number(value, f".{digits}%")


def or_never(value: float | None, awaited: bool) -> float | None:
    """Return infinity for an event awaited that did not happen, None for one not awaited."""
    return math.inf if value is None and awaited else value
