"""A statement of figures.toml, and the verdict on it: the numbers it names, put into its texts and held against its condition. Pure."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from string import Formatter
from typing import Annotated, Any

import msgspec

from scenarios.sets.paper import collectives, failures, lossless, nic_ports, one_path, operations, pairs, sizing
from scenarios.sets.paper.claims import AGREES, CANNOT, DIFFERS, NO_DATA, Evidence, Row, all_hold, number, ratio
from testbed.results.summary import Run
from testbed.terminal import duration
from topologies.structs import one_of, text

Places = Mapping[str, Any]
"""Name -> number or text: what a statement's condition and texts may name."""

OF_RUNS: dict[str, Callable[[Run], float | None]] = {
    function.__name__: function
    for function in (
        *(failures.on_dead_us, failures.beyond_theory, failures.lost_share, failures.worst_ev, failures.left_share, failures.slowest_lower),
        *(failures.lost_per_rank, failures.back_share, failures.out_first, failures.out_last, nic_ports.settled_down, nic_ports.settled_up),
        *(one_path.losses_per_qp, one_path.per_dead_path, one_path.found_rtts, one_path.used_after_loss, one_path.backups),
        *(one_path.evs_back, one_path.separation_time, operations.left_of_ideal, operations.named_ms),
    )
}
"""Figures of a run that are more than a key of it, by the name that ``numbers`` has."""
OF_PARTS: dict[str, Callable[[Evidence, str], Places]] = {
    function.__name__: function
    for function in (
        *(failures.ride, nic_ports.ladder, one_path.dead_paths, one_path.afterwards, operations.errors, pairs.any_loss, pairs.uplinks),
        *(collectives.send_recv, collectives.ring, collectives.all_to_all, collectives.ahead, lossless.profiles, sizing.sizes),
    )
}
"""What no median gives, by the name that ``by`` has: (evidence, part) -> places. One that saw nothing gives no more than the value."""

_ARITHMETIC: dict[str, Callable[[Any, Any], float | None]] = {"/": ratio, "-": operator.sub, "+": operator.add}
_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq}
_CONDITION = rf"\w+ (?:{'|'.join(_COMPARE)}) [\w./]+"
_FORM = re.compile(r"(?P<before>.*?)(?P<form>[+,]*\.\d[f%])(?P<after>.*)")


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What figures.toml says of a part of a claim; its head explains the keys. Texts have places for what was measured."""

    claim: int = 0
    text: str = ""
    asked: str = ""
    seen: str = ""
    ideal: str = ""
    unit: str = ""
    why: str = ""
    cannot: str = ""
    like: str = ""
    who: str = ""
    part: str = ""
    by: Annotated[str, one_of(("", *OF_PARTS))] = ""
    numbers: dict[str, str] = {}
    holds: Annotated[str, text(f"(?:{_CONDITION}(?:, {_CONDITION})*)?", "conditions like 'value >= 0.98, after > before'")] = ""

    def judged(self, evidence: Evidence) -> Row:
        """Return the row with the verdict. Raises KeyError for a place that nothing fills."""
        part = self.part or "main"
        places = dict(OF_PARTS[self.by](evidence, part)) if self.by else {}
        shown = bool(self.seen) and (not self.by or bool(places.keys() - {"value"}))
        for name, words in self.numbers.items():
            places[name] = _number(words, evidence, part, places)

        def filled(text: str) -> str:
            return _Texts().vformat(text, (), places)

        ok = _held(self.holds, places) if self.holds and shown else None
        if self.cannot:
            verdict, why = CANNOT, self.cannot
        elif ok is None:
            verdict, why = NO_DATA, "no run that ended well has this figure"
        else:
            verdict, why = (AGREES, "") if ok else (DIFFERS, filled(self.why))
        seen = filled(self.seen) if shown else ""
        return Row(
            self.claim, self.text, filled(self.asked), seen or "–", places.get("value"), self.unit, filled(self.ideal), verdict, why
        )  # fmt: skip


def _number(words: str, evidence: Evidence, part: str, places: Places) -> Any:
    """Return what ``numbers`` names: a place, arithmetic of two, or the median of a transport's figure where settings are so."""
    match words.split():
        case [name]:
            return places[name]
        case [left, ("/" | "-" | "+") as sign, right]:
            a, b = places[left], places[right]
            return None if a is None or b is None else _ARITHMETIC[sign](a, b)
        case [transport, figure, *settings]:
            where = dict(setting.split("=", 1) for setting in settings)
            return evidence.median(part, transport, OF_RUNS.get(figure, figure), where)
    raise ValueError(f"numbers: {words!r} is no number")


def _held(conditions: str, places: Places) -> bool | None:
    """Whether all conditions hold; None if a number is missing and none fails."""
    results = []
    for condition in conditions.split(", "):
        left, how, right = condition.split()
        a, b = places[left], places[right] if right in places else float(Fraction(right))
        results.append(None if a is None or b is None else bool(_COMPARE[how](a, b)))
    return all_hold(results)


class _Texts(Formatter):
    def format_field(self, value: Any, form: str) -> str:
        """``.1%``, ``.0f`` and the like of a number or None, and words around it that need a number; ``rtts``; ``us`` and ``duration`` of
        ns; no form: as Python writes the value."""
        match form:
            case "":
                return str(value)
            case "rtts":
                return number(value, ".0f") + ("" if value is None or math.isinf(value) else " base RTTs")
            case "duration":
                return duration(value)
        if form.endswith("us"):
            return number(ratio(value, 1e3), f"{form.removesuffix('us')}f")
        if (found := _FORM.fullmatch(form)) and (found["before"] or found["after"]):
            return "" if value is None else f"{found['before']}{number(value, found['form'])}{found['after']}"
        return number(value, form)
