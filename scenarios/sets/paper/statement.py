"""Judges a statement of figures.toml: measured numbers fill its texts and meet its condition."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from string import Formatter
from typing import Annotated, Any

import msgspec

from scenarios.figures.stats import interval_name, median_interval
from scenarios.sets.paper import (
    collectives,
    failures,
    lossless,
    nic_ports,
    one_path,
    operations,
    pairs,
    sizing,
)
from scenarios.sets.paper.claims import (
    AGREES,
    AT_THRESHOLD,
    CANNOT,
    DIFFERS,
    NO_DATA,
    Evidence,
    Row,
    number,
    overall,
    ratio,
)
from testbed.results.summary import Run
from testbed.terminal import duration
from topologies.structs import one_of, text

Places = Mapping[str, Any]
"""Name -> number or text: what a statement's condition and texts may name."""

OF_RUNS: dict[str, Callable[[Run], float | None]] = {
    function.__name__: function
    for function in (
        *(
            failures.on_dead_us,
            failures.beyond_theory,
            failures.lost_share,
            failures.worst_ev,
            failures.left_share,
            failures.lower_during,
        ),
        *(
            failures.found_us,
            failures.delivered_us,
            failures.flaps_had,
            failures.flap_us,
            failures.packets_a_flap,
            failures.longer,
        ),
        *(
            failures.touched_share,
            operations.beside_share,
            operations.rotation_packets,
            collectives.raw_flows,
        ),
        *(
            failures.lost_per_rank,
            failures.back_share,
            failures.out_first,
            failures.out_last,
            nic_ports.settled_down,
            nic_ports.settled_up,
        ),
        *(
            one_path.losses_per_qp,
            one_path.per_dead_path,
            one_path.found_rtts,
            one_path.used_after_loss,
            one_path.backups,
        ),
        *(
            one_path.evs_back,
            one_path.separation_time,
            operations.left_of_ideal,
            operations.named_ms,
        ),
    )
}
"""Figures that are more than a key of a run, by the name in ``numbers``."""
OF_PARTS: dict[str, Callable[[Evidence, str], Places]] = {
    function.__name__: function
    for function in (
        *(
            failures.ride,
            nic_ports.ladder,
            one_path.dead_paths,
            one_path.afterwards,
            operations.errors,
            pairs.any_loss,
            pairs.uplinks,
        ),
        *(
            collectives.send_recv,
            collectives.ring,
            collectives.all_to_all,
            collectives.ahead,
            lossless.profiles,
            sizing.sizes,
        ),
    )
}
"""What no median gives, by the name in ``by``: (evidence, part) -> places. One that saw nothing
gives only the value."""

ARITHMETIC: dict[str, Callable[[Any, Any], float | None]] = {
    "/": ratio,
    "-": operator.sub,
    "+": operator.add,
}
_COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}
_CONDITION = rf"\w+ (?:{'|'.join(_COMPARE)}) [\w./]+"
_FORM = re.compile(r"(?P<before>.*?)(?P<form>[+,]*\.\d[f%])(?P<after>.*)")


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The head of figures.toml explains the keys. Texts have places for what was measured."""

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
    holds: Annotated[
        str,
        text(
            f"(?:{_CONDITION}(?:, {_CONDITION})*)?",
            "conditions like 'value >= 0.98, after > before'",
        ),
    ] = ""

    def judged(self, evidence: Evidence) -> Row:
        """Raises KeyError for a place that nothing fills."""
        asked = Evidence(evidence.parts)
        places = self._places(asked)
        seeds = [self._places(one) for one in evidence.by_seed()]
        shown = self._shows(places)
        each = [own.get("value") for own in seeds]
        over_seeds = [value for value in each if value is not None and math.isfinite(value)]
        low, high = median_interval(over_seeds) or (None, None)

        def filled(text: str) -> str:
            return _Texts().vformat(text, (), places)

        judged = [seed for seed in seeds if self._shows(seed)]
        conditions = self.holds.split(", ") if shown and not self.cannot else []
        verdict = (
            CANNOT
            if self.cannot
            else overall([_state(condition, places, judged) for condition in conditions])
        )
        near = (
            f"the {interval_name(len(over_seeds))} over seeds lies on both sides of the bound; {{}}"
        )
        why = {
            CANNOT: self.cannot,
            NO_DATA: "no run that ended well has this figure",
            AT_THRESHOLD: near.format(filled(self.why)),
            DIFFERS: filled(self.why),
        }.get(verdict, "")
        seen = filled(self.seen) + asked.unsettled() if shown else ""
        return Row(
            self.claim,
            self.text,
            filled(self.asked),
            seen or "–",
            places.get("value"),
            self.unit,
            filled(self.ideal),
            verdict,
            why,
            low,
            high,
            len(over_seeds),
        )

    def _places(self, evidence: Evidence) -> dict[str, Any]:
        part = self.part or "main"
        places = dict(OF_PARTS[self.by](evidence, part)) if self.by else {}
        for name, words in self.numbers.items():
            places[name] = _number(words, evidence, part, places)
        return places

    def _shows(self, places: Places) -> bool:
        return bool(self.seen) and (not self.by or bool(places.keys() - {"value", *self.numbers}))


def _number(words: str, evidence: Evidence, part: str, places: Places) -> Any:
    """Return a place, arithmetic of two, or the median of a transport's figure where settings are
    so."""
    match words.split():
        case [name]:
            return places[name]
        case [left, ("/" | "-" | "+") as sign, right]:
            a, b = places[left], places[right]
            return None if a is None or b is None else ARITHMETIC[sign](a, b)
        case [transport, figure, *settings]:
            where = dict(setting.split("=", 1) for setting in settings)
            return evidence.median(part, transport, OF_RUNS.get(figure, figure), where)
    raise ValueError(f"numbers: {words!r} is no number")


def _state(condition: str, places: Places, seeds: Iterable[Places]) -> str:
    """Return a verdict: on the threshold if the interval of (number less bound) over the seeds has
    ends on both sides."""
    left, how, right = condition.split()

    def less_bound(of: Places) -> float | None:
        a, b = of[left], of[right] if right in of else float(Fraction(right))
        return None if a is None or b is None or math.isnan(a - b) else a - b

    margin = less_bound(places)
    if margin is None:
        return NO_DATA
    ends = median_interval([own for one in seeds if (own := less_bound(one)) is not None])
    if how != "==" and ends and _COMPARE[how](ends[0], 0) != _COMPARE[how](ends[1], 0):
        return AT_THRESHOLD
    return AGREES if _COMPARE[how](margin, 0) else DIFFERS


class _Texts(Formatter):
    def format_field(self, value: Any, form: str) -> str:
        """Format ``.1%``, ``.0f`` and the like of a number or None, and words around it that need a
        number; ``rtts``; ``us`` and ``duration`` of ns."""
        match form:
            case "":
                return str(value)
            case "rtts":
                return number(value, ".0f") + (
                    "" if value is None or math.isinf(value) else " base RTTs"
                )
            case "duration":
                return duration(value)
        if form.endswith("us"):
            return number(ratio(value, 1e3), f"{form.removesuffix('us')}f")
        if (found := _FORM.fullmatch(form)) and (found["before"] or found["after"]):
            return (
                ""
                if value is None
                else f"{found['before']}{number(value, found['form'])}{found['after']}"
            )
        return number(value, form)
