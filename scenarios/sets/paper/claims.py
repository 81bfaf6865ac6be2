"""The paper's claims, the results here, and the verdicts; and the figures of stored summaries that verdicts depend on. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    """A statement of the paper, in our words, under the number of the claim that it is part of (registry.CLAIMS)."""

    number: int
    text: str


@dataclass(frozen=True)
class Row:
    """One claim with its result. ``asked``: how we read the claim, thresholds [ours]; ``why``: reason for a verdict other than "agrees"."""

    claim: Claim
    asked: str
    seen: str
    verdict: str
    ideal: str = ""  # the value of theory, if there is one
    why: str = ""
    value: float | None = None
    unit: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for paper.json."""
        return {
            "number": self.claim.number,
            "claim": self.claim.text,
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
    """Make a row with its verdict. ``ok`` None: there is no figure to judge. ``why`` is kept if the verdict is not "agrees"."""
    if ok is None:
        return Row(claim, asked, seen or "–", NO_DATA, ideal, "no run that ended well has this figure", value, unit)
    return Row(claim, asked, seen, AGREES if ok else DIFFERS, ideal, "" if ok else why, value, unit)


def cannot(claim: Claim, why: str, seen: str = "–", ideal: str = "", value: float | None = None, unit: str = "") -> Row:
    """Make a row for what this testbed cannot show; ``seen`` says what it does show, if anything."""
    return Row(claim, "", seen, CANNOT, ideal, why, value, unit)


def overall(verdicts: Collection[str]) -> str:
    """Return the verdict on several rows: "differs" if any does, else "no data" if any lacks data, else "agrees" if any agrees."""
    return next((v for v in (DIFFERS, NO_DATA, AGREES) if v in verdicts), CANNOT if verdicts else NO_DATA)


@dataclass(frozen=True)
class Evidence:
    """Available summaries of a figure's parts."""

    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def runs(
        self, part: str, transport: str, where: Mapping[str, Any] | None = None, placement: str | None = None, ended: bool = True
    ) -> list[Run]:
        """Return the runs of a transport at a setting (the keys in ``where``). ``ended``: only those that ended well."""
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
        """Return the median over the seeds (and placements, unless one is given); None if no run has the figure."""
        samples = values(self.runs(part, transport, where, placement, ended), figure)
        return statistics.median(samples) if samples else None

    def settings(self, part: str, key: str) -> list[Any]:
        """Return the values of a swept key in a part's runs, in order."""
        swept_values = [run.get("settings", {}).get(key) for run in self.parts.get(part, {}).get("runs", ())]
        return [value for value in dict.fromkeys(swept_values) if value is not None]


def value_of(run: Run, figure: Figure) -> float | None:
    """Return a figure of a run; None if it has none."""
    if callable(figure):
        return figure(run)
    node: Any = run
    for key in figure.split("."):
        try:
            node = node[int(key)] if isinstance(node, list) else node[key]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return float(node) if isinstance(node, (int, float)) and not isinstance(node, bool) else None


def values(runs: Iterable[Run], figure: Figure) -> list[float]:
    """Return the figure of each run that has it."""
    candidates = (value_of(run, figure) for run in runs)
    return [value for value in candidates if value is not None]


def bus_share(run: Run) -> float | None:
    """Return bus bandwidth over what theory allows on the healthy fabric. A run out of time counts with its finished steps, or 0."""
    if not run.get("ideal_busbw_bps"):
        return None
    if run["busbw_bps"] is None:
        return 0.0 if run["outcome"] in ("timeout", "failed") else None
    return float(run["busbw_bps"]) / float(run["ideal_busbw_bps"])


def all_hold(values: Sequence[bool | None]) -> bool | None:
    """Whether all conditions hold; None if one is unknown and none fails."""
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


def rtts(value: float | None) -> str:
    """A time in base RTTs, with its unit where it has one."""
    return number(value, ".0f") if value is None or math.isinf(value) else f"{value:.0f} base RTTs"


def or_never(value: float | None, awaited: bool) -> float | None:
    """Return a duration: infinite if the event was awaited but did not happen, None if it was not awaited."""
    return math.inf if value is None and awaited else value
