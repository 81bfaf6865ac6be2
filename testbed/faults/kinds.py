"""The fault catalogue: every kind of fault, what it takes, and what it hits on a given fabric. Pure data and pure functions.

One catalogue for scenario files, the prompt and :meth:`testbed.emulated.cluster.Cluster.inject`; testbed/emulated/injector.py carries it
out. docs/faults.md is the manual and repeats the line of each kind.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.errors import UserError
from testbed.units import parse_duration

USED_BY_QP = "used-by-qp"
"""What a scenario may say instead of a link or path: the one that a queue pair of the run uses."""
DIRECTIONS = ("both", "up", "down")
"""``up`` is away from the hosts."""
MIN_PERIOD_NS = 2_000_000
"""Shorter cycles would be the machine's scheduling, not ours [our own choice]."""


class FaultError(UserError):
    """A fault that cannot be: ``key`` and what is wrong with it, in one line."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key} {text}")
        self.key, self.text = key, text


# --- keys ----------------------------------------------------------------------------------------------------------


def _part(low_open: float, high: float, closed: bool) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = -1.0
        if isinstance(value, bool) or not (low_open < number < high or (closed and number == high)):
            raise ValueError(f"must be above {low_open:g} and {'up to' if closed else 'below'} {high:g}")
        return number

    return read


def _chance(value: Any) -> float:
    """A probability. 0 is one, too: a sweep's lossless setting."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not 0.0 <= number <= 1.0:
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


def _time(value: Any) -> int:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ValueError(str(error)) from None


def _period(value: Any) -> int:
    period = _time(value)
    if period < MIN_PERIOD_NS:
        raise ValueError(f"is too short: a cycle takes at least {MIN_PERIOD_NS // 1_000_000} ms")
    return period


def _links(value: Any) -> int | tuple[str, ...]:
    """A number of links, or their names: a list, or one word with commas as the prompt has it."""
    if isinstance(value, str):
        value = int(value) if value.isdigit() else value.split(",")
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if isinstance(value, (list, tuple)) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise ValueError("must be a number of links from 1 on, or a list of links' names")


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a host's name, like 'h5'")
    return value


@dataclass(frozen=True)
class Key:
    """One parameter: what it means, and how it is read (ValueError: the rest of a sentence that begins with the value)."""

    read: Callable[[Any], Any]
    doc: str


KEYS: dict[str, Key] = {
    "direction": Key(_direction, "up (away from the hosts), down, or both"),
    "probability": Key(_chance, "of each packet, from 0 (nothing is hit) to 1"),
    "seed": Key(_whole, "of whatever is drawn; default: the run's"),
    "period": Key(_period, "of a cycle"),
    "duty": Key(_part(0.0, 1.0, False), "share of a period that the fault is there"),
    "links": Key(_links, "how many, the first by port, or a list of names; default: half of them"),
    "share": Key(_part(0.0, 1.0, True), "of the links, or of the CPU that is left"),
    "rate": Key(_part(0.0, 1.0, False), "share of the link's rate that is left"),
    "to": Key(_name, "the host whose packets are hit"),
    "reboot": Key(_time, "how long the switch's links are down after the silence"),
}


# --- kinds ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """One entry of the catalogue. ``on``: what sort of thing it names; ``used``: whether that may be "used-by-qp"."""

    doc: str
    on: str
    required: tuple[str, ...] = ()
    optional: Mapping[str, Any] = field(default_factory=dict)  # key -> default; None: left out
    used: bool = False
    takes: bool = False  # its links carry nothing while it lasts
    heals: bool = True

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.required, *self.optional)


KINDS: dict[str, Kind] = {
    "link": Kind("a cable is pulled, and plugged in again", "link", used=True, takes=True),
    "port": Kind("a NIC port goes down: the cable of that port", "NIC port", takes=True),
    "flap": Kind("a link goes down and up, over and over", "link or NIC port", ("period", "duty"), used=True, takes=True),
    "transceiver": Kind(
        "several links of one host or switch go together; with period and duty they flap together", "host or switch",
        optional={"links": None, "period": None, "duty": None}, takes=True,
    ),
    "switch": Kind("a switch is dead: its links drop", "switch", takes=True),
    "silent": Kind("a switch keeps its links up and forwards nothing, then may reboot", "switch", optional={"reboot": 0}, takes=True),
    "plane": Kind("every switch of a plane is dead", "plane", takes=True),
    "dead-paths": Kind("a share of the T0-T1 links is dead, drawn by seed", "fabric or plane", ("share",), {"seed": None}, takes=True),
    "loss": Kind(
        "random loss on a link, or on every T0-T1 link of a plane or of the fabric", "link, NIC port, plane or fabric",
        ("probability",), {"direction": "both", "seed": None}, used=True,
    ),
    "corrupt": Kind(
        "random packets on such links arrive with one byte changed, which the receiver's checksum catches",
        "link, NIC port, plane or fabric",
        ("probability",), {"direction": "both", "seed": None}, used=True,
    ),
    "path-loss": Kind(
        "loss on one path, by default of everything, by its outer address alone", "path, like h0>h5@p0/3",
        optional={"probability": 1.0, "seed": None}, used=True,
    ),
    "destination-loss": Kind(
        "one switch loses what goes to one host, by default all of it", "switch", ("to",), {"probability": 1.0, "seed": None},
    ),
    "slow": Kind("a link goes at a share of its rate", "link or NIC port", ("rate",), {"direction": "both"}, used=True),
    "straggler": Kind(
        "a host's agent gets a share of the CPU: it is stopped for the rest of every period", "host", ("share",), {"period": "20ms"},
    ),
    "kill": Kind("a process of ours gets SIGKILL: the controller, or a host's agent", "controller or host", heals=False),
}  # fmt: skip


def kind_named(name: Any) -> Kind:
    """Raises :class:`FaultError` naming all kinds."""
    if not isinstance(name, str) or name not in KINDS:
        near = difflib.get_close_matches(str(name), KINDS, n=1, cutoff=0.5)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise FaultError("kind", f"= {name!r}: there are {', '.join(KINDS)}{hint}")
    return KINDS[name]


def read_keys(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a kind, read, with defaults filled in; those left out have no entry. Raises :class:`FaultError`."""
    entry = kind_named(kind)
    for key in given:
        if key not in entry.keys:
            near = difflib.get_close_matches(key, entry.keys, n=1, cutoff=0.0)
            raise FaultError(key, f"is not a key of kind {kind!r}: " + (f"did you mean {near[0]!r}?" if near else "it has none of its own"))
    for key in entry.required:
        if key not in given:
            raise FaultError(key, f"is missing: kind {kind!r} needs it ({KEYS[key].doc})")
    read: dict[str, Any] = {}
    for key in entry.keys:
        value = given.get(key, entry.optional.get(key))
        if value is None:
            continue
        try:
            read[key] = KEYS[key].read(value)
        except ValueError as error:
            raise FaultError(key, f"= {value!r} {error}") from None
    if kind == "straggler" and read["share"] == 1.0:
        raise FaultError("share", "= 1 leaves the agent all of its CPU: it must be below 1")
    if "duty" in entry.keys and ("duty" in read) != ("period" in read):
        raise FaultError("duty" if "period" in read else "period", "is missing: a cycle needs period and duty")
    return read
