"""Makes a JSON Schema (draft 7) of scenario and fabric files, for editors.

What several keys must satisfy together, and whether a fabric has a place, only ``mrcbed check``
knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import inspect

from scenarios.schema.keys import FABRIC, Key, Table, tables
from topologies.structs import Written

Schema = dict[str, Any]
DRAFT = "http://json-schema.org/draft-07/schema#"
"""The newest draft that Taplo, the usual language server for TOML, reads in full."""
_SWEEP: Schema = {
    "type": "object",
    "additionalProperties": {
        "type": "array",
        "minItems": 1,
        "items": {"type": ["string", "number", "boolean"]},
    },
}


def json_schema(file: str) -> Schema:
    """``file``: "scenario" or "fabric"."""
    forms: dict[str, list[Table]] = {}
    for table in tables():
        if table.file == file:
            forms.setdefault(table.path, []).append(table)
    head = {"$schema": DRAFT, "title": f"mrcbed {file} file"}
    if file == FABRIC:
        return {**head, **_object(forms[""][0].keys)}
    transport = _object(
        forms["transport"][0].keys,
        {
            "fabric_options": _object(forms["transport.fabric_options"][0].keys),
            "clustermapper": {
                "anyOf": [{"type": "boolean"}, _object(forms["transport.clustermapper"][0].keys)]
            },
            "options": {"type": "object", "properties": _offered(forms["transport.options"], {})},
        },
    )
    transport["allOf"] = [
        _if_kind(form.kinds, {"properties": {"options": _object(form.keys)}})
        for form in forms["transport.options"]
    ]
    inner = {
        "flow": _list(_object(forms["workload.flow"][0].keys)),
        "job": _list(_object(forms["workload.job"][0].keys)),
    }
    return {**head, **_object(forms[""][0].keys, {
        "workload": _of_kinds(forms["workload"], inner),
        "transport": _list(transport),
        "fault": _list(_of_kinds(forms["fault"], {}), least=0),
        "background": _list(_object(forms["background"][0].keys), least=0),
        "expect": _list(_object(forms["expect"][0].keys), least=0),
        "sweep": _SWEEP,
    })}  # fmt: skip


def _of_kinds(forms: list[Table], shapes: dict[str, Schema]) -> Schema:
    """An editor offers the keys of all kinds; what is checked is the form of the kind that is
    there, so that a mistake is named where it is."""
    checked = [_if_kind(form.kinds, _object(form.keys, shapes)) for form in forms]
    return {
        "type": "object",
        "properties": _offered(forms, shapes),
        "required": ["kind"],
        "allOf": checked,
    }


def _if_kind(kinds: tuple[str, ...], then: Schema) -> Schema:
    return {
        "if": {"properties": {"kind": {"enum": list(kinds)}}, "required": ["kind"]},
        "then": then,
    }


def _offered(forms: list[Table], shapes: dict[str, Schema]) -> Schema:
    """A key that differs between the forms may have any value here."""
    offered: Schema = {}
    for form in forms:
        for name, schema in _object(form.keys, shapes)["properties"].items():
            known = offered.setdefault(name, schema)
            if name == "kind":
                known["enum"] = list(dict.fromkeys([*known["enum"], *schema["enum"]]))
            elif {**known, "description": ""} != {**schema, "description": ""}:
                offered[name] = {"description": known["description"]}
    return offered


def _list(item: Schema, least: int = 1) -> Schema:
    return {"type": "array", "minItems": least, "items": item}


def _object(keys: Iterable[Key], shapes: dict[str, Schema] | None = None) -> Schema:
    keys = tuple(keys)
    shapes = shapes or {}
    properties = {
        key.name: {**(shapes.get(key.name) or of_type(key.type)), "description": _description(key)}
        for key in keys
    }
    required = [key.name for key in keys if key.required]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _description(key: Key) -> str:
    unit = f" [{key.unit}]" if key.unit else ""
    return f"{key.meaning}{unit}. {f'Default: {key.default}.' if key.default else 'Required.'}"


def of_type(kind: inspect.Type) -> Schema:
    match kind:
        case inspect.CustomType(cls=Written() as written):
            return dict(written.schema)
        case inspect.Metadata(extra=extra) if extra and "names" in extra:
            return {"enum": list(extra["names"])}
        case inspect.Metadata(type=inner):
            return of_type(inner)
        case inspect.UnionType(types=types):
            return {
                "anyOf": [of_type(part) for part in types if not isinstance(part, inspect.NoneType)]
            }
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.StrType(pattern=pattern):
            return {"type": "string"} | (
                {"pattern": pattern.replace(r"\Z", "$")} if pattern else {}
            )
        case inspect.IntType() | inspect.FloatType():
            return {"type": "integer" if isinstance(kind, inspect.IntType) else "number"} | _bounds(
                kind
            )
        case inspect.TupleType(item_types=types):
            return {
                "type": "array",
                "minItems": len(types),
                "maxItems": len(types),
                "items": of_type(types[0]),
            }
        case (
            inspect.ListType(item_type=item, min_length=least)
            | inspect.VarTupleType(item_type=item, min_length=least)
        ):
            return {"type": "array", "items": of_type(item)} | (
                {"minItems": least} if least else {}
            )
    return {"type": "object"}


def _bounds(kind: inspect.IntType | inspect.FloatType) -> Schema:
    limits = {
        "minimum": kind.ge,
        "exclusiveMinimum": kind.gt,
        "maximum": kind.le,
        "exclusiveMaximum": kind.lt,
        "multipleOf": kind.multiple_of,
    }
    return {word: bound for word, bound in limits.items() if bound is not None}
