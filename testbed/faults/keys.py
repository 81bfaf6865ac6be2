"""Parameters of faults: what each means, how it is read and shown. Those of several kinds stand here, a kind's own beside the kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from testbed.errors import UserError
from testbed.units import parse_duration

DIRECTIONS = ("both", "up", "down")
"""``up`` is away from the hosts."""
MIN_PERIOD_NS = 2_000_000
"""Shorter cycles would be the machine's scheduling, not ours [ours]."""


class FaultError(UserError):
    """A fault that cannot be: ``key`` and what is wrong with it, in one line."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key} {text}")
        self.key, self.text = key, text


@dataclass(frozen=True)
class Key:
    """One parameter. ``read`` raises ValueError with the rest of a sentence that begins with the value; ``show`` writes what was read."""

    name: str
    read: Callable[[Any], Any]
    doc: str
    show: Callable[[Any], str] = str
    required: bool = True
    default: Any = None  # as written; None: left out

    def optional(self, default: Any = None) -> Key:
        return replace(self, required=False, default=default)


def part(closed: bool) -> Callable[[Any], float]:
    """Reads a share above 0, and below 1 or with ``closed`` up to it."""

    def read(value: Any) -> float:
        number = _number(value)
        if not (0.0 < number < 1.0 or (closed and number == 1.0)):
            raise ValueError(f"must be above 0 and {'up to' if closed else 'below'} 1")
        return number

    return read


def in_ms(ns: int) -> str:
    return f"{ns / 1e6:g}ms"


def _number(value: Any) -> float:
    """Below 0 for what is none."""
    try:
        return -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return -1.0


def _chance(value: Any) -> float:
    number = _number(value)
    if not 0.0 <= number <= 1.0:
        raise ValueError("must be from 0 to 1")
    return number


def _whole(value: Any) -> int:
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
        raise ValueError("must be a whole number from 0 to 4294967295")
    return value


def _direction(value: Any) -> str:
    if value not in DIRECTIONS:
        raise ValueError(f"must be one of {', '.join(DIRECTIONS)} (up: away from the hosts)")
    return str(value)


def _period(value: Any) -> int:
    period = parse_duration(value)
    if period < MIN_PERIOD_NS:
        raise ValueError(f"is too short: a cycle takes at least {MIN_PERIOD_NS // 1_000_000} ms")
    return period


DIRECTION = Key("direction", _direction, "up (away from the hosts), down, or both").optional("both")
PROBABILITY = Key("probability", _chance, "of each packet, from 0 (nothing is hit) to 1")
SEED = Key("seed", _whole, "from which random choices follow; default: the run's").optional()
PERIOD = Key("period", _period, "length of a cycle", in_ms)
DUTY = Key("duty", part(closed=False), "share of a period that the fault is there")
SHARE = Key("share", part(closed=True), "of the links, or of the CPU that is left")
