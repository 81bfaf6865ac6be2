"""Makes the table of keys of results: everything that the files of a run say, with type, unit and
meaning.

It is read from the Structs of testbed/results, which write and read these files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import or_
from typing import Any

import msgspec
from msgspec import inspect

from testbed.results.log import KINDS, Line, Queue
from testbed.results.manifest import Manifest
from testbed.results.record import Record
from testbed.results.summary import Summary
from topologies.structs import docs_of

LOG = "log"
FILES: dict[str, type[msgspec.Struct]] = {
    "summary": Summary,
    "manifest": Manifest,
    "record": Record,
    LOG: Line,
}
NAMES = {
    "summary": "summary.json",
    "manifest": "manifest.json",
    "record": "raw/RUN/run.json",
    LOG: "logs: raw/RUN/*.jsonl",
}
_HEAD = (
    "Made by `python -m docs.tools.keys` from the Structs in `testbed/results/`; "
    "[results.md](../how/results.md) says how figures are computed, and in what units. "
    "`runs[].flows{}` is one of the flows, by name, of one of the runs; ? is a key that may be "
    "missing. `mrcbed explain KEY` shows the same."
)
_UNITS = {
    "_ns": "ns",
    "_ps": "ps",
    "_bps": "bit/s",
    "_bytes": "bytes",
    "_rtts": "base RTTs",
    "_percent": "%",
    "_share": "share",
    "_ppm": "ppm",
}
"""End of a key -> its unit, where none is given."""


@dataclass(frozen=True)
class ResultKey:
    """``path`` is its table, dotted, "" for the top of the file; ``form`` is as "number or
    null"."""

    file: str
    path: str
    name: str
    form: str
    unit: str
    optional: bool  # may be missing
    meaning: str

    @property
    def dotted(self) -> str:
        return f"{self.path}.{self.name}" if self.path else self.name


@dataclass(frozen=True)
class ResultTable:
    """``header``: ``runs[].flows{}`` is one of the flows, by name, of one of the runs."""

    file: str
    path: str
    header: str
    meaning: str
    keys: tuple[ResultKey, ...]


@cache
def result_tables(file: str) -> tuple[ResultTable, ...]:
    first, *inner = _tables(file, FILES[file], "", "")
    common = {key.name for key in first.keys}
    kinds: dict[str, type[Line]] = {**KINDS, "queues": Queue} if file == LOG else {}
    lines = [table for kind, line in kinds.items() for table in _tables(file, line, kind, kind)]
    own = [
        replace(table, keys=tuple(key for key in table.keys if key.name not in common))
        for table in lines
    ]
    return (first, *inner, *own)


def reference() -> str:
    lines = ["# Every key of results", "", _HEAD]
    for file, name in NAMES.items():
        lines += ["", f"## {name}"]
        places: dict[tuple[ResultKey, ...], list[ResultTable]] = {}
        for table in result_tables(file):
            places.setdefault(
                tuple(replace(key, path="", unit="") for key in table.keys), []
            ).append(table)
        for same in places.values():
            headers = ", ".join(f"`{table.header}`" for table in same if table.header)
            lines += ["", *([f"### {headers}", ""] if headers else []), same[0].meaning, ""]
            lines += [_row(key) for key in same[0].keys]
    return "\n".join(lines) + "\n"


def _row(key: ResultKey) -> str:
    return (
        f"- `{key.name}`{'?' if key.optional else ''} "
        f"({', '.join(filter(None, (key.form, key.unit)))}): {key.meaning}"
    )


@cache
def result_keys() -> tuple[ResultKey, ...]:
    return tuple(key for file in FILES for table in result_tables(file) for key in table.keys)


def find_results(words: str) -> tuple[tuple[ResultKey, ...], tuple[ResultKey, ...]]:
    """Return (the keys that ``words`` name, those of the table that it names): ``busbw_bps``,
    ``summary.runs``. A whole name goes before the end of others."""
    words = re.sub(r"\[\d*\]|\{\}", "", words)
    named = [key for key in result_keys() if f".{key.file}.{key.dotted}".endswith(f".{words}")]
    whole = [key for key in named if words in (key.dotted, f"{key.file}.{key.dotted}")]
    tables = [
        key for key in result_keys() if f".{key.file}.{key.path}".rstrip(".").endswith(f".{words}")
    ]
    return tuple(whole or named), tuple(tables)


def _tables(
    file: str, struct: type[msgspec.Struct], path: str, header: str
) -> Iterator[ResultTable]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    docs = docs_of(struct)
    keys = []
    inner = []
    for field in info.fields:
        doc = docs[field.encode_name]
        words = (field.encode_name, path)  # a percentile of step_time_ns is in ns
        unit = doc.unit or next(
            (unit for word in words for end, unit in _UNITS.items() if word.endswith(end)), ""
        )
        form, held = _form(field.type)
        keys.append(
            ResultKey(file, path, field.encode_name, form, unit, not field.required, doc.meaning)
        )
        inner += [(field.encode_name, one, marks) for one, marks in held]
    yield ResultTable(
        file, path, header, (struct.__doc__ or "").strip().replace("\n    ", " "), tuple(keys)
    )
    for name, one, marks in inner:
        yield from _tables(
            file,
            one,
            f"{path}.{name}" if path else name,
            f"{header}.{name}{marks}" if header else f"{name}{marks}",
        )


def _form(kind: inspect.Type) -> tuple[str, list[tuple[type[msgspec.Struct], str]]]:
    """Return a value's form, and its Structs with marks: [] in a list, {} in a table by names."""
    match kind:
        case inspect.Metadata(type=inner):
            return _form(inner)
        case inspect.UnionType(types=types):
            parts = [
                _form(part)
                for part in types
                if not isinstance(part, (inspect.NoneType, inspect.CustomType))
            ]
            null = " or null" if any(isinstance(part, inspect.NoneType) for part in types) else ""
            return " or ".join(dict.fromkeys(words for words, _ in parts)) + null, [
                held for _, each in parts for held in each
            ]
        case inspect.StructType(cls=struct):
            return "table", [(struct, "")]
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            words, held = _form(item)
            return f"list of {_several(words)}", [(one, f"[]{marks}") for one, marks in held]
        case inspect.TupleType(item_types=items):
            return f"list of {len(items)} {_several(_form(items[0])[0])}", []
        case inspect.DictType(value_type=value):
            words, held = _form(value)
            return f"{_several(words)} by name", [(one, f"{{}}{marks}") for one, marks in held]
        case inspect.BoolType():
            return "true or false", []
        case inspect.IntType():
            return "whole number", []
        case inspect.FloatType():
            return "number", []
        case inspect.LiteralType(values=values):
            return " or ".join(map(str, values)), []
        case inspect.StrType():
            return "text", []
    return "any value", []


def _several(words: str) -> str:
    first, *rest = words.split(" or ")
    plural = {
        "table": "tables",
        "number": "numbers",
        "whole number": "whole numbers",
        "text": "texts",
    }
    return " or ".join([plural.get(first, first), *rest])


def results_schema(file: str) -> dict[str, Any]:
    held = reduce(or_, KINDS.values()) if file == LOG else FILES[file]
    schema: dict[str, Any] = msgspec.json.schema(held)
    tops = [*KINDS.values()] if file == LOG else [FILES[file]]
    for name, struct in {name: one for top in tops for name, one in _structs(top).items()}.items():
        properties = schema["$defs"][name]["properties"]
        for key, doc in docs_of(struct).items():
            properties[key] = {**properties[key], "description": doc.meaning}
    return {"title": NAMES[file], **schema}


def _structs(struct: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    found = {struct.__name__: struct}
    for field in info.fields:
        for one, _ in _form(field.type)[1]:
            found |= _structs(one)
    return found
