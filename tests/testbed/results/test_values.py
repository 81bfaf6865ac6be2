"""Keys that may be missing and may be null: what is written, what is read, and that no reader takes
a missing one for a value."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import NODEFAULT, UNSET, inspect

from scenarios.schema.result_keys import FILES, _structs
from testbed.results.summary import Run
from testbed.results.values import Amount, Perhaps, Row, known, number_at
from tests.made import made
from topologies.structs import Doc, plain

ROOT = Path(__file__).resolve().parents[3]


class One(Row, kw_only=True):
    always: Annotated[Amount | None, Doc("null where it is not known")]
    seldom: Annotated[Amount | None, Doc("left out without a value")] = None
    perhaps: Annotated[Perhaps[Amount], Doc("may be missing, may be null")] = UNSET


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"always":null}', None),
        ('{"always":1.5,"perhaps":null}', None),
        ('{"always":null,"perhaps":2.0}', 2.0),
    ],
)
def test_a_file_is_written_as_it_was_read(text: str, value: float | None) -> None:
    one = msgspec.json.decode(text, type=One)
    assert known(one.perhaps) == value and plain(one) == json.loads(text)


def test_a_row_is_asked_by_the_keys_of_its_file() -> None:
    run = made(Run, flows={"a": {"share": 0.5}}, separations=[{"from": "b"}])
    assert run["flows"]["a"]["share"] == 0.5 and run["separations"][0]["from"] == "b"  # type: ignore[index]
    with pytest.raises(KeyError):
        run["all_on_ns"]
    assert (
        number_at(run, "flows.a.share") == 0.5
        and number_at(run, "all_on_ns") is None
        and number_at(run, "separations.0.before") is None
    )


def test_no_reader_compares_with_none_what_may_be_missing() -> None:
    """UNSET is not None: ``run.t0_ns is None`` would be wrong where the key is missing, and mypy
    would not say so."""
    fields = [
        field
        for file in FILES.values()
        for struct in _structs(file).values()
        for field in _fields(struct)
    ]
    perhaps = {field.name for field in fields if _may_be_unset(field)}
    # such a name means something else elsewhere
    perhaps -= {field.name for field in fields if not _may_be_unset(field)}
    assert "t0_ns" in perhaps and len(perhaps) > 20
    found = []
    readers = (
        path
        for room in ("scenarios", "testbed", "mrcbed")
        for path in (ROOT / room).rglob("*.py")
        if path.parent.name != "figures"
    )
    for path in readers:  # scenarios/figures makes the values
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Compare)
                and isinstance(node.ops[0], (ast.Is, ast.IsNot))
                and _is_none(node.comparators[0])
            ):
                left = node.left.value if isinstance(node.left, ast.NamedExpr) else node.left
                if (
                    isinstance(left, ast.Attribute)
                    and left.attr in perhaps
                    and path.name not in ("cost_table.py", "paths.py")
                ):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {left.attr}")
    assert not found, found


def _fields(struct: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _may_be_unset(field: inspect.Field) -> bool:
    """Of a default UNSET msgspec tells that there is none, and that the field is not required."""
    return not field.required and field.default is NODEFAULT and field.default_factory is NODEFAULT


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
