"""Makes the one table of keys: everything that a scenario or fabric file may say, with type, unit,
default, bounds and meaning.

It is read from the annotations of the Structs that read the files, and from the fault catalogue.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import msgspec
from msgspec import NODEFAULT, UNSET, inspect

from agents.clustermapper import options as clustermapper
from agents.kernel.options import KINDS as KERNEL_KINDS
from agents.kernel.options import Knobs
from agents.mrc import config as mrc
from agents.roce import options as roce
from scenarios.schema.fabrics import QueueOptions
from scenarios.schema.fault_tables import FaultTable
from scenarios.schema.iperf_tables import Entries
from scenarios.schema.scenario_tables import CommonOptions, Expect, ScenarioFile, TransportTable
from scenarios.schema.workload_tables import TABLES as WORKLOADS
from testbed.faults.base import Kind
from testbed.faults.keys import Key as FaultKey
from testbed.faults.kinds import KINDS as FAULTS
from testbed.faults.kinds import STRUCTS as FAULT_KEYS
from testbed.faults.kinds import USED_BY_QP
from topologies.clos import Fabric
from topologies.fabrics import WRITTEN, FabricFile, load_fabric
from topologies.structs import Doc, Written, defaults_of, docs_of, expected
from topologies.theory import COLLECTIVES
from topologies.toml_files import FORMAT

SCENARIO, FABRIC = FILES = ("scenario", "fabric")
CHOICES: dict[str, tuple[str, ...]] = {"workload": tuple(WORKLOADS), "fault": tuple(FAULTS)}
"""Tables whose keys depend on their kind -> the kinds."""
UNNAMED = "left out"  # default of a key that has none


@dataclass(frozen=True)
class Key:
    """``path`` is the table, dotted, "" for the top of the file; ``kinds`` those of the table, ()
    where all have the key. ``must`` ends the sentence "the value must be ..."; ``default`` is as
    TOML writes it, or in words; "" if the key is required."""

    file: str
    path: str
    name: str
    kinds: tuple[str, ...]
    type: inspect.Type = field(repr=False)
    must: str
    unit: str
    default: str
    meaning: str
    example: str

    @property
    def dotted(self) -> str:
        return f"{self.path}.{self.name}" if self.path else self.name

    @property
    def required(self) -> bool:
        return not self.default


@dataclass(frozen=True)
class Table:
    """``header`` is as TOML writes it; ``kinds`` are those that this form of the table is for, ()
    if there is one form."""

    file: str
    path: str
    header: str
    meaning: str
    keys: tuple[Key, ...]
    kinds: tuple[str, ...] = ()


@cache
def tables() -> tuple[Table, ...]:
    return (*_scenario_tables(), _fabric_table())


@cache
def keys(file: str | None = None) -> tuple[Key, ...]:
    """Kinds that share a key's definition share an entry."""
    merged: dict[tuple[Any, ...], Key] = {}
    for table in tables():
        if file in (None, table.file):
            for key in table.keys:
                same = (key.file, key.path, key.name, key.must, key.unit, key.default, key.meaning)
                known = merged.get(same)
                merged[same] = (
                    key
                    if known is None
                    else replace(known, kinds=tuple(dict.fromkeys([*known.kinds, *key.kinds])))
                )
    every = {(table.path, kind) for table in tables() for kind in table.kinds}
    places = [(key.file, key.path) for key in merged.values()]
    names = [(key.path, key.name) for key in merged.values()]
    merged = dict(
        sorted(
            merged.items(), key=lambda item: (places.index(item[0][:2]), names.index(item[0][1:3]))
        )
    )
    return tuple(
        replace(
            key,
            kinds=()
            if {kind for path, kind in every if path == key.path} == set(key.kinds)
            else key.kinds,
        )
        for key in merged.values()
    )


def of_kinds(key: Key) -> str:
    """Name the kinds that have a key; all collectives are one word."""
    if set(COLLECTIVES) <= set(key.kinds):
        return ", ".join(["collectives", *(kind for kind in key.kinds if kind not in COLLECTIVES)])
    return ", ".join(key.kinds)


# --- from the Structs -----------------------------------------------------------------------------


def _scenario_tables() -> Iterator[Table]:
    top = _keys(SCENARIO, "", ScenarioFile)
    sweep = Key(
        SCENARIO,
        "",
        "sweep",
        (),
        inspect.type_info(dict[str, list[Any]]),
        "a table of dotted keys, each with a list of values",
        "",
        "{}",
        "each combination of values is a setting, at which everything runs",
        '{ "workload.steps" = [10, 20] }',
    )
    yield Table(SCENARIO, "", "", "The top of a scenario file", (_format(SCENARIO), *top, sweep))
    for form in dict.fromkeys(WORKLOADS.values()):
        kinds = tuple(kind for kind, own in WORKLOADS.items() if own is form)
        yield Table(
            SCENARIO,
            "workload",
            "[workload]",
            "What the hosts do",
            _keys(SCENARIO, "workload", form, kinds),
            kinds,
        )
        for name, item in _items(form):
            path = f"workload.{name}"
            yield Table(
                SCENARIO, path, f"[[{path}]]", "One of several", _keys(SCENARIO, path, item)
            )
    yield Table(
        SCENARIO,
        "transport",
        "[[transport]]",
        "A protocol that carries the workload",
        _keys(SCENARIO, "transport", TransportTable),
    )
    path = "transport.fabric_options"
    queues = tuple(_bounded(key) for key in _keys(SCENARIO, path, QueueOptions))
    yield Table(
        SCENARIO, path, "fabric_options", "How the queues of the transport's fabric behave", queues
    )
    own: dict[str, tuple[type[msgspec.Struct], Mapping[str, object]]] = {
        "mrc": (mrc.OPTIONS, defaults_of(mrc.Config)),
        "roce": (roce.OPTIONS, defaults_of(roce.Knobs)),
        **dict.fromkeys(KERNEL_KINDS, (Knobs, {})),
    }
    path = "transport.options"
    for kind, (struct, defaults) in own.items():
        found = (
            *_keys(SCENARIO, path, CommonOptions, (kind,)),
            *_keys(SCENARIO, path, struct, (kind,), defaults),
        )
        yield Table(SCENARIO, path, "options", "Options of the protocol", found, (kind,))
    path = "transport.clustermapper"
    probing = _keys(
        SCENARIO, path, clustermapper.OPTIONS, defaults=defaults_of(clustermapper.Options)
    )
    yield Table(
        SCENARIO,
        path,
        "clustermapper",
        "How hosts probe their own links; times are in base RTTs",
        probing,
    )
    yield from (_fault_table(entry) for entry in FAULTS.values())
    background = _items_of(inspect.type_info(Entries))
    assert background is not None
    yield Table(
        SCENARIO,
        "background",
        "[[background]]",
        "Other traffic on the same links",
        _keys(SCENARIO, "background", background),
    )
    yield Table(
        SCENARIO,
        "expect",
        "[[expect]]",
        "A check on the figures",
        _keys(SCENARIO, "expect", Expect),
    )


def _fabric_table() -> Table:
    found = [
        _as_written(key) for key in (*_keys(FABRIC, "", Fabric), *_keys(FABRIC, "", FabricFile))
    ]
    return Table(FABRIC, "", "", "A fabric file", (_format(FABRIC), *found))


def _keys(
    file: str,
    path: str,
    struct: type[msgspec.Struct],
    kinds: tuple[str, ...] = (),
    defaults: Mapping[str, object] | None = None,
) -> tuple[Key, ...]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    docs = docs_of(struct)

    def key(at: inspect.Field) -> Key:
        doc = docs.get(at.encode_name) or Doc("")
        default = (defaults or {}).get(at.encode_name, at.default)
        if default is NODEFAULT and at.default_factory is not NODEFAULT:
            default = at.default_factory()
        words = doc.default or ("" if default is NODEFAULT else _toml(default))
        kind = _written(at.type)
        if at.encode_name == "kind" and kinds and path in CHOICES:
            kind = inspect.Metadata(inspect.StrType(), extra={"names": kinds})
        example = (
            doc.example
            or (
                _toml(not default)
                if isinstance(default, bool)
                else _example(kind)
                if doc.default
                else words
            )
            or _example(kind)
        )
        must = (
            f"one of {', '.join(CHOICES[path])}"
            if at.encode_name == "kind" and path in CHOICES
            else expected(kind)
        )
        return Key(
            file, path, at.encode_name, kinds, kind, must, doc.unit, words, doc.meaning, example
        )

    return tuple(key(at) for at in info.fields)


def _format(file: str) -> Key:
    kind = inspect.IntType(ge=FORMAT, le=FORMAT)
    return Key(
        file,
        "",
        "format",
        (),
        kind,
        f"{FORMAT}",
        "",
        "",
        "version of the file's form: times and rates of the real network",
        f"{FORMAT}",
    )


def _fault_table(entry: Kind) -> Table:
    drawn_on, drawn = (
        entry.draw(load_fabric("demo"), random.Random(1)) if entry.heals else ("controller", {})
    )

    def common(key: Key) -> Key:
        if key.name != "on":
            return key
        meaning = (
            f"what it hits{f'; {USED_BY_QP}: one that a queue pair uses' if entry.used else ''}"
        )
        return replace(key, must=entry.on, example=_toml(drawn_on), meaning=meaning)

    def own(key: Key, source: FaultKey) -> Key:
        default = (
            "" if source.required else UNNAMED if source.default is None else _toml(source.default)
        )
        meaning, _, words = source.doc.partition("; default: ")
        known = (key.example, default, _example(key.type), _toml(drawn.get(key.name, "")))
        return replace(
            key,
            meaning=meaning,
            default=words or default,
            example=next(word for word in known if word not in ("", UNNAMED)),
        )

    sources = {key.name: key for key in entry.keys}
    keys = [common(key) for key in _keys(SCENARIO, "fault", FaultTable, (entry.name,))]
    keys += [
        own(key, sources[key.name])
        for key in _keys(SCENARIO, "fault", FAULT_KEYS[entry.name], (entry.name,))
    ]
    return Table(SCENARIO, "fault", "[[fault]]", entry.doc, tuple(keys), (entry.name,))


def _bounded(key: Key) -> Key:
    same = {
        field.encode_name: field.type for field in _fields(Fabric) if field.encode_name != "name"
    }
    kind = same.get(key.name, key.type)
    return replace(key, type=kind, must=expected(kind), example=key.example or _example(kind))


def _as_written(key: Key) -> Key:
    """Rates and the delay in a fabric file are those of the real network."""
    name = key.name.removesuffix("_ps")
    if name not in WRITTEN:
        return replace(key, default=key.default or "")
    kind = inspect.CustomType(WRITTEN[name])
    return replace(key, name=name, type=kind, must=expected(kind), example=_example(kind))


def _fields(struct: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _items(struct: type[msgspec.Struct]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    for at in _fields(struct):
        item = _items_of(at.type)
        if item is not None:
            yield at.encode_name, item


def _items_of(kind: inspect.Type) -> type[msgspec.Struct] | None:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    item = kind.item_type if isinstance(kind, inspect.ListType) else None
    return item.cls if isinstance(item, inspect.StructType) else None


def _written(kind: inspect.Type) -> inspect.Type:
    if isinstance(kind, inspect.UnionType):
        kept = tuple(part for part in kind.types if not isinstance(part, inspect.NoneType))
        return kept[0] if len(kept) == 1 else inspect.UnionType(kept)
    return kind


def _example(kind: inspect.Type) -> str:
    match kind:
        case inspect.CustomType(cls=Written() as written):
            return written.example
        case inspect.Metadata(extra=extra) if extra and "names" in extra:
            return _toml(extra["names"][0])
        case inspect.Metadata(type=inner):
            return _example(inner)
        case inspect.BoolType():
            return "true"
        case inspect.IntType(ge=least):
            return str(least or 0)
        case inspect.FloatType():
            return "0.5"
    return ""


def _toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.4g}" if value != int(value) else f"{value}"
        case str():
            return json.dumps(value)
        case tuple() | list():
            return f"[{', '.join(map(_toml, value))}]"
        case int():
            return str(value)
    return UNNAMED if value is None or value is UNSET else "{}"
