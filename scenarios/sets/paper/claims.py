"""What the paper claims, what is seen, and the verdict; and the figures of stored summaries that verdicts rest on. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

AGREES, DIFFERS, CANNOT, NO_DATA = "agrees", "differs", "cannot be emulated here", "no data"
VERDICTS = (AGREES, DIFFERS, CANNOT, NO_DATA)

Run = Mapping[str, Any]
"""An entry of summary.json's ``runs``."""
Figure = str | Callable[[Run], float | None]
"""A dotted key of a run's entry, or a function of it."""


@dataclass(frozen=True)
class Claim:
    """``text``: the paper's own words if ``quoted``, else its content. ``source``: section or figure of the paper."""

    text: str
    source: str
    quoted: bool = False


@dataclass(frozen=True)
class Row:
    """One claim beside what was seen. ``asked``: how we read the claim, thresholds [ours]; ``why``: of a verdict that is not "agrees"."""

    claim: Claim
    asked: str
    seen: str
    verdict: str
    ideal: str = ""  # what theory says, where it does
    why: str = ""
    value: float | None = None
    unit: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for paper.json."""
        return {
            "claim": self.claim.text,
            "source": self.claim.source,
            "quoted": self.claim.quoted,
            "asked": self.asked,
            "seen": self.seen,
            "value": self.value if self.value is None or math.isfinite(self.value) else None,
            "unit": self.unit,
            "ideal": self.ideal,
            "verdict": self.verdict,
            "why": self.why,
        }


def judged(
    claim: Claim, asked: str, seen: str, ok: bool | None, *, ideal: str = "", why: str = "", value: float | None = None, unit: str = ""
) -> Row:
    """``ok`` None: there is no figure to judge by. ``why`` is told where the verdict is not "agrees"."""
    if ok is None:
        return Row(claim, asked, seen or "–", NO_DATA, ideal, "no run that ended well has this figure", value, unit)
    return Row(claim, asked, seen, AGREES if ok else DIFFERS, ideal, "" if ok else why, value, unit)


def cannot(claim: Claim, why: str, seen: str = "–", ideal: str = "", value: float | None = None, unit: str = "") -> Row:
    """What this testbed cannot show; ``seen`` says what it does show, if anything."""
    return Row(claim, "", seen, CANNOT, ideal, why, value, unit)


def overall(rows: Sequence[Row]) -> str:
    """Of a figure: "differs" if any row does, else "no data" if any lacks it, else "agrees" if any does."""
    verdicts = {row.verdict for row in rows}
    return next((v for v in (DIFFERS, NO_DATA, AGREES) if v in verdicts), CANNOT if rows else NO_DATA)


@dataclass(frozen=True)
class Evidence:
    """Summaries of a figure's parts, those that are there."""

    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def runs(
        self, part: str, transport: str, where: Mapping[str, Any] | None = None, placement: str | None = None, ended: bool = True
    ) -> list[Run]:
        """Of a transport at a setting (those keys that ``where`` has). ``ended``: only those that ended well."""
        return [
            run
            for run in self.parts.get(part, {}).get("runs", ())
            if run["transport"] == transport
            and placement in (None, run["placement"])
            and all(run.get("settings", {}).get(key) == value for key, value in (where or {}).items())
            and (not ended or run["outcome"] == "done")
        ]

    def median(
        self,
        part: str,
        transport: str,
        figure: Figure,
        where: Mapping[str, Any] | None = None,
        placement: str | None = None,
        ended: bool = True,
    ) -> float | None:
        """Over the seeds (and placements, unless one is given); None if no run has the figure."""
        found = values(self.runs(part, transport, where, placement, ended), figure)
        return statistics.median(found) if found else None

    def settings(self, part: str, key: str) -> list[Any]:
        """The values that a swept key has in a part's runs, in order."""
        found = [run.get("settings", {}).get(key) for run in self.parts.get(part, {}).get("runs", ())]
        return [value for value in dict.fromkeys(found) if value is not None]


def value_of(run: Run, figure: Figure) -> float | None:
    """A figure of a run; None where it has none."""
    if callable(figure):
        return figure(run)
    at: Any = run
    for key in figure.split("."):
        try:
            at = at[int(key)] if isinstance(at, list) else at[key]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return float(at) if isinstance(at, (int, float)) and not isinstance(at, bool) else None


def values(runs: Iterable[Run], figure: Figure) -> list[float]:
    """A figure of each run that has it."""
    found = (value_of(run, figure) for run in runs)
    return [value for value in found if value is not None]


def bus_share(run: Run) -> float | None:
    """Bus bandwidth over what theory allows on the healthy fabric; of a run that ran out of time that of the steps it did finish, or 0."""
    if not run.get("ideal_busbw_bps"):
        return None
    if run["busbw_bps"] is None:
        return 0.0 if run["outcome"] in ("timeout", "failed") else None
    return float(run["busbw_bps"]) / float(run["ideal_busbw_bps"])


def all_hold(values: Sequence[bool | None]) -> bool | None:
    """Whether all hold; None if any is not known and none fails."""
    if any(value is False for value in values):
        return False
    return None if not values or any(value is None for value in values) else True


def at_least(value: float | None, bound: float) -> bool | None:
    return None if value is None else value >= bound


def at_most(value: float | None, bound: float) -> bool | None:
    return None if value is None else value <= bound


def percent(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def number(value: float | None, form: str = ".1f") -> str:
    if value is not None and math.isinf(value):
        return "never"
    return "–" if value is None else format(value, form)


def or_never(value: float | None, awaited: bool) -> float | None:
    """A time that something took: infinite if it was awaited and did not come, None if nobody waited for it."""
    return math.inf if value is None and awaited else value
