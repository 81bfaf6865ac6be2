"""Rows of results for tests: ``made(Run, transport="mrc", failovers=[{"lost": 3}])`` fills what is
not given with neutral values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")
NAMES = {"outcome": "done", "host": "h0", "peer": "h1", "src": "h0", "dst": "h1"}


def made(row: type[T], **given: Any) -> T:
    """Return a ``row`` (a Struct) with what is given, as plain values or rows, and neutral values
    for all else that it must have."""
    return msgspec.convert(_filled(_info(row), given), row)


@cache
def _info(row: type[Any]) -> inspect.Type:
    return inspect.type_info(row)


def _filled(kind: inspect.Type, given: Any) -> Any:
    if isinstance(kind, inspect.Metadata):
        return _filled(kind.type, given)
    if isinstance(given, msgspec.Struct):
        given = msgspec.to_builtins(given)
    if isinstance(kind, inspect.UnionType):
        structs = [
            part
            for part in kind.types
            if not isinstance(part, (inspect.NoneType, inspect.CustomType))
        ]
        return given if given is None or not structs else _filled(structs[0], given)
    if isinstance(kind, inspect.StructType) and isinstance(given, Mapping):
        fields = {field.encode_name: field for field in kind.fields}
        missing = {
            name: neutral(name, field.type)
            for name, field in fields.items()
            if name not in given and field.required
        }
        return {
            **missing,
            **{
                name: _filled(fields[name].type, value) if name in fields else value
                for name, value in given.items()
            },
        }
    if isinstance(kind, inspect.ListType) and isinstance(given, (list, tuple)):
        return [_filled(kind.item_type, item) for item in given]
    if isinstance(kind, inspect.DictType) and isinstance(given, Mapping):
        return {key: _filled(kind.value_type, value) for key, value in given.items()}
    return given


def neutral(name: str, kind: inspect.Type) -> Any:
    match kind:
        case inspect.Metadata(type=inner):
            return neutral(name, inner)
        case inspect.UnionType(types=types):
            return (
                None
                if any(isinstance(part, inspect.NoneType) for part in types)
                else neutral(name, types[0])
            )
        case inspect.StructType():
            return _filled(kind, {})
        case inspect.ListType():
            return []
        case inspect.DictType():
            return {}
        case inspect.TupleType(item_types=items):
            return [neutral(name, item) for item in items]
        case inspect.BoolType():
            return False
        case inspect.IntType(ge=least) | inspect.FloatType(ge=least):
            return 1 if least and least > 0 else 0
        case inspect.LiteralType(values=values):
            return next((value for value in ("ok", "trustworthy") if value in values), values[0])
        case inspect.StrType():
            return NAMES.get(name, "x")
    return None
