"""The fault catalogue: every kind that a module of this package defines, discovered
automatically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from msgspec import defstruct, to_builtins

from testbed.faults.base import Kind
from testbed.faults.keys import FaultError, Keys
from testbed.faults.targets import Target
from topologies.clos import Fabric
from topologies.structs import Refused, convert, there_are
from topologies.units import Span

__all__ = [
    "KEYS",
    "KINDS",
    "USED_BY_QP",
    "FaultError",
    "Kind",
    "kind_named",
    "read_keys",
    "read_words",
    "resolve",
    "target_of",
]

USED_BY_QP = "used-by-qp"
"""Stands in a scenario for a link or path that a queue pair of the run uses."""
FOR = "for"
_FIRST = (
    "link",
    "port",
    "flap",
    "failures",
    "transceiver",
    "switch",
    "silent",
    "plane",
    "dead-paths",
    "loss",
    "corrupt",
    "path-loss",
    "destination-loss",
    "slow",
    "straggler",
    "kill",
    "verbs-error",
    "verbs-lost",
    "verbs-late",
    "verbs-dead-qp",
    "verbs-refused",
    "verbs-port",
)


def _discover() -> dict[str, Kind]:
    modules = [import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__)]
    classes = [
        c
        for module in modules
        for c in vars(module).values()
        if isinstance(c, type) and c.__module__ == module.__name__
    ]
    kinds = {c.name: c() for c in classes if issubclass(c, Kind) and c.name}
    return {name: kinds[name] for name in [*_FIRST, *sorted(kinds.keys() - _FIRST)]}


KINDS = _discover()
STRUCTS = {
    name: defstruct(
        name,
        [(key.name, key.kind | None, None) for key in kind.keys],
        forbid_unknown_fields=True,
        omit_defaults=True,
    )
    for name, kind in KINDS.items()
}
KEYS = {key.name: key for kind in KINDS.values() for key in kind.keys}


def kind_named(name: Any) -> Kind:
    if not isinstance(name, str) or name not in KINDS:
        raise FaultError("kind", f"= {name!r}: {there_are(name, KINDS)}")
    return KINDS[name]


def read_keys(kind: str, values: Mapping[str, object]) -> Keys:
    """Fill in defaults; parameters without a value have no entry. Raises :class:`FaultError`."""
    entry = kind_named(kind)
    merged = {key.name: key.default for key in entry.keys} | dict(values)
    try:
        struct = convert(
            {name: value for name, value in merged.items() if value is not None},
            STRUCTS[kind],
            strict=False,
        )
    except Refused as error:
        raise FaultError(error.key, error.text) from None
    read: Keys = to_builtins(struct)
    for key in entry.keys:
        if key.required and key.name not in read:
            raise FaultError(key.name, f"is missing: kind {kind!r} needs it ({key.doc})")
    entry.check(read)
    return read


def read_words(words: Sequence[str], usage: str) -> tuple[str, str, dict[str, str]]:
    if not words:
        raise FaultError("fault", f"needs a kind; usage: {usage}")
    kind = kind_named(words[0])
    if len(words) < 2:
        raise FaultError("fault", f"{words[0]}: say on which {kind.on}; usage: {usage}")
    keys: dict[str, str] = {}
    for word in words[2:]:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise FaultError("fault", f"{word!r} is not key=value; usage: {usage}")
        keys[key] = value
    _lasting(words[0], keys)
    return words[0], words[1], keys


def resolve(fabric: Fabric, kind: str, on: str, values: Mapping[str, object], seed: int) -> Target:
    """``seed`` is used where ``values`` has none. Raises :class:`FaultError` for a bad parameter
    and FabricError for an unknown target."""
    read, lasts = _lasting(kind, values)
    return replace(target_of(fabric, kind, on, read, seed), lasts=lasts)


def _lasting(kind: str, values: Mapping[str, object]) -> tuple[Keys, int]:
    """Read parameters, and ``for``: how long it lasts, ps, 0 until it is taken back. Raises as
    :func:`read_keys`."""
    read = read_keys(kind, {name: value for name, value in values.items() if name != FOR})
    if FOR not in values:
        return read, 0
    if not KINDS[kind].heals:
        raise FaultError(FOR, f"is not for kind {kind!r}, which cannot be taken back")
    try:
        return read, Span.read(values[FOR])
    except ValueError as error:
        raise FaultError(FOR, f"= {values[FOR]!r} {error}") from None


def target_of(fabric: Fabric, kind: str, on: str, keys: Keys, seed: int) -> Target:
    own = keys.copy()
    if any(key.name == "seed" for key in KINDS[kind].keys):
        own.setdefault("seed", seed & 0xFFFFFFFF)
    return KINDS[kind].resolve(fabric, on, own)
