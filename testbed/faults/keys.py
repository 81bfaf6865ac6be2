"""Parameters of faults: what each means, its type and how it is shown. Those of one kind only are
beside that kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from testbed.errors import UserError
from topologies.structs import Written, one_of
from topologies.units import NS, TIME_SCHEMA, US, parse_duration

DIRECTIONS = ("both", "up", "down")
MIN_PERIOD = 100 * NS
"""A shorter cycle is over before a packet is [ours]."""


class FaultError(UserError):
    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key} {text}")
        self.key, self.text = key, text


@dataclass(frozen=True)
class Key:
    name: str
    kind: Any
    doc: str
    show: Callable[[Any], str] = str
    required: bool = True
    default: Any = None  # as written; None: left out

    def optional(self, default: Any = None) -> Key:
        return replace(self, required=False, default=default)


def in_us(time: int) -> str:
    return f"{time / US:g}us"


class Keys(TypedDict, total=False):
    """A fault's parameters that have a value. Times are ps."""

    direction: str
    probability: float
    seed: int
    period: int
    duty: float
    share: float
    rate: float
    outage: int
    reboot: int
    to: str
    links: int | tuple[str, ...]
    program: str
    after: int
    count: int
    of: str
    status: str
    by: int
    call: str
    errno: str


class Period(int, metaclass=Written):
    words = f"a time of at least {MIN_PERIOD // NS} ns, like '800us'"
    schema, example = TIME_SCHEMA, '"800us"'

    @staticmethod
    def read(value: Any) -> int:
        period = parse_duration(value)
        if period < MIN_PERIOD:
            raise ValueError(f"is too short: a cycle takes at least {MIN_PERIOD // NS} ns")
        return period


Part = Annotated[float, Meta(gt=0.0, lt=1.0)]
DIRECTION = Key(
    "direction", Annotated[str, one_of(DIRECTIONS)], "up (away from the hosts), down, or both"
).optional("both")
PROBABILITY = Key(
    "probability",
    Annotated[float, Meta(ge=0.0, le=1.0)],
    "of each packet, from 0 (nothing is hit) to 1",
)
SEED = Key(
    "seed",
    Annotated[int, Meta(ge=0, lt=1 << 32)],
    "from which random choices follow; default: the run's",
).optional()
PERIOD = Key("period", Period, "length of a cycle", in_us)
DUTY = Key("duty", Part, "share of a period that the fault is there")
SHARE = Key(
    "share", Annotated[float, Meta(gt=0.0, le=1.0)], "of the links, or of the CPU that is left"
)
